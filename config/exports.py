"""Loops of exports: writing what was asked for, bringing closed months to finance."""

from __future__ import annotations

from datetime import datetime
from functools import cache

from config.env import Env
from config.processes.loops import Loop
from ledger.eventstore.port import EventStore
from ledger.export_delivery import deliver_closed, target_named
from ledger.exporting import drop_old_exports, kept_in, make_exports
from ledger.planned_exports import deliver_planned


def export_loops(env: Env) -> tuple[Loop, ...]:
    """Return the loops that write exports people asked for, and bring those of closed months."""
    named = tuple(each.strip() for each in env.exports_formats.split(",") if each.strip())
    target = cache(
        lambda: target_named(
            env.exports_to, region=env.storage_region, endpoint_url=env.storage_endpoint_url
        )
    )

    def bring(store: EventStore, now: datetime) -> int:
        if not env.exports_to:
            return 0
        closed = deliver_closed(store, target, formats=named, now=now)
        return closed + deliver_planned(store, target, now=now)

    return (
        Loop("exports", 1.0, lambda store, now: make_exports(store, kept_in(), now=now)),
        Loop("old-exports", 3_600.0, lambda _, now: drop_old_exports(kept_in(), now=now)),
        Loop("export-delivery", 300.0, bring),
    )
