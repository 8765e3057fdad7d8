"""Checkpoints: when one is news to the server.

Where the work says that it is safe, and up to when, is its runtime's to know (`runtimes/saved.py`).
"""

from __future__ import annotations

from .memory import report
from .spool import Record
from .state import LeaseState

EVERY_MS = 60_000
"""Work that saves itself every second is not reported every second."""


def news(
    safe_ms: int | None, lease: LeaseState, *, at_end: bool = False, every_ms: int = EVERY_MS
) -> list[Record]:
    """Return what is to be kept and reported of a checkpoint, if it is news.

    safe_ms: up to when the work is safe; None: it said nothing. at_end: the work is over, or is
    about to be, so that the last checkpoint counts however short ago another was. every_ms: how far
    apart two are that are reported while it runs.
    """
    if safe_ms is None or lease.ended:
        return []
    known = lease.saved_ms
    at_end = at_end or lease.stopping_ms is not None
    if known is not None and safe_ms < known + (1_000 if at_end else every_ms):
        return []
    return [
        report(lease.terms, "saved", safe_ms),
        {"t": "saved", "lease": str(lease.terms.lease_id), "at_ms": safe_ms},
    ]
