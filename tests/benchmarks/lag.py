"""From the append to the row: how long a reader waits at a thousand events a second.

Of the read models that people wait for; those of `bulk-rows` are a tenth of a second behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from django.conf import settings
from django.db import connection

from config.processes.loops import run_loop
from config.wiring import loops
from ledger.eventstore.postgres import PostgresStore
from ledger.models import Checkpoint
from tests.benchmarks.events import BY, fresh, published, repriced
from tests.benchmarks.figures import Figure, percentile
from tests.conftest import clear_event_table

SECONDS, PER_SECOND, PROBES = 10, 1_000, 100


def run() -> Iterator[Figure]:
    """Append at a steady rate, and time how long each probe takes to be readable."""
    clear_event_table()
    Checkpoint.objects.all().delete()
    store = PostgresStore()
    store.append("offer-bench", fresh([published(1)]), expected=0, by=BY)
    stop = threading.Event()
    [loop] = [loop for loop in loops(settings.ENV) if loop.name == "projections"]
    follower = threading.Thread(target=run_loop, args=(loop,), kwargs={"stop": stop})
    follower.start()
    lags: list[float] = []
    try:
        probes = threading.Thread(target=_probe, args=(lags, stop))
        appended = _append_steadily(store, probes)
    finally:
        stop.set()
        follower.join()
    yield Figure("appended meanwhile", appended / SECONDS, "events/s", goal=f"{PER_SECOND:,}")
    yield Figure("append to read model, p50", percentile(lags, 0.5) * 1e3, "ms")
    yield Figure("append to read model, p99", percentile(lags, 0.99) * 1e3, "ms", goal="≤ 30 ms")
    clear_event_table()


def _append_steadily(store: PostgresStore, probes: threading.Thread) -> int:
    batch, version = 10, 1
    started = time.perf_counter()
    probes.start()
    for number in range(SECONDS * PER_SECOND // batch):
        events = fresh([repriced(1, version + n) for n in range(batch)])
        store.append("offer-bench", events, expected=version, by=BY)
        version += batch
        ahead = started + (number + 1) * batch / PER_SECOND - time.perf_counter()
        if ahead > 0:
            time.sleep(ahead)
    probes.join()
    return version


def _probe(lags: list[float], stop: threading.Event) -> None:
    """Take the head, wait for every checkpoint to reach it, again and again."""
    store = PostgresStore()
    until = time.perf_counter() + SECONDS - 1
    while time.perf_counter() < until and not stop.is_set():
        head, started = store.head(), time.perf_counter()
        while Checkpoint.objects.filter(position__lt=head).exists():
            time.sleep(0.001)
        lags.append(time.perf_counter() - started)
        time.sleep(0.05)
    connection.close()
