"""What else a process needs may be away: that is told in one line, and made up for afterwards."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import InternalError, OperationalError, connection
from redis.exceptions import ConnectionError as RedisLost

from config.processes.loops import NotNow
from config.site.live import relay as live
from config.site.live.relay import Relay
from config.web.sockets import TRY_AGAIN_LATER, Sockets
from ledger.domain.ids import OfferId
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Expect, NewEvent
from ledger.eventstore.postgres import PostgresStore
from ledger.outages import outage_of
from ledger.rest.problems import TooManyRequests, outage_problem
from ledger.rest.throttling import take
from listings.domain.events import OfferWithdrawn
from tests.conftest import NOON, SOMEBODY


class LostLayer:
    """A channel layer whose Redis is away until `back`."""

    def __init__(self) -> None:
        self.back = False
        self.sent: list[str] = []

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        if not self.back:
            raise RedisLost("Error 111 connecting to 127.0.0.1:6379")
        self.sent.append(message["text"])


def test_what_was_written_while_redis_was_away_is_sent_when_it_is_back(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = LostLayer()
    monkeypatch.setattr(live, "get_channel_layer", lambda: layer)
    monkeypatch.setattr(live, "render_fragment", lambda events: f"{len(list(events))} lines")
    relay = Relay(shared=True)
    relay.run_once(store, NOON)
    withdraw(store)
    for _ in range(2):
        with pytest.raises(NotNow):
            relay.run_once(store, NOON)

    layer.back = True
    relay.run_once(store, NOON)

    assert layer.sent == ["1 lines"]


def withdraw(store: MemoryStore) -> None:
    event = OfferWithdrawn(offer_id=OfferId(uuid4()), at=NOON)
    store.append("offer-1", [NewEvent(uuid4(), event)], expected=Expect.ANY, by=SOMEBODY)


@pytest.mark.parametrize(
    "failure", [RedisLost("gone"), ConnectionResetError("gone"), OperationalError("gone")]
)
def test_a_socket_that_cannot_be_served_is_closed_for_a_later_try(failure: Exception) -> None:
    async def broken(scope: object, receive: object, send: object) -> None:
        raise failure

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    scope = {"type": "websocket", "path": "/ws/market"}
    asyncio.run(Sockets(broken)(scope, receive, send))

    assert [each["type"] for each in sent] == ["websocket.accept", "websocket.close"]
    assert sent[-1]["code"] == TRY_AGAIN_LATER


def test_a_fault_of_a_socket_is_no_outage() -> None:
    async def broken(scope: object, receive: object, send: object) -> None:
        raise KeyError("a fault")

    async def nothing(*_: object) -> None:
        return None

    with pytest.raises(KeyError):
        asyncio.run(Sockets(broken)({"path": "/"}, nothing, nothing))


@pytest.mark.django_db
def test_what_a_clock_far_ahead_has_left_in_a_bucket_is_not_waited_for() -> None:
    ahead = NOON + timedelta(hours=1)
    take("token:a", per_minute=2, now=ahead)
    take("token:a", per_minute=2, now=ahead)

    assert take("token:a", per_minute=2, now=NOON).remaining == 1
    assert take("token:a", per_minute=2, now=NOON).remaining == 0
    with pytest.raises(TooManyRequests):
        take("token:a", per_minute=2, now=NOON)


@pytest.mark.django_db
def test_a_clock_that_is_a_little_behind_fills_nothing_twice() -> None:
    for back in range(2):
        take("token:a", per_minute=2, now=NOON - timedelta(seconds=5 * back))
    with pytest.raises(TooManyRequests):
        take("token:a", per_minute=2, now=NOON + timedelta(seconds=1))


@pytest.mark.django_db
def test_a_read_only_database_is_an_outage_by_every_way() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
        cursor.execute("SET transaction_read_only = on")
        with pytest.raises(OperationalError) as failed:
            cursor.execute("INSERT INTO ledger_tokenuse VALUES (gen_random_uuid(), now())")

    outage = outage_of(failed.value)
    assert outage is not None
    assert outage.cause == "read-only"
    assert outage.nothing_written
    told = outage_problem(failed.value)
    assert told is not None
    assert told.details["cause"] == "read-only"


@pytest.mark.django_db(transaction=True)
def test_a_statement_that_takes_too_long_is_an_outage_and_a_wrong_one_is_not() -> None:
    store = PostgresStore()
    store.ping()
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = '5ms'")
        try:
            with pytest.raises(OperationalError) as slow:
                cursor.execute("SELECT pg_sleep(1)")
        finally:
            cursor.execute("RESET statement_timeout")
        with pytest.raises(Exception, match="does not exist") as wrong:
            cursor.execute("SELECT nothing FROM nowhere")

    found = outage_of(slow.value)
    assert found is not None
    assert found.cause == "slow"
    assert outage_of(wrong.value) is None


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (psycopg.errors.DiskFull("no space left"), "full"),
        (psycopg.errors.TooManyConnections("too many"), "connections"),
        (psycopg.errors.AdminShutdown("shutting down"), "away"),
        (psycopg.errors.CannotConnectNow("starting up"), "away"),
        (psycopg.errors.LockNotAvailable("lock"), "busy"),
        (psycopg.errors.DeadlockDetected("deadlock"), "busy"),
        (psycopg.errors.IoError("could not read"), "broken"),
        (psycopg.errors.DataCorrupted("invalid page"), "broken"),
        (psycopg.errors.IdleInTransactionSessionTimeout("idle"), "slow"),
        (psycopg.errors.ConnectionException("lost"), "away"),
        (psycopg.InterfaceError("the connection is closed"), "away"),
    ],
)
def test_what_the_server_says_decides_by_whichever_name_it_comes(
    failure: psycopg.Error, cause: str
) -> None:
    wrapped = InternalError("wrapped")
    wrapped.__cause__ = failure

    for each in (failure, wrapped):
        found = outage_of(each)
        assert found is not None
        assert found.cause == cause


@pytest.mark.parametrize(
    "failure",
    [
        psycopg.errors.UniqueViolation("twice"),
        psycopg.errors.RaiseException("the event table is append-only"),
        psycopg.errors.UndefinedTable("no such table"),
        psycopg.errors.InsufficientPrivilege("permission denied"),
        ValueError("a fault"),
        None,
    ],
)
def test_what_is_our_own_fault_is_no_outage(failure: Exception | None) -> None:
    assert outage_of(failure) is None
