"""Heartbeats of leased work: when one is news to the server.

What the work says of itself is passed on as it is; the agent measures nothing by it.
"""

from __future__ import annotations

from .memory import report
from .runtimes.port import Work
from .spool import Record
from .state import LeaseState

EVERY_MS = 30_000
"""How far apart two are that are told: as much of one that stops may be lost."""


def news(work: Work | None, lease: LeaseState, *, at_end: bool = False) -> list[Record]:
    """Return what is to be kept and reported of a heartbeat, if it is news.

    While it goes on without a break it is told now and then; a new one is told at once. at_end:
    the work is over, or about to be, so that the last one counts, too.
    """
    if work is None or work.alive_ms is None or lease.ended or work.alive_ms == lease.alive_ms:
        return []
    since_ms, until_ms = work.alive_ms
    known, at_end = lease.alive_ms, at_end or lease.stopping_ms is not None
    goes_on = known is not None and since_ms == known[0]
    if known is not None and goes_on and until_ms < known[1] + (1 if at_end else EVERY_MS):
        return []
    record = {"t": "alive", "lease": str(lease.terms.lease_id)}
    return [
        report(lease.terms, "alive", until_ms, since_ms=since_ms),
        record | {"since_ms": since_ms, "until_ms": until_ms},
    ]
