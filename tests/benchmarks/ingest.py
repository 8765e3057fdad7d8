"""Samples of agents: by bare COPY, through the function that stores them, and through HTTP while
they are rolled up into usage windows."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import UUID, uuid4

from django.db import connection
from django.db.models import Sum

from ledger.domain.ids import HostId, TenantId
from ledger.domain.span import Window
from ledger.eventstore.postgres import PostgresStore
from metering.agent.wire import SampleBatch
from metering.domain.instants import millis_down
from metering.ingest.grants import Grants
from metering.ingest.samples import take_samples
from metering.models import Interval, MeterRow, UsageRow
from tests.benchmarks.figures import Figure
from tests.benchmarks.served import ask, processor_seconds, run_loops, together, web
from tests.metering.host_agent import host_token
from tests.metering.world import OWNER, World, share

BATCHES, BATCH = 60, 1_000
HOSTS, GPUS, SECONDS = 2, 8, 8.0
WINDOW_SECONDS = 60
"""Sixty times as often as an installation rates: each batch is a window's worth."""
SPAN_MS = WINDOW_SECONDS * 1_000 * GPUS // BATCH
HOURS = 20
ROLLED_WITHIN_SECONDS = 120.0


@dataclass
class Host:
    """A host with eight GPUs of one lease, and the batches that its agent sends."""

    number: int
    starts_ms: int
    lease_id: UUID
    host_id: HostId = field(default_factory=lambda: HostId(uuid4()))

    @property
    def gpus(self) -> list[str]:
        """Return its GPUs."""
        return [f"GPU-{self.number}-{index}" for index in range(GPUS)]

    def messages(self) -> Iterator[dict[str, object]]:
        """Make batches of one run: each a minute of all GPUs, one minute after the other."""
        boot_id = str(uuid4())
        for number in count():
            minute_ms = self.starts_ms + number * WINDOW_SECONDS * 1_000
            yield {
                "boot_id": boot_id,
                "health": [],
                "batch": [
                    {
                        "seq": number * BATCH + index + 1,
                        "lease_id": str(self.lease_id),
                        "gpu_uuid": self.gpus[index % GPUS],
                        "start_ms": minute_ms + index // GPUS * SPAN_MS,
                        "end_ms": minute_ms + (index // GPUS + 1) * SPAN_MS,
                        "granted_ms": SPAN_MS,
                        "occupied_ms": SPAN_MS,
                        "busy_ms": SPAN_MS // 2,
                        "memory_used_mib": 40_000,
                        "cpu_ms": SPAN_MS,
                        "io_bytes": 1_000_000,
                        "net_bytes": 1_000_000,
                        "energy_mj": 300 * SPAN_MS,
                    }
                    for index in range(BATCH)
                ],
            }


def run() -> Iterator[Figure]:
    """Measure rows a second; every batch is a commit of its own, or together with the other's."""
    hosts = _leased()
    copied = _copy()
    yield Figure(f"raw COPY of the same rows, {BATCH:,} a commit", copied, "rows/s")
    taken = _take(hosts[0])
    yield Figure("samples through take_samples", taken, "rows/s", copied, "raw COPY")
    Interval.objects.all().delete()
    yield from _served(hosts, copied)


def _leased() -> list[Host]:
    """Lease two hosts' GPUs for most of a day, since long ago."""
    starts_at = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    starts_at -= timedelta(hours=HOURS)
    world = World(PostgresStore())
    minutes = HOURS * 60 + 120
    hosts = [Host(number, millis_down(starts_at), uuid4()) for number in range(HOSTS)]
    lease_id = hosts[0].lease_id
    for host in hosts:
        host.lease_id = lease_id
    world.fund(10_000)
    world.hold(Window(starts_at, starts_at + timedelta(minutes=minutes)), HOSTS * GPUS)
    shares = [share(host.host_id, OWNER, *host.gpus) for host in hosts]
    world.schedule(*shares, lease_id=lease_id, minutes=minutes, starts_at=starts_at)  # type: ignore[arg-type]  # of this lease
    return hosts


def _take(host: Host) -> float:
    """Read and store messages as an ordinary request does, without HTTP."""
    store, grants = PostgresStore(), Grants()
    messages = host.messages()
    texts = [json.dumps(next(messages)) for _ in range(BATCHES)]
    started = time.perf_counter()
    for text in texts:
        take_samples(
            store,
            grants,
            SampleBatch.from_json(json.loads(text)),
            host_id=host.host_id,
            tenant_id=TenantId(OWNER),
            now=datetime.now(UTC),
        )
    return BATCHES * BATCH / (time.perf_counter() - started)


def _served(hosts: list[Host], copied: float) -> Iterator[Figure]:
    """Send as fast as answers come, while windows are closed beside it."""
    running: dict[str, int] = {}
    pace = {"OFFPEAK_USAGE_WINDOW_SECONDS": str(WINDOW_SECONDS)}
    with web(running) as port, run_loops(("usage", "bulk-rows"), running, pace):
        senders = [_Sender(host) for host in hosts]
        before = processor_seconds(running)
        started = time.perf_counter()
        times = together(port, senders, SECONDS)
        sent = len(times) * BATCH
        rate = sent / (time.perf_counter() - started)
        open_ms = _not_rolled_up(senders)
        behind = _seconds_until_rolled_up(senders)
        after = processor_seconds(running)
    name = f"samples through HTTP, {HOSTS} agents, rolled up beside"
    yield Figure(name, rate, "rows/s", copied, "raw COPY", goal="≥ 45,000", digits=0)
    spent = {each: (after[each] - before[each]) / sent * 1e6 for each in after}
    for each, micros in spent.items():
        yield Figure(f"  of a processor for a sample: {each}", micros, "µs")
    whole = sum(spent.values())
    yield Figure(
        "  which two whole cores would do", 2e6 / whole, "rows/s", goal="≥ 45,000", digits=0
    )
    yield Figure("  not rolled up when the last was sent", open_ms / 60_000, "windows", digits=0)
    yield Figure("  all rolled up after", behind, "s")


def _rated_ms() -> int:
    return int(UsageRow.objects.aggregate(total=Sum("granted_ms"))["total"] or 0)


def _through_ms(senders: list[_Sender]) -> int:
    """Return up to when both have sent: as far as windows can be closed."""
    return min(sender.sent for sender in senders) * WINDOW_SECONDS * 1_000


def _not_rolled_up(senders: list[_Sender]) -> int:
    row = MeterRow.objects.get()
    return _through_ms(senders) - (row.closed_through_ms - row.starts_ms)


def _seconds_until_rolled_up(senders: list[_Sender]) -> float:
    """Wait until every window is closed, and see that nothing is missing or counted twice."""
    started = time.perf_counter()
    while _not_rolled_up(senders) > 0:
        if time.perf_counter() - started > ROLLED_WITHIN_SECONDS:
            return float("nan")
        time.sleep(0.05)
    assert _rated_ms() == _through_ms(senders) * HOSTS * GPUS, "what was rated is not what was sent"
    return time.perf_counter() - started


class _Sender:
    """An agent that sends one batch after the other."""

    def __init__(self, host: Host) -> None:
        self._token = host_token(host.host_id, OWNER)
        self._messages = host.messages()
        self.sent = 0
        # Made before the clock runs: what is measured is the server.
        self._bodies = [json.dumps(next(self._messages)).encode() for _ in range(8 * BATCHES)]
        self._bodies.reverse()

    def __call__(self, client: http.client.HTTPConnection) -> bool:
        if not self._bodies:
            return False
        status = ask(client, "POST", "/api/v1/agent/samples", self._bodies.pop(), self._token)
        assert status == 200, f"a batch was answered with {status}"
        self.sent += 1
        return True


def _copy() -> float:
    """Copy as many rows of the same columns into a table of the same indexes."""
    columns = [field.column for field in Interval._meta.local_concrete_fields]
    row = {
        "host_id": uuid4(),
        "boot_id": uuid4(),
        "lease_id": uuid4(),
        "gpu_uuid": "GPU-0-1",
        "start_ms": 1_700_000_000_000,
        "end_ms": 1_700_000_001_000,
        "occupied_ms": SPAN_MS,
        "busy_ms": SPAN_MS // 2,
        "memory_used_mib": 40_000,
        "cpu_ms": SPAN_MS,
        "io_bytes": 1_000_000,
        "net_bytes": 1_000_000,
        "energy_mj": 300 * SPAN_MS,
        "late_ms": 0,
        "received_at": datetime.now(UTC),
    }
    names = ", ".join(columns)
    with connection.cursor() as cursor:
        table = Interval._meta.db_table
        cursor.execute(f"CREATE TABLE bench_interval (LIKE {table} INCLUDING ALL)")
        started = time.perf_counter()
        for batch in range(BATCHES):
            with cursor.cursor.copy(f"COPY bench_interval ({names}) FROM STDIN") as copy:
                for index in range(BATCH):
                    row["seq"] = batch * BATCH + index
                    copy.write_row([row[name] for name in columns])
    return BATCHES * BATCH / (time.perf_counter() - started)
