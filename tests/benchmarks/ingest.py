"""Samples of agents: through the function that stores them, through HTTP, and by bare COPY."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from uuid import UUID, uuid4

from django.db import connection

from ledger.domain.ids import HostId, TenantId
from ledger.eventstore.postgres import PostgresStore
from metering.agent.wire import SampleBatch
from metering.ingest.grants import Grants
from metering.ingest.samples import take_samples
from metering.models import Interval
from tests.access.world import Party, follow, found
from tests.benchmarks.figures import Figure
from tests.benchmarks.served import ask, together, web

BATCHES, BATCH = 60, 1_000
CLIENTS, SECONDS = 2, 8.0
SPAN_MS = 1_000


def run() -> Iterator[Figure]:
    """Measure rows a second; every batch is a commit."""
    parties = [found(f"ingest{number}") for number in range(CLIENTS)]
    follow()
    copied = _copy()
    yield Figure(f"raw COPY of the same rows, {BATCH:,} a commit", copied, "rows/s")
    taken = _take(parties[0])
    yield Figure("samples through take_samples", taken, "rows/s", copied, "raw COPY")
    with web() as port:
        times = together(port, [_Sender(party) for party in parties], SECONDS)
    rate = len(times) * BATCH / SECONDS
    yield Figure(f"samples through HTTP, {CLIENTS} agents", rate, "rows/s", copied, "raw COPY")


def _messages(party: Party, boot_id: UUID) -> Iterator[dict[str, object]]:
    """Make batches of one boot; the same five minutes again and again, under new numbers."""
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    for number in count():
        yield {
            "boot_id": str(boot_id),
            "health": [],
            "batch": [
                {
                    "seq": number * BATCH + index + 1,
                    "lease_id": str(party.ids["lease_id"]),
                    "gpu_uuid": f"GPU-{party.slug}-1",
                    "start_ms": now_ms - 240_000 + index,
                    "end_ms": now_ms - 240_000 + index + SPAN_MS,
                    "granted_ms": SPAN_MS,
                    "occupied_ms": SPAN_MS,
                    "busy_ms": SPAN_MS // 2,
                    "memory_used_mib": 40_000,
                }
                for index in range(BATCH)
            ],
        }


def _take(party: Party) -> float:
    """Read and store messages as the handler does, without HTTP."""
    store, grants = PostgresStore(), Grants()
    messages = _messages(party, uuid4())
    texts = [json.dumps(next(messages)) for _ in range(BATCHES)]
    started = time.perf_counter()
    for text in texts:
        take_samples(
            store,
            grants,
            SampleBatch.from_json(json.loads(text)),
            host_id=HostId(party.ids["host_id"]),
            tenant_id=TenantId(party.ids["tenant_id"]),
            now=datetime.now(UTC),
        )
    return BATCHES * BATCH / (time.perf_counter() - started)


class _Sender:
    """An agent that sends one batch after the other."""

    def __init__(self, party: Party) -> None:
        self._token = party.agent.token
        self._messages = _messages(party, uuid4())
        # Made before the clock runs: what is measured is the server.
        self._bodies = [json.dumps(next(self._messages)).encode() for _ in range(BATCHES)]

    def __call__(self, client: http.client.HTTPConnection) -> bool:
        if not self._bodies:
            self._bodies = [json.dumps(next(self._messages)).encode()]
        status = ask(client, "POST", "/api/v1/agent/samples", self._bodies.pop(0), self._token)
        assert status == 200, f"a batch was answered with {status}"
        return True


def _copy() -> float:
    """Copy as many rows of the same columns into a table of the same indexes."""
    host_id, boot_id, lease_id, now = uuid4(), uuid4(), uuid4(), datetime.now(UTC)
    columns = [field.column for field in Interval._meta.local_concrete_fields]
    row = {
        "host_id": host_id,
        "boot_id": boot_id,
        "lease_id": lease_id,
        "gpu_uuid": "GPU-ingest0-1",
        "start_ms": 1_700_000_000_000,
        "end_ms": 1_700_000_001_000,
        "occupied_ms": SPAN_MS,
        "busy_ms": SPAN_MS // 2,
        "memory_used_mib": 40_000,
        "late_ms": 0,
        "received_at": now,
    }
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE bench_interval (LIKE {Interval._meta.db_table} INCLUDING ALL)"
        )
        started = time.perf_counter()
        for batch in range(BATCHES):
            names = ", ".join(columns)
            with cursor.cursor.copy(f"COPY bench_interval ({names}) FROM STDIN") as copy:
                for index in range(BATCH):
                    row["seq"] = batch * BATCH + index
                    copy.write_row([row.get(name) for name in columns])
    return BATCHES * BATCH / (time.perf_counter() - started)
