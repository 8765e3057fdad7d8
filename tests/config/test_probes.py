"""Probes of the process are answered beside its threads, and nothing by a clock that is wrong."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import MutableMapping
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from config.operations.health import findings
from config.operations.measuring import exposition, kind_of
from config.processes.clock import Clock
from config.web import probes
from config.web.probes import Probes, Ready
from tests.conftest import NOON


async def held_up(scope: MutableMapping[str, Any], receive: object, send: object) -> None:
    """Never answer, as an application whose threads all wait for the database."""
    await asyncio.Event().wait()


def asked(
    path: str, *, method: str = "GET", seconds: float = 5.0
) -> list[MutableMapping[str, Any]]:
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "path": path, "method": method, "headers": [(b"host", b"10.1.2.3")]}
    asyncio.run(asyncio.wait_for(Probes(held_up)(scope, receive, send), seconds))
    return sent


def test_a_process_whose_threads_are_all_held_up_says_that_it_is_up() -> None:
    start, body = asked("/healthz")

    assert start["status"] == 200
    assert body["body"] == b'{"status": "up"}'


def test_a_probe_may_ask_for_the_head_alone() -> None:
    start, body = asked("/healthz", method="HEAD")

    assert start["status"] == 200
    assert body["body"] == b""


def test_a_readiness_that_does_not_come_is_no(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def hangs() -> tuple[int, dict[str, object]]:
        released.wait(30)
        return 200, {}

    monkeypatch.setattr(probes, "READY_SECONDS_MAX", 0.05)
    waiting = Ready(hangs)
    monkeypatch.setattr(probes, "Ready", lambda _: waiting)
    try:
        start, body = asked("/readyz")
    finally:
        released.set()

    assert start["status"] == 503
    assert "does not answer" in body["body"].decode()


@pytest.fixture
def wrong_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [NOON, NOON + timedelta(hours=1)]
    clock = Clock(wall=lambda: times.pop(0) if times[1:] else times[0], elapsed=lambda: 0.0)
    monkeypatch.setattr(probes, "clock", clock)


def test_requests_are_refused_while_the_clock_is_contradicted(wrong_clock: None) -> None:
    start, body = asked("/api/v1/bids", method="POST")

    assert start["status"] == 503
    assert (b"retry-after", b"30") in start["headers"]
    problem = json.loads(body["body"])
    assert problem["code"] == "clock-unsure"
    assert "3600 s ahead" in problem["details"]["doubt"]


def test_people_are_told_in_words_while_the_clock_is_contradicted(wrong_clock: None) -> None:
    start, body = asked("/leases")

    assert start["status"] == 503
    assert "Not available at the moment" in body["body"].decode()


@pytest.mark.django_db(transaction=True)
def test_a_database_that_takes_no_writes_is_not_ready() -> None:
    assert all(found.ok for found in findings() if found.name in ("database", "connection"))
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
    try:
        wrong = [found for found in findings() if not found.ok]
    finally:
        connection.close()

    assert [found.public for found in wrong] == ["the database is read-only"]


@pytest.mark.django_db
def test_metrics_have_loops_followers_queues_and_requests() -> None:
    asked("/healthz")

    text = exposition()[0].decode()

    for family in (
        "offpeak_store_up 1.0",
        "offpeak_clock_doubted 0.0",
        "offpeak_event_head",
        "offpeak_follower_lag_seconds",
        "offpeak_loop_last_success_timestamp_seconds",
        "offpeak_loop_failures",
        "offpeak_bids_open 0.0",
        "offpeak_meters_lagging 0.0",
        "offpeak_database_connections_max",
        'offpeak_request_seconds_count{kind="probes"}',
        'offpeak_requests_total{kind="probes",status="2xx"}',
    ):
        assert family in text, family


def test_addresses_of_strangers_make_no_families_of_their_own() -> None:
    assert {kind_of(path) for path in ("/x", "/api/v1/bids", "/api/v1/none", "/docs/a/")} == {
        "pages",
        "bids",
        "api",
    }
