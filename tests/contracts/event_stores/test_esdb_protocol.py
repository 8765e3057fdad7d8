"""What only the EventStoreDB store has to get right, against the protocol server.

Some tests drive the bare client, to show what the store protects against: if a newer client or
server no longer behaves so, they fail and the protection can go.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from esdbclient import EventStoreDBClient, StreamState
from esdbclient import NewEvent as Proposed

from ledger.eventstore import chain, esdb_tails
from ledger.eventstore.esdb import EsdbStore
from ledger.eventstore.esdb_records import ForeignEvent, type_pattern
from ledger.eventstore.port import EventTooLarge, StoreError
from tests.contracts.event_stores.given import (
    BY,
    Noted,
    NotedLoudly,
    a_stream,
    in_threads,
    note,
    notes,
    texts,
)
from tests.esdb_protocol.process import ServerProcess

ROOT = Path(__file__).resolve().parents[3]
FORKING = """
import os, sys
from uuid import uuid4
from ledger.domain.event import Event
from ledger.eventstore.esdb import EsdbStore
from ledger.eventstore.port import Meta, NewEvent, StoreError

class Forked(Event, name="contract.forked"):
    who: str

def fork_and_append(who):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        event = NewEvent(uuid4(), Forked(who=who))
        store.append(f"fork-{who}", [event], expected=0, by=Meta(actor="user:1"))
    except StoreError:
        os._exit(3)
    os._exit(0)

store = EsdbStore(sys.argv[1])
assert [fork_and_append("first"), fork_and_append("second")] == [0, 0]
print(sorted(recorded.event.who for recorded in store.read_all().events))
print(os.waitstatus_to_exitcode(fork_and_append("third")))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose log may hold what we did not write."""
    server = ServerProcess(tmp_path_factory.mktemp("esdb") / "journal")
    yield server
    server.kill()


@pytest.fixture
def client(server: ServerProcess) -> EventStoreDBClient:
    return EventStoreDBClient(server.uri)


@pytest.fixture
def store(server: ServerProcess) -> EsdbStore:
    return EsdbStore(server.uri)


def bare(kind: str = Noted.name) -> Proposed:
    return Proposed(type=kind, data=b'{"text":"bare"}')


def test_the_server_writes_a_repeat_again_when_the_version_is_right(
    client: EventStoreDBClient,
) -> None:
    stream, event = a_stream(), bare()
    client.append_to_stream(stream, current_version=StreamState.NO_STREAM, events=[event])

    client.append_to_stream(stream, current_version=0, events=[event])

    assert [each.id for each in client.get_stream(stream)] == [event.id, event.id]


def test_the_server_recognises_a_repeat_where_it_was_expected(client: EventStoreDBClient) -> None:
    stream, event = a_stream(), bare()
    for _time in range(2):
        client.append_to_stream(stream, current_version=StreamState.NO_STREAM, events=[event])

    assert len(client.get_stream(stream)) == 1


def test_the_client_lets_look_alikes_through_a_filter_of_several_names(
    client: EventStoreDBClient,
) -> None:
    before = client.get_commit_position()
    for kind in (Noted.name, "other.thing", NotedLoudly.name):
        client.append_to_stream(a_stream(), current_version=StreamState.ANY, events=[bare(kind)])

    def found(*patterns: str) -> list[str]:
        read = client.read_all(commit_position=before, filter_include=patterns)
        return [each.type for each in read if (each.commit_position or 0) > before]

    assert found(Noted.name, "other.thing") == [Noted.name, "other.thing", NotedLoudly.name]
    only = frozenset({Noted.name, "other.thing"})
    assert found(type_pattern(only)) == [Noted.name, "other.thing"]


def test_a_store_not_yet_used_works_in_every_child_and_a_used_one_says_why_not(
    esdb_server: ServerProcess,
) -> None:
    forked = subprocess.run(
        [sys.executable, "-c", FORKING, esdb_server.uri],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert forked.stdout.splitlines() == ["['first', 'second']", "3"], forked.stderr


def test_a_reconnection_of_one_thread_does_not_cut_short_what_another_reads(
    esdb_server: ServerProcess,
) -> None:
    """The client closes the old connection under everybody who uses it, and says nothing."""
    store, stream = EsdbStore(esdb_server.uri), a_stream()
    store.append(stream, notes(2_000), expected=0, by=BY)
    lengths: list[int] = []
    read_enough = threading.Event()

    def read() -> None:
        try:
            for _time in range(5):
                lengths.append(len(store.read_all(limit=5_000).events))
        finally:
            read_enough.set()

    def reconnect() -> None:
        while not read_enough.wait(0.01):
            store._client.reconnect()

    in_threads([read, reconnect])

    assert lengths == [2_000] * 5


def test_a_read_of_the_log_that_is_refused_once_is_tried_again(
    esdb_server: ServerProcess,
) -> None:
    store = EsdbStore(esdb_server.uri)
    store.append(a_stream(), notes(3), expected=0, by=BY)
    esdb_server.faults(refuse_reads=1)

    assert store.verify().checked == 3


def test_system_events_are_not_delivered(store: EsdbStore, client: EventStoreDBClient) -> None:
    before, stream = store.head(), a_stream()
    client.set_stream_metadata(stream, metadata={"owner": "somebody"})
    store.append(stream, [note("a")], expected=0, by=BY)
    client.set_stream_metadata(stream, metadata={"owner": "somebody else"})

    page = store.read_all(after=before)

    assert texts(page.events) == ["a"]
    assert page.next_position == page.events[-1].position == store.head()


def test_the_metadata_of_an_event_is_readable_by_others(
    store: EsdbStore, client: EventStoreDBClient
) -> None:
    stream = a_stream()
    store.append(stream, [note("a"), note("b")], expected=0, by=BY)

    first, second = (json.loads(each.metadata) for each in client.get_stream(stream))

    assert first["meta"]["actor"] == BY.actor
    assert first["schema_version"] == 1
    assert first["previous"] == chain.GENESIS.hex()
    assert second["previous"] == first["hash"]


def test_an_event_of_somebody_else_stops_the_reader(esdb_server: ServerProcess) -> None:
    store, client = EsdbStore(esdb_server.uri), EventStoreDBClient(esdb_server.uri)
    store.append(a_stream(), notes(1), expected=0, by=BY)
    client.append_to_stream(
        "theirs", current_version=StreamState.ANY, events=[bare("theirs.thing")]
    )

    with pytest.raises(ForeignEvent, match=r"theirs\.thing"):
        store.read_all()
    assert len(store.read_all(only=frozenset({Noted.name})).events) == 1
    assert not store.verify().ok


def test_an_event_written_past_the_chain_is_found(esdb_server: ServerProcess) -> None:
    store, client = EsdbStore(esdb_server.uri), EventStoreDBClient(esdb_server.uri)
    stream = a_stream()
    store.append(stream, notes(2), expected=0, by=BY)
    copied = client.get_stream(stream)[1]
    forged = Proposed(
        id=uuid4(), type=copied.type, data=b'{"text":"forged"}', metadata=copied.metadata
    )
    client.append_to_stream(stream, current_version=1, events=[forged])

    report = store.verify()

    assert report.broken_at == store.head()
    assert f"{stream} version 3" in report.detail


def test_events_hidden_from_a_streams_readers_are_still_in_the_log(
    esdb_server: ServerProcess,
) -> None:
    store, client = EsdbStore(esdb_server.uri), EventStoreDBClient(esdb_server.uri)
    stream = a_stream()
    store.append(stream, notes(3), expected=0, by=BY)
    client.set_stream_metadata(stream, metadata={"$tb": 2})

    assert [each.version for each in store.read_stream(stream)] == [3]
    assert len(store.read_all().events) == store.verify().checked == 3


def test_a_tombstoned_stream_is_an_error_and_not_empty(
    store: EsdbStore, client: EventStoreDBClient
) -> None:
    stream = a_stream()
    store.append(stream, notes(1), expected=0, by=BY)
    client.tombstone_stream(stream, current_version=StreamState.ANY)

    with pytest.raises(StoreError, match="Deleted"):
        list(store.read_stream(stream))
    with pytest.raises(StoreError, match="Deleted"):
        store.append(stream, notes(1), expected=1, by=BY)


def test_an_append_over_the_servers_limit_is_too_large(store: EsdbStore) -> None:
    stream = a_stream()

    with pytest.raises(EventTooLarge):
        store.append(stream, [note("x" * 600_000), note("y" * 600_000)], expected=0, by=BY)

    assert store.append(stream, notes(1), expected=0, by=BY).version == 1


def test_the_chain_goes_on_over_streams_that_were_forgotten(
    esdb_server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(esdb_tails, "STREAMS_KEPT", 2)
    store, streams = EsdbStore(esdb_server.uri), [a_stream() for _stream in range(5)]

    for version in range(4):
        for stream in streams:
            store.append(stream, notes(1), expected=version, by=BY)

    report = store.verify()
    assert report.ok, report.detail
    assert report.checked == 20


def test_a_repeat_is_recognised_among_the_last_thousand_events(store: EsdbStore) -> None:
    stream, early = a_stream(), notes(2)
    store.append(stream, early, expected=0, by=BY)
    store.append(stream, notes(esdb_tails.IDS_KEPT - 2), expected=2, by=BY)

    again = store.append(stream, early, expected=esdb_tails.IDS_KEPT, by=BY)

    assert (again.version, again.deduplicated) == (2, True)


def test_a_cluster_address_is_understood(server: ServerProcess) -> None:
    store = EsdbStore(server.uri.replace("esdb://", "esdb+discover://"))

    assert store.append(a_stream(), notes(1), expected=0, by=BY).version == 1


def test_the_protocol_server_keeps_its_events_over_a_restart(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "journal")
    try:
        store = EsdbStore(server.uri)
        store.append(a_stream(), notes(5), expected=0, by=BY)
        before = store.read_all()
        server.kill()
        server.start()

        assert store.read_all() == before
        assert store.verify().ok
    finally:
        server.kill()
