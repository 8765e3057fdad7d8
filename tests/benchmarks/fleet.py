"""Ten thousand simulated GPUs on 1,250 hosts, each heard every ten seconds, over real HTTP.

Each beat is a batch with an interval of every GPU and a question for assignments. What is told:
how long after a beat was due its samples are stored and its question is answered (by then the
host's row shows that it was heard); how long after a lease's samples reach past a usage window that
window is closed, in its row; and how all of that changes over the run. Windows are of a minute,
sixty times as many as an installation has. The engine and the policies, which charge, are not run.

BENCH_FLEET_SECONDS (180), BENCH_FLEET_HOSTS (1250); an hour is `make soak`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from django.db import connection

from ledger.domain.ids import HostId
from ledger.eventstore.postgres import PostgresStore
from listings.commands import register_host
from listings.models import HostRow
from metering.agent import wire
from metering.domain.instants import millis_down
from metering.ingest.contacts import register_agent
from metering.models import Interval, MeterRow
from metering.parts import parts
from tests.access.world import follow
from tests.benchmarks.figures import Figure, percentile
from tests.benchmarks.light_agents import GPUS, Fleet, LightAgent
from tests.benchmarks.served import processor_seconds, run_loops, web
from tests.conftest import SOMEBODY
from tests.metering.host_agent import host_token
from tests.metering.world import OWNER, World, share

HOSTS = int(os.environ.get("BENCH_FLEET_HOSTS", "1250"))
SECONDS = float(os.environ.get("BENCH_FLEET_SECONDS", "180"))
BEAT_SECONDS = 10.0
WINDOW_MS = 60_000
LOOK_SECONDS = 0.5
SETTLING_SECONDS = 20.0
"""Left out at the beginning: 1,250 connections are made, and leases are read for the first time."""
LOOPS = ("usage", "projections", "bulk-rows", "host-health", "lease-clock", "beat", "old-samples")
PACE = {
    "OFFPEAK_USAGE_WINDOW_SECONDS": str(WINDOW_MS // 1000),
    "OFFPEAK_AGENT_SAMPLE_SECONDS": str(int(BEAT_SECONDS)),
    "OFFPEAK_AGENT_POLL_SECONDS": str(int(BEAT_SECONDS)),
}


def run() -> Iterator[Figure]:
    """Let the fleet live."""
    agents = _leased()
    closing = _Closing()
    running: dict[str, int] = {}
    with web(running) as port, run_loops(LOOPS, running, PACE):
        fleet = Fleet(port, agents, BEAT_SECONDS, closing.sent)
        before, began = processor_seconds(running), time.monotonic()
        watcher = threading.Thread(target=closing.watch)
        watcher.start()
        try:
            fleet.run(SECONDS)
        finally:
            closing.over.set()
            watcher.join()
        lasted = time.monotonic() - began
        after = processor_seconds(running)
        silent = HostRow.objects.exclude(silent_since=None).count()
    assert not fleet.refused, f"answers other than 200: {sorted(set(fleet.refused))}"
    beats = [each for each in fleet.beats if each.due > began + SETTLING_SECONDS]
    yield Figure("GPUs", len(agents) * GPUS, "", digits=0)
    yield Figure("beats of hosts in all", len(fleet.beats), "", digits=0)
    yield Figure("samples stored", Interval.objects.count() / lasted, "rows/s", digits=0)
    yield from _told("beat due to samples stored", [(each.due, each.samples) for each in beats])
    yield from _told("question asked to answered", [(each.due, each.question) for each in beats])
    waits = [pair for pair in closing.waits if pair[0] > began + SETTLING_SECONDS]
    yield from _told("last sample of a window to its row", waits)
    yield Figure("hosts taken for silent", silent, "", digits=0)
    yield Figure("hosts that were behind at the end", fleet.overdue, "", digits=0)
    spent = {each: after[each] - before[each] for each in after}
    for each, seconds in spent.items():
        yield Figure(f"  of a processor for a beat: {each}", 1e3 * seconds / len(fleet.beats), "ms")
    served = sum(seconds for each, seconds in spent.items() if each != "clients") / len(fleet.beats)
    hosts = 2 * BEAT_SECONDS / served
    yield Figure(
        "  GPUs that two whole cores would serve", hosts * GPUS, "", goal="≥ 10,000", digits=0
    )
    yield from _sizes()


def _told(name: str, waits: Sequence[tuple[float, float]]) -> Iterator[Figure]:
    """Tell the middle and the tail of waits, and how the middle grows by the minute."""
    seconds = [wait for _, wait in waits]
    yield Figure(f"{name}, p50", 1000 * percentile(seconds, 0.5), "ms", digits=0)
    yield Figure(f"{name}, p99", 1000 * percentile(seconds, 0.99), "ms", digits=0)
    yield Figure(f"{name}, more each minute", 1000 * slope(waits), "ms", digits=1)


def slope(waits: Sequence[tuple[float, float]]) -> float:
    """Return by how many seconds the median wait of half minutes grows in a minute."""
    groups: dict[int, list[float]] = defaultdict(list)
    for at, wait in waits:
        groups[int(at // 30)].append(wait)
    points = [(at / 2, percentile(some, 0.5)) for at, some in sorted(groups.items())]
    if len(points) < 2:
        return 0.0
    mean_at = sum(at for at, _ in points) / len(points)
    mean = sum(wait for _, wait in points) / len(points)
    spread = sum((at - mean_at) ** 2 for at, _ in points)
    return sum((at - mean_at) * (wait - mean) for at, wait in points) / spread


@dataclass
class _Closing:
    """Watches how long after its samples came each window of each lease is closed."""

    waits: list[tuple[float, float]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    _reached: dict[UUID, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))

    def sent(self, agent: LightAgent) -> None:
        """Note when a lease's samples reached past the next end of a window."""
        border_ms = agent.through_ms // WINDOW_MS * WINDOW_MS
        noted = self._reached[agent.lease_id]
        if border_ms > agent.starts_ms and (not noted or noted[-1][0] < border_ms):
            noted.append((border_ms, time.monotonic()))

    def watch(self) -> None:
        """Look at the rows of all meters again and again."""
        seen: dict[UUID, int] = {}
        while not self.over.wait(LOOK_SECONDS):
            now = time.monotonic()
            for lease_id, through_ms in MeterRow.objects.values_list(
                "lease_id", "closed_through_ms"
            ):
                known = seen.get(lease_id, 0)
                if through_ms <= known:
                    continue
                seen[lease_id] = through_ms
                for border_ms, reached in [*self._reached[lease_id]]:
                    if known < border_ms <= through_ms:
                        self.waits.append((reached, max(0.0, now - reached)))
        connection.close()


def _leased() -> list[LightAgent]:
    """Register hosts and lease all of their GPUs, as facts on the log."""
    starts_at = datetime.now(UTC).replace(second=0, microsecond=0)
    store, agents = PostgresStore(), []
    world = World(store)
    world.follow = lambda: None  # type: ignore[method-assign]  # once, for all of them
    for number in range(HOSTS):
        agent = LightAgent(number, "", uuid4(), millis_down(starts_at), uuid4())
        host_id = HostId(agent.host_id)
        register_host(
            store,
            host_id=host_id,
            tenant_id=OWNER,
            title=f"host {number}",
            market="main",
            region="eu-west",
            by=SOMEBODY,
            now=starts_at,
        )
        register_agent(
            store,
            _registration(agent),
            host_id=host_id,
            tenant_id=OWNER,
            by=SOMEBODY,
            now=datetime.now(UTC),
        )
        world.schedule(
            share(host_id, OWNER, *agent.gpus),
            lease_id=agent.lease_id,  # type: ignore[arg-type]  # of this lease
            minutes=48 * 60,
            starts_at=starts_at,
        )
        agents.append(agent)
    World(store).follow()
    follow()
    for agent in agents:
        agent.token = host_token(agent.host_id, OWNER)
    assert MeterRow.objects.filter(state="open").count() == HOSTS
    return agents


def _registration(agent: LightAgent) -> wire.Registration:
    cards = [
        wire.Gpu(
            uuid=gpu_uuid,
            model="NVIDIA H100 80GB HBM3",
            memory_mib=81_559,
            compute_capability="9.0",
            driver="580.65",
            nvlink_group=None,
            mig_enabled=False,
            mig_profiles=(),
        )
        for gpu_uuid in agent.gpus
    ]
    return wire.Registration(
        agent_version="1.0",
        boot_id=agent.boot_id,
        hostname=f"n{agent.number}",
        gpus=tuple(cards),
        sandbox="process",
    )


def _sizes() -> Iterator[Figure]:
    """Tell what a sample takes on disk, and so a GPU in a year."""
    rows = Interval.objects.count()
    with connection.cursor() as cursor:
        names = [part.name for part in parts()]
        cursor.execute(
            "SELECT sum(pg_relation_size(n::regclass)), sum(pg_indexes_size(n::regclass))"
            " FROM unnest(%s::text[]) AS n",
            [names],
        )
        found = cursor.fetchone()
    table, index = (int(each) for each in found or (0, 0))
    yield Figure("a sample on disk: row", table / rows, "bytes", digits=0)
    yield Figure("a sample on disk: index", index / rows, "bytes", digits=0)
    year = timedelta(days=365).total_seconds() / BEAT_SECONDS
    yield Figure("a GPU-year of samples", (table + index) / rows * year / 1e6, "MB", digits=0)
