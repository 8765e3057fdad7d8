"""What machines ask the site: is it up, is it ready, how is it doing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from ledger.eventstore import default_store
from ledger.eventstore.port import StoreError
from ledger.following import lag

LAG_SECONDS_MAX = 60.0
"""How old the oldest unread event of a follower may be before the site is called not ready."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: fine or not, and what to do about it."""

    name: str
    ok: bool
    detail: str = ""


def findings() -> Iterator[Finding]:
    """Look at the database, the event store, the tables and the followers, in that order."""
    try:
        connection.ensure_connection()
        yield Finding("database", True)
        default_store().ping()
        yield Finding("event store", True)
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
        yield Finding("tables", not missing, "run `manage.py migrate`" if missing else "")
        if missing:
            return
        for each in lag(default_store(), now=datetime.now(UTC)):
            fine = not each.error and each.seconds <= LAG_SECONDS_MAX
            behind = f"{each.seconds:.0f} s behind" if each.seconds >= 1 else ""
            yield Finding(f"follower {each.name}", fine, each.error or behind)
    except (DatabaseError, StoreError) as lost:
        yield Finding("connection", False, str(lost).strip())


def healthz(request: HttpRequest) -> HttpResponse:
    """Answer that this process answers."""
    return JsonResponse({"status": "up"})


def readyz(request: HttpRequest) -> HttpResponse:
    """Answer 200 when the site can do its work, else 503 with what is wrong."""
    found = list(findings())
    wrong = [finding for finding in found if not finding.ok]
    body = {
        "status": "not ready" if wrong else "ready",
        "checks": {f.name: f.detail or ("ok" if f.ok else "failed") for f in found},
    }
    return JsonResponse(body, status=503 if wrong else 200)


def metrics(request: HttpRequest) -> HttpResponse:
    """Answer in Prometheus' text format; read from the store at each scrape, so never stale."""
    registry = CollectorRegistry()
    head = Gauge("offpeak_event_head", "Last position of the event store", registry=registry)
    behind = Gauge(
        "offpeak_follower_lag_seconds",
        "Age of the oldest event that was not read",
        ["follower"],
        registry=registry,
    )
    stopped = Gauge("offpeak_follower_stopped", "1 if failed", ["follower"], registry=registry)
    store = default_store()
    head.set(store.head())
    for each in lag(store, now=datetime.now(UTC)):
        behind.labels(each.name).set(each.seconds)
        stopped.labels(each.name).set(1 if each.error else 0)
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
