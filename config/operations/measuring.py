"""What is measured for Prometheus: this process's requests, and the market as the store has it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, connection
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from config.models import LoopRun
from config.processes.clock import clock
from config.processes.fitness import connections_taken
from config.processes.kernels import COMPILED
from ledger import parking
from ledger.eventstore import default_store
from ledger.eventstore.port import StoreError
from ledger.following import lag
from marketplace.models.bids import BidRow
from metering.queries.progress import lagging_meters, uncharged_windows

REQUESTS = CollectorRegistry()
"""Of this process alone: each web process is scraped for itself."""
SECONDS = Histogram(
    "offpeak_request_seconds",
    "Time from a request to the end of its answer",
    ["kind"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
    registry=REQUESTS,
)
ANSWERS = Counter(
    "offpeak_requests",
    "Requests answered, by class of status",
    ["kind", "status"],
    registry=REQUESTS,
)
RUNNING = Gauge(
    "offpeak_requests_running", "Requests that wait or are worked on", ["kind"], registry=REQUESTS
)
UNCHARGED_AFTER = timedelta(minutes=2)
NOTING_SECONDS = 6.0
"""A pass that went well is noted every five seconds."""


def kind_of(path: str) -> str:
    """Return the class of route that an address belongs to: few, whatever strangers ask for."""
    if path == "/api/v1/bids" or path.startswith("/api/v1/bids/"):
        return "bids"
    if path.startswith("/api/v1/agent"):
        return "agents"
    if path.startswith("/api/"):
        return "api"
    if path.startswith("/static/"):
        return "static"
    if path.startswith("/blobs/"):
        return "files"
    if path in ("/healthz", "/readyz", "/metrics"):
        return "probes"
    return "pages"


def exposition() -> tuple[bytes, str]:
    """Return everything as Prometheus reads it, and its media type.

    What the store does not tell while it is away is left out; `offpeak_store_up` says that it is.
    """
    registry = CollectorRegistry()
    up = Gauge("offpeak_store_up", "1 if database and event store answer", registry=registry)
    doubted = Gauge(
        "offpeak_clock_doubted", "1 if others contradict this process's clock", registry=registry
    )
    doubted.set(1 if clock.doubt() else 0)
    try:
        _followers(registry)
        _loops(registry)
        _queues(registry)
        up.set(1)
    except (DatabaseError, StoreError):
        up.set(0)
        connection.close()
    return generate_latest(registry) + generate_latest(REQUESTS), CONTENT_TYPE_LATEST


def _followers(registry: CollectorRegistry) -> None:
    store = default_store()
    found = lag(store, now=datetime.now(UTC))
    head = Gauge("offpeak_event_head", "Last position of the event store", registry=registry)
    behind = Gauge(
        "offpeak_follower_lag_seconds",
        "Age of the oldest event that was not read",
        ["follower"],
        registry=registry,
    )
    stopped = Gauge("offpeak_follower_stopped", "1 if failed", ["follower"], registry=registry)
    head.set(store.head())
    for each in found:
        behind.labels(each.name).set(each.seconds)
        stopped.labels(each.name).set(1 if each.error else 0)


def _loops(registry: CollectorRegistry) -> None:
    names = ["loop"]
    last = Gauge(
        "offpeak_loop_last_success_timestamp_seconds",
        "End of the last pass that went well",
        names,
        registry=registry,
    )
    late = Gauge(
        "offpeak_loop_lag_seconds",
        "Time since that, beyond the longest time between two passes",
        names,
        registry=registry,
    )
    took = Gauge("offpeak_loop_pass_seconds", "Length of that pass", names, registry=registry)
    did = Gauge("offpeak_loop_did", "What it did since it was held", names, registry=registry)
    failures = Gauge(
        "offpeak_loop_failures", "Passes that failed since then", names, registry=registry
    )
    compiled = Gauge(
        "offpeak_kernels_compiled",
        "1 if the engine decides by compiled kernels, 0 while it compiles or where that fails",
        names,
        registry=registry,
    )
    now = datetime.now(UTC)
    for row in LoopRun.objects.all():
        if row.kernels:
            compiled.labels(row.name).set(1 if row.kernels == COMPILED else 0)
        if row.passed_at is not None:
            last.labels(row.name).set(row.passed_at.timestamp())
            late.labels(row.name).set(lateness(row, now))
        took.labels(row.name).set(row.took_ms / 1000)
        did.labels(row.name).set(row.did)
        failures.labels(row.name).set(row.failures)


def loop_runs() -> list[LoopRun]:
    """Return how the last pass of each loop went, by name."""
    return list(LoopRun.objects.order_by("name"))


def lateness(row: LoopRun, now: datetime) -> float:
    """Return seconds since a loop's last good pass, beyond what lies between two, and noting."""
    if row.passed_at is None:
        return 0.0
    return max(0.0, (now - row.passed_at).total_seconds() - row.every_ms / 1000 - NOTING_SECONDS)


def _queues(registry: CollectorRegistry) -> None:
    for each in queues():
        Gauge(each.name, each.words, registry=registry).set(each.figure)
    taken, most = connections_taken()
    for name, words, figure in (
        ("offpeak_database_connections", "Connections that the server has", taken),
        ("offpeak_database_connections_max", "Connections that it can have for us", most),
    ):
        Gauge(name, words, registry=registry).set(figure)


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits. title: for people; words: for who reads metrics."""

    name: str
    title: str
    words: str
    figure: int


def queues() -> list[Queue]:
    """Return what waits to be done, and how much of it."""
    now = datetime.now(UTC)
    rated_within = 2 * timedelta(seconds=settings.ENV.usage_window_seconds) + UNCHARGED_AFTER
    lagging = lagging_meters(now=now, older_than=rated_within)
    uncharged = uncharged_windows(now=now, older_than=UNCHARGED_AFTER)
    return [
        Queue(
            "offpeak_bids_open",
            "Open bids",
            "Bids that wait",
            BidRow.objects.filter(state="open").count(),
        ),
        Queue(
            "offpeak_meters_lagging",
            "Leases not rated",
            "Running leases whose use was not rated for two windows",
            len(lagging),
        ),
        Queue(
            "offpeak_usage_windows_uncharged",
            "Use not charged",
            "Windows of rated use that are not charged",
            uncharged,
        ),
        Queue(
            "offpeak_reactions_parked",
            "Events parked",
            "Events that policies could not react to yet",
            parking.parked().count(),
        ),
        Queue(
            "offpeak_reactions_set_aside",
            "Events set aside",
            "Those that failed so often that somebody should look",
            parking.set_aside().count(),
        ),
    ]


@dataclass(frozen=True, slots=True)
class Requests:
    """How requests of one class of route went, in this process since it began."""

    kind: str
    answered: int
    mean_ms: int
    failed: int
    running: int


def requests_of_this_process() -> list[Requests]:
    """Return it for every class that was asked for, the busiest first."""
    figures: dict[tuple[str, str], float] = {}
    for family in REQUESTS.collect():
        for sample in family.samples:
            key = sample.name, sample.labels.get("kind", "")
            if sample.labels.get("status", "5xx") == "5xx" and "le" not in sample.labels:
                figures[key] = sample.value
    found = []
    for name, kind in figures:
        if name != "offpeak_request_seconds_count":
            continue
        answered = int(figures[name, kind])
        seconds = figures["offpeak_request_seconds_sum", kind]
        found.append(
            Requests(
                kind,
                answered,
                round(1000 * seconds / answered) if answered else 0,
                int(figures.get(("offpeak_requests_total", kind), 0)),
                int(figures.get(("offpeak_requests_running", kind), 0)),
            )
        )
    return sorted(found, key=lambda each: -each.answered)
