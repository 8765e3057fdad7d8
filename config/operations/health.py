"""What machines ask the site: is it up, is it ready, how is it doing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse

from config.models import LoopRun
from config.operations.measuring import UNCHARGED_AFTER, exposition
from config.processes import fitness
from config.processes.clock import clock
from config.processes.kernels import COMPILED, FAILED
from config.security.signing_keys import disagreement
from ledger import parking
from ledger.eventstore import default_store
from ledger.eventstore.port import StoreError
from ledger.following import lag
from ledger.funding import setup
from ledger.outages import outage_of
from marketplace.beside import LOST
from metering import parts
from metering.queries.progress import lagging_meters, uncharged_windows

LAG_SECONDS_MAX = 60.0
"""How old the oldest unread event of a follower may be before the site is called not ready."""
LOOP_FAILURES_MAX = 3
"""Passes in a row that a loop may fail at: one or two are an outage that is over."""
PROBE_SECONDS = 2
PROBE_BYTES = 65_536
"""More than any page of a file has left: a disk that is full shows only where a file must grow."""

LOOK = '(/docs/payments/, "When calls fail")'
_WRITE = "INSERT INTO site_probe (at, filler) VALUES (clock_timestamp(), %s)"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: fine or not, and what to do about it.

    public: what anybody may read of it, who asks `/readyz`; the rest is for operators.
    """

    name: str
    ok: bool
    detail: str = ""
    public: str = ""


def findings() -> Iterator[Finding]:
    """Look at the database, the event store, the tables and the followers, in that order."""
    try:
        with _soon_over():
            yield from _database()
            default_store().ping()
            yield Finding("event store", True)
            missing = _missing_migrations()
            yield Finding("tables", not missing, "run `manage.py migrate`" if missing else "")
            if missing:
                return
            newer = fitness.newer_data()
            yield Finding("version", not newer, newer, "the data is newer" if newer else "")
            clock.compare()
            doubt = clock.doubt()
            yield Finding("clock", not doubt, doubt, doubt)
            told, at_fault = disagreement()
            yield Finding("session key", not at_fault, told, told)
            yield from _followers()
            yield from _loops()
    except (DatabaseError, StoreError) as lost:
        outage = outage_of(lost)
        words = outage.words if outage else "the store cannot be reached"
        yield Finding("connection", False, str(lost).strip(), words)


@contextmanager
def _soon_over() -> Iterator[None]:
    """Let no question of a probe take as long as a page may."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('statement_timeout')")
        row = cursor.fetchone()
        cursor.execute("SELECT set_config('statement_timeout', %s, false)", [f"{PROBE_SECONDS}s"])
    try:
        yield
    finally:
        if connection.connection is not None and not connection.connection.closed and row:
            with connection.cursor() as cursor:
                cursor.execute("SELECT set_config('statement_timeout', %s, false)", [row[0]])


def _database() -> Iterator[Finding]:
    """Write as requests do: a database that answers may take no writes, or have no room for them.

    The table is emptied each time, so that its file has to grow, and nothing is left to clean up.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('site_probe') IS NOT NULL")
        row = cursor.fetchone()
        if row and row[0] and not connection.in_atomic_block:
            cursor.execute("BEGIN")
            try:
                cursor.execute("SET LOCAL lock_timeout = '1s'")
                cursor.execute("TRUNCATE site_probe")
                cursor.execute(_WRITE, [os.urandom(PROBE_BYTES)])
                cursor.execute("COMMIT")
            except DatabaseError:
                cursor.execute("ROLLBACK")
                raise
    yield Finding("database", True)


def _missing_migrations() -> bool:
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def _followers() -> Iterator[Finding]:
    for each in lag(default_store(), now=datetime.now(UTC)):
        fine = not each.error and each.seconds <= LAG_SECONDS_MAX
        behind = f"{each.seconds:.0f} s behind" if each.seconds >= 1 else ""
        public = "stopped" if each.error else behind
        yield Finding(f"follower {each.name}", fine, each.error or behind, public)


def _loops() -> Iterator[Finding]:
    """Look at those that have ever been held: which of them an installation runs is its own."""
    for row in LoopRun.objects.order_by("name"):
        fine = row.failures < LOOP_FAILURES_MAX
        yield Finding(f"loop {row.name}", fine, row.error, "" if fine else "fails")


def warnings() -> Iterator[Finding]:
    """Look at what waits for long: nothing the site cannot work with, but people should look."""
    now = datetime.now(UTC)
    window = timedelta(seconds=settings.ENV.usage_window_seconds)
    lagging = len(lagging_meters(now=now, older_than=2 * window + UNCHARGED_AFTER))
    told = f"{lagging} leases are not rated: is a host silent?"
    yield Finding("usage is rated", not lagging, told if lagging else "", told if lagging else "")
    left = uncharged_windows(now=now, older_than=UNCHARGED_AFTER)
    told = f"{left} usage windows are not charged: the log of `run charges` says why"
    yield Finding("use is charged", not left, told if left else "", told if left else "")
    yield room_for_samples()
    given_up = parking.set_aside().count()
    told = f"{given_up} events are set aside: `manage.py parked` says why"
    told = told if given_up else ""
    yield Finding("events are reacted to", not given_up, told, told)
    yield payments_carried_out()
    yield compiled_kernels()
    rows = LoopRun.objects.filter(rounds__startswith=LOST).order_by("name")
    told = "; ".join(f"{row.name}: {row.rounds}" for row in rows)
    yield Finding("rounds come back", not told, told, told)


def room_for_samples() -> Finding:
    """Look if the samples of today and the next days have a part of their table."""
    lacking = [f"{day:%Y-%m-%d}" for day in parts.days_without_part(now=datetime.now(UTC))]
    told = f"none for {', '.join(lacking)}: the log of `run old-samples` says why"
    told = told if lacking else ""
    return Finding("room for samples", not lacking, told, told)


def payments_carried_out() -> Finding:
    """Look if anything that Stripe was asked, or told us, was given up: somebody has to look."""
    told = setup.given_up()
    public = "some were given up" if told else ""
    return Finding("card payments are carried out", not told, told and f"{told} {LOOK}", public)


def compiled_kernels() -> Finding:
    """Look if the engines decide by compiled kernels, or how far they are."""
    rows = [row for row in LoopRun.objects.order_by("name") if row.kernels not in ("", COMPILED)]
    told = "; ".join(f"{row.name}: {row.kernels}" for row in rows)
    failed = any(row.kernels.startswith(FAILED) for row in rows)
    meanwhile = "large rounds are searched less meanwhile (/docs/operating/)"
    return Finding("compiled kernels", not failed, f"{told}: {meanwhile}" if rows else "", told)


def readiness() -> tuple[int, dict[str, object]]:
    """Return a status and what `/readyz` answers with it."""
    found = list(findings())
    wrong = [finding for finding in found if not finding.ok]
    body: dict[str, object] = {
        "status": "not ready" if wrong else "ready",
        "checks": {f.name: f.public or ("ok" if f.ok else "failed") for f in found},
    }
    if not wrong:
        with suppress(DatabaseError):
            body["warnings"] = {f.name: f.public for f in warnings() if not f.ok}
    return (503 if wrong else 200), body


def healthz(request: HttpRequest) -> HttpResponse:
    """Answer that this process answers, for servers that do not run `config.web.probes`."""
    return JsonResponse({"status": "up"})


def readyz(request: HttpRequest) -> HttpResponse:
    """Answer 200 when the site can do its work, else 503 with what is wrong."""
    status, body = readiness()
    return JsonResponse(body, status=status)


def metrics(request: HttpRequest) -> HttpResponse:
    """Answer in Prometheus' text format; read from the store at each scrape, so never stale."""
    text, kind = exposition()
    return HttpResponse(text, content_type=kind)
