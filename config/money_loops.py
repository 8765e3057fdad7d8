"""What is done by the clock about money of work that runs, waits, or has to be told of it."""

from __future__ import annotations

import marketplace.depleting
import marketplace.loops
from config.processes.loops import Loop


def money_loops() -> tuple[Loop, ...]:
    """Return the loops that watch accounts, and let work go on that waited for money."""
    return (
        Loop(
            "money-waits",
            5.0,
            lambda store, now: marketplace.loops.go_on_where_there_is_money(store, now=now),
        ),
        Loop(
            "account-watch",
            30.0,
            lambda store, now: marketplace.depleting.watch_accounts(store, now=now),
        ),
    )
