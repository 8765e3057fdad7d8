"""Checkpoints: when one is news to the server.

Where the work says that it is safe, and up to when, is its runtime's to know (`runtimes/saved.py`).
"""

from __future__ import annotations

from .memory import report
from .runtimes.port import Work
from .spool import Record
from .state import LeaseState

EVERY_MS = 60_000
"""Work that saves itself every second is not reported every second."""


def news(work: Work | None, lease: LeaseState, *, at_end: bool) -> list[Record]:
    """Return what is to be kept and reported of a checkpoint, if it is news.

    at_end: the work is ending, so that the last checkpoint counts however short ago another was.
    """
    if work is None or work.saved_ms is None or lease.ended:
        return []
    known = lease.saved_ms
    if known is not None and work.saved_ms < known + (1_000 if at_end else EVERY_MS):
        return []
    return [
        report(lease.terms, "saved", work.saved_ms),
        {"t": "saved", "lease": str(work.lease_id), "at_ms": work.saved_ms},
    ]
