"""The web notes while it is at work: the time that agents are given runs while they can call."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import structlog
from django.db import DatabaseError, InterfaceError, connection

from metering.loops import BEAT_SECONDS, beat
from metering.queries.uptime import WEB

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
