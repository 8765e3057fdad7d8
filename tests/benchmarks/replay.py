"""Replay and rebuild of a million events. Goal: rebuilt in seven seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from django.db import connection

from ledger.eventstore.port import START
from ledger.eventstore.postgres import PostgresStore
from ledger.following import Projection
from ledger.rebuilding import rebuild
from listings.projections import PROJECTIONS
from tests.benchmarks.events import copy_history
from tests.benchmarks.figures import Figure
from tests.conftest import clear_event_table

EVENTS = int(os.environ.get("BENCH_EVENTS", "1000000"))
OFFERS = EVENTS // 50


def run() -> Iterator[Figure]:
    """Measure raw reads, decoded reads, verification and a rebuild."""
    clear_event_table()
    copy_history(OFFERS, EVENTS // OFFERS - 1)
    store = PostgresStore()
    raw = _raw_read()
    yield Figure("raw read of the rows' bytes, COPY out", EVENTS / raw, "events/s")
    started, position = time.perf_counter(), START
    while True:
        page = store.read_all(after=position, limit=1_000)
        for recorded in page.events:
            recorded.event  # noqa: B018  # decoding is what is measured
        position = page.next_position
        if page.caught_up:
            break
    seconds = time.perf_counter() - started
    yield Figure("replay: read and decode", EVENTS / seconds, "events/s", EVENTS / raw, "raw read")
    started = time.perf_counter()
    report = store.verify()
    assert report.ok and report.checked == EVENTS
    yield Figure("verify the hash chain", EVENTS / (time.perf_counter() - started), "events/s")
    projection = _offers()
    started = time.perf_counter()
    rebuild(store, projection)
    seconds = time.perf_counter() - started
    goal = f"≤ {7 * EVENTS / 1e6:g} s"
    yield Figure(f"rebuild {projection.name}, {OFFERS:,} rows", seconds, "s", goal=goal)
    clear_event_table()


def _raw_read() -> float:
    started = time.perf_counter()
    with connection.cursor() as cursor:
        query = "SELECT position, type, data FROM es_event ORDER BY position"
        with cursor.cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT binary)") as copy:
            for _chunk in copy:
                pass
    return time.perf_counter() - started


def _offers() -> Projection:
    [projection] = [each for each in PROJECTIONS if "listings.offer-repriced" in each.on]
    return projection
