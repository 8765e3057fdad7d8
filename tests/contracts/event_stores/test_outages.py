"""Lost servers, lost connections, lost replies: what is raised, and that trying again is safe."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar
from uuid import UUID

import psycopg
import pytest
from django.db import connection, transaction

from ledger.domain.event import Event
from ledger.eventstore import esdb
from ledger.eventstore.esdb import EsdbStore
from ledger.eventstore.port import (
    EventStore,
    Meta,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    record,
)
from tests.contracts.event_stores.given import (
    BY,
    PATIENCE_SECONDS,
    Noted,
    Rig,
    a_stream,
    apart_from_django,
    following,
    in_threads,
    note,
    notes,
    texts,
    wait_for_a_waiting_append,
)
from tests.esdb_protocol.process import ServerProcess

DROPS = 9  # more than the client tries by itself


class Notebook:
    STREAM: ClassVar[str] = "notebook"

    def __init__(self, texts: tuple[str, ...] = ()) -> None:
        self.texts = texts

    @classmethod
    def evolve(cls, state: Notebook | None, event: Event, /) -> Notebook:
        assert isinstance(event, Noted)
        return cls((*(state.texts if state else ()), event.text))


def calls_on(store: EventStore) -> list[Callable[[], object]]:
    stream = a_stream()
    return [
        store.ping,
        store.head,
        store.verify,
        lambda: list(store.read_stream(stream)),
        lambda: store.read_all(),
        lambda: store.append(stream, notes(1), expected=0, by=BY),
        lambda: next(store.subscribe(stop=threading.Event())),
    ]


def test_a_store_that_answers_pings(rig: Rig) -> None:
    rig.store.ping()


@pytest.mark.django_db(transaction=True)
def test_postgres_that_cannot_be_reached_is_unavailable_until_it_can(
    postgres: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    parameters = connection.get_connection_params()
    connection.close()
    with monkeypatch.context() as down:
        down.setattr(
            connection, "get_connection_params", lambda: {**parameters, "host": str(tmp_path)}
        )
        for call in calls_on(postgres.store):
            with pytest.raises(StoreUnavailable):
                call()

    assert postgres.store.append(a_stream(), notes(1), expected=0, by=BY).version == 1


@pytest.mark.django_db(transaction=True)
def test_a_postgres_connection_that_died_idle_is_replaced_before_it_is_used(postgres: Rig) -> None:
    stream, events = a_stream(), notes(2)
    postgres.put(stream, [note("a")])
    _end_backend(_backend_of_django())

    assert texts(postgres.store.read_stream(stream)) == ["a"]
    _end_backend(_backend_of_django())
    appended = postgres.store.append(stream, events, expected=1, by=BY)

    assert (appended.version, appended.deduplicated) == (3, False)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.django_db(transaction=True)
def test_an_append_whose_backend_dies_before_the_commit_writes_nothing(
    postgres: Rig, count: int
) -> None:
    stream, events = a_stream(), notes(count)
    raised: list[Exception] = []

    def write() -> None:
        try:
            postgres.store.append(stream, events, expected=0, by=BY)
        except StoreError as error:
            raised.append(error)

    with apart_from_django() as holder, apart_from_django() as watcher:
        holder.execute("BEGIN")
        holder.execute("SELECT pg_advisory_xact_lock(5121)")
        killer = threading.Thread(target=lambda: _end_backend(wait_for_a_waiting_append(watcher)))
        killer.start()
        in_threads([write])
        killer.join(PATIENCE_SECONDS)
        holder.execute("ROLLBACK")

    assert [type(error) for error in raised] == [OutcomeUnknown]
    assert list(postgres.store.read_stream(stream)) == []
    assert postgres.store.append(stream, events, expected=0, by=BY).version == count


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.django_db(transaction=True)
def test_an_append_whose_postgres_reply_is_lost_is_written_once(
    postgres: Rig, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    stream, events = a_stream(), notes(count)

    with monkeypatch.context() as lossy:
        lossy.setattr(psycopg.Cursor, "fetchone", _lose_the_reply)
        with pytest.raises(OutcomeUnknown):
            postgres.store.append(stream, events, expected=0, by=BY)
    repeated = postgres.store.append(stream, events, expected=0, by=BY)

    assert (repeated.version, repeated.deduplicated) == (count, True)
    assert [each.id for each in postgres.store.read_stream(stream)] == [new.id for new in events]


@pytest.mark.parametrize(
    ("count", "signature"),
    [
        (1, "es_append_one(text, bigint, uuid, text, int, bytea, bytea)"),
        (2, "es_append(text, bigint, uuid[], text[], int[], bytea[], bytea)"),
    ],
)
@pytest.mark.django_db(transaction=True)
def test_an_append_that_waits_too_long_for_another_is_unavailable(
    postgres: Rig, count: int, signature: str
) -> None:
    stream = a_stream()
    with apart_from_django() as holder:
        holder.execute(f"ALTER FUNCTION {signature} SET lock_timeout = '50ms'")
        try:
            holder.execute("BEGIN")
            holder.execute("SELECT pg_advisory_xact_lock(5121)")
            with pytest.raises(StoreUnavailable):
                postgres.store.append(stream, notes(count), expected=0, by=BY)
        finally:
            holder.execute("ROLLBACK")
            holder.execute(f"ALTER FUNCTION {signature} SET lock_timeout = '5s'")

    assert postgres.store.append(stream, notes(count), expected=0, by=BY).version == count


@pytest.mark.django_db(transaction=True)
def test_a_postgres_subscription_that_loses_its_listener_says_so(postgres: Rig) -> None:
    with following(postgres).running() as follower:
        follower.rest()
        with apart_from_django() as watcher:
            watcher.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND query = 'LISTEN es_event'"
            )

        with pytest.raises(StoreUnavailable):
            follower.rest(at=postgres.put(a_stream(), notes(1)))


def test_esdb_protocol_server_that_is_down_is_unavailable_until_it_is_back(
    esdb_server: ServerProcess,
) -> None:
    store, stream, events = EsdbStore(esdb_server.uri), a_stream(), notes(2)
    store.append(stream, events[:1], expected=0, by=BY)
    esdb_server.kill()

    for call in calls_on(store):
        with pytest.raises(StoreUnavailable):
            call()
    # It was sent, perhaps: this store remembers the stream and did not have to look first.
    with pytest.raises(OutcomeUnknown):
        store.append(stream, events[1:], expected=1, by=BY)
    esdb_server.start()

    assert store.append(stream, events[1:], expected=1, by=BY).version == 2
    assert [each.id for each in store.read_stream(stream)] == [new.id for new in events]
    assert store.verify().ok


@pytest.mark.parametrize("drops", [1, 2, 3])
def test_esdb_protocol_connection_cut_after_the_commit_is_healed_unseen(
    esdb_server: ServerProcess, drops: int
) -> None:
    store, stream, events = EsdbStore(esdb_server.uri), a_stream(), notes(3)
    esdb_server.faults(drop_replies=drops)

    appended = store.append(stream, events, expected=0, by=BY)

    assert appended.version == 3
    assert appended.position == store.head()
    assert [each.id for each in store.read_stream(stream)] == [new.id for new in events]


@pytest.mark.parametrize("expected", [1, 4])
def test_esdb_protocol_append_whose_reply_is_lost_is_written_once(
    esdb_server: ServerProcess, expected: int
) -> None:
    """With 4 the writer has loaded again: the real server would write the ids once more."""
    store, stream, events = EsdbStore(esdb_server.uri), a_stream(), notes(3)
    store.append(stream, notes(1), expected=0, by=BY)
    esdb_server.faults(drop_replies=DROPS)
    with pytest.raises(OutcomeUnknown):
        store.append(stream, events, expected=1, by=BY)
    esdb_server.faults(drop_replies=0)

    repeated = store.append(stream, events, expected=expected, by=BY)

    assert (repeated.version, repeated.deduplicated) == (4, True)
    assert repeated.position == store.head()
    assert len(list(store.read_stream(stream))) == 4


def test_esdb_protocol_server_that_dies_after_the_commit_has_written_once(
    esdb_server: ServerProcess,
) -> None:
    store, stream, events = EsdbStore(esdb_server.uri), a_stream(), notes(2)
    esdb_server.faults(die_after_commit=1)
    with pytest.raises(OutcomeUnknown):
        store.append(stream, events, expected=0, by=BY)
    esdb_server.wait_for_end()
    esdb_server.start()

    repeated = store.append(stream, events, expected=0, by=BY)

    assert (repeated.version, repeated.deduplicated) == (2, True)
    assert len(list(store.read_stream(stream))) == 2


def test_esdb_protocol_command_that_loses_its_reply_is_recorded_once(
    esdb_server: ServerProcess,
) -> None:
    store, by = EsdbStore(esdb_server.uri), Meta(actor="user:1", command_id=UUID(int=1))
    decisions: list[Notebook | None] = []

    def decide(notebook: Notebook | None) -> list[Event]:
        decisions.append(notebook)
        return [Noted(text="once")]

    esdb_server.faults(drop_replies=4)
    first = record(store, Notebook, "mine", decide, by=by)
    again = record(store, Notebook, "mine", decide, by=by)

    assert first == again == store.head()
    assert texts(store.read_stream("notebook-mine")) == ["once"]
    assert decisions == [None]


def test_esdb_protocol_append_slower_than_its_deadline_can_be_repeated(
    esdb_server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, stream, events = EsdbStore(esdb_server.uri), a_stream(), notes(2)
    store.ping()
    esdb_server.faults(delay_ms=600)
    with monkeypatch.context() as impatient:
        impatient.setattr(esdb, "APPEND_SECONDS", 0.3)
        with pytest.raises(OutcomeUnknown):
            store.append(stream, events, expected=0, by=BY)
    esdb_server.faults(delay_ms=0)

    repeated = store.append(stream, events, expected=0, by=BY)

    assert repeated.version == 2
    assert [each.id for each in store.read_stream(stream)] == [new.id for new in events]


def test_esdb_protocol_server_that_is_not_ready_is_unavailable(
    esdb_server: ServerProcess,
) -> None:
    store = EsdbStore(esdb_server.uri)
    esdb_server.faults(refuse_reads=DROPS)
    with pytest.raises(StoreUnavailable):
        store.read_all()
    esdb_server.faults(refuse_reads=0)

    assert store.read_all().caught_up


def test_esdb_protocol_subscription_ended_by_the_server_loses_nothing(
    esdb_server: ServerProcess,
) -> None:
    rig, stream = Rig(EsdbStore(esdb_server.uri), lambda: EsdbStore(esdb_server.uri)), a_stream()
    with following(rig).running() as follower:
        follower.rest()
        esdb_server.faults(end_subscriptions=1)
        for text in ("a", "b", "c"):
            rig.put(stream, [note(text)])

        assert texts(follower.next_event() for _event in range(3)) == ["a", "b", "c"]
        rig.put(stream, [note("d")])
        assert texts([follower.next_event()]) == ["d"]


def test_esdb_protocol_subscription_to_a_server_that_goes_down_says_so(
    esdb_server: ServerProcess,
) -> None:
    store = EsdbStore(esdb_server.uri)
    rig = Rig(store, lambda: EsdbStore(esdb_server.uri))
    with following(rig, idle_seconds=0.2).running() as follower:
        follower.rest()
        esdb_server.kill()

        with pytest.raises(StoreUnavailable):
            for _turn in range(100):
                follower.rest()


def _backend_of_django() -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def _end_backend(pid: int) -> None:
    with apart_from_django() as killer:
        killer.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))


def _lose_the_reply(cursor: psycopg.Cursor[object]) -> object:
    """Stand in for `fetchone`: by then the statement has committed."""
    _end_backend(cursor.connection.info.backend_pid)
    return cursor.connection.execute("SELECT 1")
