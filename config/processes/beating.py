"""Web, clock and rows note that they are at work: the time that others are given runs then."""

from __future__ import annotations

import threading
from collections import deque
from datetime import UTC, datetime

import structlog
from django.db import DatabaseError, InterfaceError, connection

from ledger.eventstore.port import START, EventStore, Position
from ledger.following import read_up_to
from metering.loops import BEAT_SECONDS, beat
from metering.queries.uptime import CLOCK, ROWS, WEB

TOLD_FROM = "marketplace.leases"
"""The read model that agents are told from what to run and when to stop it."""
HEADS_MAX = 720
"""An hour of beats: rows that lag for longer are known less exactly, and never too late."""

log = structlog.get_logger()


def beat_in_background() -> None:
    """Beat as long as this process lives, on a thread of its own."""
    threading.Thread(target=_beat_on, name="beat", daemon=True).start()


def _beat_on() -> None:
    rest = threading.Event()
    while not rest.wait(BEAT_SECONDS):
        try:
            beat(WEB, now=datetime.now(UTC))
        except (DatabaseError, InterfaceError) as lost:
            log.warning("beat.waiting", error=str(lost).strip())
            connection.close()


class Beats:
    """Notes that the clock is at work, and up to when the rows show what was recorded.

    A host that is asked to start, or told to stop sooner, hears of it from rows. While they lag
    (their process is gone, or stopped at an event) web and clock are up and nobody can act.
    """

    def __init__(self) -> None:
        """Begin without knowing how far anything was recorded at what time."""
        self._heads: deque[tuple[datetime, Position]] = deque(maxlen=HEADS_MAX)

    def run_once(self, store: EventStore, *, now: datetime) -> int:
        """Beat; return 0, since nothing is left to do."""
        beat(CLOCK, now=now)
        read = read_up_to(TOLD_FROM)
        if read == START:
            return 0  # it has never run here: nobody waits for it
        self._heads.append((now, store.head()))
        shown = None
        while self._heads and self._heads[0][1] <= read:
            shown = self._heads.popleft()[0]
        if shown is not None:
            beat(ROWS, now=shown)
        return 0
