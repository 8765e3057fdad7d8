"""What who asks is told while the database is away, hangs, is read-only, and once it is back."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.journeys.installation import Installation, until
from tests.outages.server import Server

HELD_UP_SECONDS_MAX = 12.0
"""Within which somebody who asks a server that hangs has an answer: time limits of 1 and 2 s."""


@dataclass(frozen=True, slots=True)
class Told:
    status: int
    kind: str
    retry_after: str
    text: str

    @property
    def problem(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text)
        return found


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.remove()


@pytest.fixture(scope="module")
def market(server: Server) -> Iterator[Installation]:
    """Web and the read side, on a database that they only know by its address."""
    home = Path(tempfile.mkdtemp(prefix="offp"))
    market = Installation(
        home,
        {
            "DATABASE_URL": server.url,
            "OFFPEAK_DATABASE_STATEMENT_SECONDS": "1",
            "OFFPEAK_DATABASE_CONNECT_SECONDS": "2",
        },
    )
    try:
        market.found()
        for name in ("web", "read-side"):
            market.start(name)
        until(market.is_ready)
        until(lambda: ask(market, "/api/v1/me").status == 200)
        yield market
    finally:
        market.end_all()
        shutil.rmtree(home)


@pytest.fixture(autouse=True)
def well(market: Installation, server: Server) -> Iterator[None]:
    yield
    server.go_on()
    until(lambda: ask(market, "/api/v1/me").status == 200)


def ask(market: Installation, path: str, body: object = None, *, key: str = "") -> Told:
    """Ask as Grace."""
    headers = {"Authorization": f"Bearer {market.tokens['grace']}"}
    if body is not None:
        headers |= {"Content-Type": "application/json", "Idempotency-Key": key or str(uuid4())}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(market.url + path, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return _told(answer.status, answer)
    except urllib.error.HTTPError as answer:
        with answer:
            return _told(answer.code, answer)


def _told(status: int, answer: Any) -> Told:
    about = answer.headers
    text = answer.read().decode()
    return Told(status, about.get("Content-Type", ""), about.get("Retry-After", ""), text)


BID = {
    "query": "gpu=A100",
    "gpus": 1,
    "duration_seconds": 600,
    "limit": "3",
    "service_class": "on-demand",
    "workload": {"kind": "other", "command": ["true"]},
}


def refused(told: Told, *causes: str) -> None:
    """Hold an answer to what an outage must say."""
    assert told.status == 503, told
    assert told.kind == "application/problem+json"
    assert int(told.retry_after) >= 1
    assert told.problem["code"] == "store-busy"
    assert "same Idempotency-Key" in told.problem["advice"]
    assert told.problem["details"]["cause"] in causes


def test_a_server_that_hangs_is_told_as_such_and_the_process_is_alive(
    market: Installation, server: Server
) -> None:
    server.hang()
    began = time.monotonic()
    with ThreadPoolExecutor(20) as many:
        waiting = [many.submit(ask, market, "/api/v1/bids?limit=1") for _ in range(16)]
        placing = [many.submit(ask, market, "/api/v1/bids", BID) for _ in range(3)]
        asked = time.monotonic()
        assert ask(market, "/healthz").status == 200
        assert time.monotonic() - asked < 2.0
        for each in (*waiting, *placing):
            refused(each.result(), "hung", "away")
    assert time.monotonic() - began < HELD_UP_SECONDS_MAX

    server.go_on()

    until(lambda: ask(market, "/api/v1/bids", BID).status == 201)


def test_a_bid_of_an_outage_that_is_repeated_with_its_key_is_placed_once(
    market: Installation, server: Server
) -> None:
    key = str(uuid4())
    server.hang()
    refused(ask(market, "/api/v1/bids", BID, key=key), "hung", "away")
    server.go_on()

    first = until(lambda: placed(ask(market, "/api/v1/bids", BID, key=key)))

    assert placed(ask(market, "/api/v1/bids", BID, key=key)) == first


def placed(told: Told) -> str:
    return str(told.problem["id"]) if told.status == 201 else ""


def test_a_server_that_was_killed_is_told_as_away_until_it_is_back(
    market: Installation, server: Server
) -> None:
    server.kill()
    try:
        for path, body in (("/api/v1/me", None), ("/api/v1/leases", None), ("/api/v1/bids", BID)):
            refused(ask(market, path, body), "away")
        assert ask(market, "/healthz").status == 200
        until_not_ready(market, "cannot be reached")
    finally:
        server.start()

    until(lambda: ask(market, "/api/v1/bids", BID).status == 201)


def test_a_read_only_server_is_no_fault_of_ours_and_is_not_kept_to(
    market: Installation, server: Server
) -> None:
    server.refuse_writes(True)
    try:
        for path, body in (("/api/v1/me", None), ("/api/v1/bids", BID), ("/api/v1/lab", {})):
            refused(until_refused(market, path, body), "read-only")
        until_not_ready(market, "read-only")
    finally:
        server.refuse_writes(False)

    until(lambda: ask(market, "/api/v1/bids", BID).status == 201)


def until_not_ready(market: Installation, why: str) -> None:
    """What was found before, the outage of another test too, is told for a second more."""

    def asked() -> bool:
        told = ask(market, "/readyz")
        return told.status == 503 and why in told.text

    until(asked, why=lambda: ask(market, "/readyz"))


def until_refused(market: Installation, path: str, body: object) -> Told:
    """The setting reaches connections one by one."""

    def asked() -> Told | None:
        told = ask(market, path, body)
        return told if told.status == 503 else None

    told = until(asked)
    assert told is not None
    return told


def test_no_caller_meets_a_connection_that_the_server_ended_meanwhile(
    market: Installation, server: Server
) -> None:
    paths = ["/api/v1/me", "/api/v1/bids?limit=1", "/api/v1/leases", "/api/v1/offers"]
    with ThreadPoolExecutor(8) as many:
        for path in paths * 6:
            many.submit(ask, market, path)
    ended = server.end_connections()
    assert ended >= 4

    with ThreadPoolExecutor(8) as many:
        got = [many.submit(ask, market, path) for path in paths * 6]
        got += [many.submit(ask, market, "/api/v1/bids", BID) for _ in range(4)]

    assert {each.result().status for each in got} <= {200, 201}, [each.result() for each in got]


def test_while_others_have_every_connection_it_says_so(
    market: Installation, server: Server
) -> None:
    server.end_connections()
    held = server.take_all_connections()
    try:
        with ThreadPoolExecutor(12) as many:
            got = [many.submit(ask, market, "/api/v1/me") for _ in range(24)]
        for each in got:
            told = each.result()
            if told.status != 200:
                refused(told, "connections")
        assert any(each.result().status == 503 for each in got)
    finally:
        for connected in held:
            connected.close()
