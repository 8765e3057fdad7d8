"""Loops that put logs and samples away, and let go of what was kept long enough."""

from __future__ import annotations

from datetime import datetime, timedelta

import marketplace.folders
import marketplace.logs
import marketplace.volumes
import metering.parts
from config.env import Env
from config.processes.loops import Loop
from ledger.eventstore.port import EventStore
from marketplace.storage import default_storage
from metering.ingest.heartbeats import forget_heartbeats


def _old_blobs(store: EventStore, now: datetime) -> int:
    """Let go of what removed folders had, then remove the blobs that nobody has any more."""
    gone = marketplace.folders.let_go_removed(store, now=now)
    return gone + marketplace.folders.forget_unused(default_storage(), now=now)


def kept_for_days(env: Env) -> tuple[Loop, ...]:
    """Return the loops that put things away, and drop what was kept long enough."""
    logs, samples = timedelta(days=env.logs_kept_days), timedelta(days=env.samples_kept_days)
    close_and_forget, see_to_parts = marketplace.logs.close_and_forget, metering.parts.see_to_parts
    of_logs = marketplace.logs.default_logs
    return (
        Loop("old-blobs", 600.0, _old_blobs),
        Loop(
            "volumes",
            60.0,
            lambda store, now: marketplace.volumes.see_to_volumes(store, now=now),
        ),
        Loop(
            "logs",
            10.0,
            lambda _, now: close_and_forget(default_storage(), of_logs(), kept=logs, now=now),
        ),
        Loop("old-samples", 600.0, lambda _, now: see_to_parts(now=now, kept=samples)),
        Loop("old-heartbeats", 3600.0, lambda _, now: forget_heartbeats(now=now, kept=samples)),
    )
