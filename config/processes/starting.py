"""What every process that serves or works asks before it begins: whether it may work here."""

from __future__ import annotations

import threading

import structlog
from django.core.management.base import CommandError
from django.db import DatabaseError, connections

from config.processes import fitness

WAIT_SECONDS = 2.0
TAKEN_MAX = 0.8
"""The part of the server's connections beyond which who starts another process is warned."""

log = structlog.get_logger()


def refuse_unfit(*, stop: threading.Event | None = None) -> None:
    """End this process if waiting will not make it fit for this database.

    stop: wait for a database that is away until this is set; without, leave it to /readyz.

    Raises: CommandError.
    """
    while stop is None or not stop.is_set():
        try:
            unfit = fitness.newer_data() or fitness.pooler()
        except DatabaseError as lost:
            log.warning("start.waiting", error=str(lost).strip())
            connections.close_all()
            if stop is None:
                return
            stop.wait(WAIT_SECONDS)
            continue
        if unfit:
            connections.close_all()
            raise CommandError(unfit)
        fitness.note_version()
        _warn_of_connections()
        connections.close_all()
        return


def _warn_of_connections() -> None:
    try:
        taken, most = fitness.connections_taken()
    except DatabaseError:
        return
    if taken > TAKEN_MAX * most:
        log.warning("start.few-connections", taken=taken, most=most, advice="/docs/scale/")
