"""Bids through the API: a hold and a bid each, proved, checked, recorded and answered.

First as many as four clients can ask for, with nothing but the web process. Then the whole
installation as `make up` runs it, on one machine: bids arrive at a steady rate, the engine leases
them, policies schedule the leases, projections show them.
"""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from uuid import uuid4

from django.db import transaction
from django.utils import timezone

from config.wiring import projections
from ledger.domain.ids import HostId, OfferId, TenantId
from ledger.domain.money import Rate
from ledger.domain.span import Window
from ledger.eventstore.port import Meta
from ledger.models import Checkpoint
from listings.domain.events import Gpu, OfferPublished
from tests.access.world import Party, append, follow, founded
from tests.benchmarks.append import pgbench
from tests.benchmarks.arrivals import Arrived, arriving
from tests.benchmarks.figures import Figure, percentile
from tests.benchmarks.served import ask, loops, processor_seconds, together, web
from tests.conftest import clear_event_table

CLIENTS, SECONDS = 4, 8.0
PER_SECOND = float(os.environ.get("BENCH_BIDS_PER_SECOND", "200"))
STEADY_SECONDS = float(os.environ.get("BENCH_BIDS_SECONDS", "20"))
WARM_SECONDS = 4.0
GPUS_PER_HOST = 8
ASKED: dict[str, object] = {
    "gpus": 1,
    "duration_seconds": 3_600,
    "limit": "0.01",
    "service_class": "on-demand",
    "workload": {"kind": "inference-7b"},
}

GOALS = {
    "due to answered": "≤ 50 ms",
    "answered to lease event readable": "≤ 50 ms",
    "due to lease event readable": "≤ 100 ms",
    "answered to lease in its row": "≤ 500 ms",
}

Work = Callable[[http.client.HTTPConnection], bool]


def run() -> Iterator[Figure]:
    """Measure how many bids there can be, and how long the steady ones take."""
    yield from _as_many_as_possible()
    yield from _end_to_end()


def _as_many_as_possible() -> Iterator[Figure]:
    """Measure bids of four organisations at once, and the same clients asking for nothing."""
    parties = [founded(f"bench{number}") for number in range(CLIENTS)]
    follow()
    bare = pgbench(inserts=2, clients=CLIENTS)
    yield Figure(f"pgbench: two bare INSERTs, {CLIENTS} clients", bare, "/s")
    with web() as port:
        healthy = len(together(port, [_healthz] * CLIENTS, SECONDS / 2)) / (SECONDS / 2)
        yield Figure(f"GET /healthz, {CLIENTS} clients", healthy, "/s")
        times = together(port, [_bidding(party) for party in parties], SECONDS)
    rate = len(times) / SECONDS
    yield Figure("bids through the API", rate, "/s", healthy, "GET /healthz")
    yield Figure("  the same, beside two bare INSERTs", rate, "/s", bare, "pgbench")
    yield Figure("  p50", percentile(times, 0.5) * 1e3, "ms")
    yield Figure("  p99", percentile(times, 0.99) * 1e3, "ms")


def _healthz(client: http.client.HTTPConnection) -> bool:
    return ask(client, "GET", "/healthz") == 200


def _bidding(party: Party) -> Work:
    body = json.dumps({**ASKED, "subscriber_id": str(party.ids["subscriber_id"])}).encode()

    def bid(client: http.client.HTTPConnection) -> bool:
        status = ask(client, "POST", "/api/v1/bids", body, party.caller.token)
        assert status == 201, f"a bid was answered with {status}"
        return True

    return bid


def _end_to_end() -> Iterator[Figure]:
    """Let bids arrive steadily at the whole installation, with a GPU for each."""
    _begin_anew()
    parties = [founded(f"steady{number}") for number in range(CLIENTS)]
    list_gpus(founded("owner"), round((WARM_SECONDS + STEADY_SECONDS) * PER_SECOND * 1.05))
    follow()
    commit = 1e3 / pgbench()
    yield Figure("pgbench: one bare INSERT, its commit", commit, "ms", digits=2)
    processes: dict[str, int] = {}
    with web(processes) as port, loops(processes):
        arriving(port, parties, per_second=PER_SECOND / 4, seconds=WARM_SECONDS, body=ASKED)
        before = processor_seconds(processes)
        bids = arriving(port, parties, per_second=PER_SECOND, seconds=STEADY_SECONDS, body=ASKED)
        used = processor_seconds(processes)
    yield Figure("bids that arrived", len(bids) / STEADY_SECONDS, "/s", goal=f"{PER_SECOND:,.0f}")
    granted = [bid for bid in bids if bid.granted]
    yield Figure("  leased", len(granted), "bids", goal=f"{len(bids):,}", digits=0)
    took = max(bid.answered for bid in bids) - min(bid.due for bid in bids)
    yield Figure("  answered", len(bids) / took, "/s")
    for name, seconds in used.items():
        yield Figure(
            f"  processor time a bid: {name}",
            1e3 * (seconds - before[name]) / len(bids),
            "ms",
            digits=2,
        )
    yield from _times("due to answered", bids, "due", "answered", commit)
    yield from _times("answered to lease event readable", granted, "answered", "granted", commit)
    yield from _times("due to lease event readable", granted, "due", "granted", commit)
    yield from _times("answered to lease scheduled", granted, "answered", "scheduled", commit)
    yield from _times("answered to lease in its row", granted, "answered", "shown", commit)


def _begin_anew() -> None:
    clear_event_table()
    Checkpoint.objects.all().delete()
    with transaction.atomic():  # an entry may not stand for a moment without its postings
        for table in {table for projection in projections() for table in projection.tables}:
            table._default_manager.all().delete()


def _times(
    name: str, bids: Sequence[Arrived], start: str, end: str, commit: float
) -> Iterator[Figure]:
    """Print how long it took from one moment to another; of those that came to both."""
    reached = [bid for bid in bids if getattr(bid, end)]
    times = [1e3 * (getattr(bid, end) - getattr(bid, start)) for bid in reached]
    if not times:
        return
    goal = GOALS.get(name, "")
    for label, value in (
        ("p50", percentile(times, 0.5)),
        ("p99", percentile(times, 0.99)),
        ("most", max(times)),
    ):
        yield Figure(
            f"{name}, {label} ({len(times):,})",
            value,
            "ms",
            commit,
            "commits",
            goal=goal if label == "p99" else "",
        )


def list_gpus(party: Party, gpus: int) -> None:
    """List so many GPUs, eight on a host, free for a day."""
    now, tenant_id = timezone.now(), TenantId(party.ids["tenant_id"])
    for _ in range(-(-gpus // GPUS_PER_HOST)):
        host_id = HostId(uuid4())
        listed = tuple(
            Gpu(f"GPU-{host_id}-{n}", "NVIDIA H100 80GB HBM3", 81_559, "9.0", "580.65.06")
            for n in range(GPUS_PER_HOST)
        )
        offer = OfferPublished(
            offer_id=OfferId(uuid4()),
            tenant_id=tenant_id,
            host_id=host_id,
            market="main",
            region="eu",
            labels=(),
            gpus=listed,
            windows=(Window(now - timedelta(hours=1), now + timedelta(hours=24)),),
            weekly=None,
            floor=Rate(5_000_000),
            lease_min_seconds=900,
            notice_seconds=60,
            reclaim_fee_ppm=0,
            workload_kinds=(),
            isolation="whole",
            source="local",
            reserved_for=None,
            at=now,
        )
        append(f"offer-{offer.offer_id}", offer, by=Meta(actor="loop:bench"))
