"""The watch over accounts: what runs on each, how long it lasts, and who is told."""

from __future__ import annotations

from datetime import datetime

from ledger.commands.depletion import look_at_account
from ledger.domain.depletion import AccountWatch, Seen
from ledger.eventstore.port import EventStore, Meta
from ledger.queries.depletion import accounts_to_watch, watched
from ledger.turns import each_alone, turns_of
from marketplace.queries.depletion import news_of

ACCOUNTS_MAX = 500
"""Accounts looked at in a pass."""
WATCHER = Meta(actor="loop:account-watch")


def watch_accounts(store: EventStore, *, now: datetime) -> int:
    """Look at the next accounts; return of how many there was something to tell.

    Decided on each account's own stream: rows that lag cost a look too many.
    """
    keys = turns_of(store, "account-watch").take(accounts_to_watch, ACCOUNTS_MAX)
    news = [
        seen
        for row, seen in news_of(watched([pk for (pk,) in keys]), now=now)
        if AccountWatch(level=row.level, depletes=row.depletes).look(seen, now=now)
    ]

    def tell(seen: Seen) -> int:
        look_at_account(store, seen=seen, by=WATCHER, now=now)
        return 1

    return each_alone(
        news, tell, event="account.not-told", told=lambda seen: {"account": str(seen.account_id)}
    )
