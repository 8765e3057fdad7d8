"""Many writers and a reader beside them: nothing lost, nothing twice, nothing out of order."""

from __future__ import annotations

import threading

import pytest
from django.db import connection, transaction

from ledger.eventstore.port import Expect, StreamMoved
from ledger.eventstore.postgres import PostgresStore
from tests.contracts.event_stores.given import (
    BY,
    PATIENCE_SECONDS,
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

WRITERS = 8
APPENDS_EACH = 40


def test_a_live_reader_loses_nothing_beside_eight_writers(rig: Rig) -> None:
    own = [a_stream() for _writer in range(WRITERS)]
    shared = a_stream()

    def write(writer: int) -> None:
        store = rig.another()
        for turn in range(APPENDS_EACH):
            text = f"{writer}/{turn}"
            store.append(own[writer], [note(text)], expected=turn, by=BY)
            if turn % 4 == 0:
                store.append(shared, [note(f"{text} shared")], expected=Expect.ANY, by=BY)

    expected = WRITERS * (APPENDS_EACH + APPENDS_EACH // 4)
    with following(rig).running() as follower:
        in_threads([lambda writer=writer: write(writer) for writer in range(WRITERS)])  # type: ignore[misc]  # a default binds the loop's value
        heard = [follower.next_event() for _event in range(expected)]
        recorded = rig.since_start()

    assert [each.id for each in heard] == [each.id for each in recorded]
    assert len(set(texts(heard))) == expected
    positions = [each.position for each in heard]
    assert positions == sorted(set(positions))
    for stream in (*own, shared):
        versions = [each.version for each in heard if each.stream == stream]
        assert versions == list(range(1, len(versions) + 1))
    assert rig.store.verify().ok


def test_of_writers_that_expect_the_same_version_one_wins(rig: Rig) -> None:
    stream = a_stream()
    outcomes: list[str] = []
    together = threading.Barrier(WRITERS)

    def write() -> None:
        store = rig.another()
        list(store.read_stream(stream))
        together.wait(PATIENCE_SECONDS)
        try:
            store.append(stream, notes(2), expected=0, by=BY)
            outcomes.append("won")
        except StreamMoved:
            outcomes.append("moved")

    in_threads([write] * WRITERS)

    assert sorted(outcomes) == ["moved"] * (WRITERS - 1) + ["won"]
    assert len(list(rig.store.read_stream(stream))) == 2


def test_writers_that_repeat_one_append_together_write_it_once(rig: Rig) -> None:
    stream, events = a_stream(), notes(3)
    positions: set[int] = set()
    together = threading.Barrier(WRITERS)

    def write() -> None:
        store = rig.another()
        together.wait(PATIENCE_SECONDS)
        positions.add(store.append(stream, events, expected=0, by=BY).position)

    in_threads([write] * WRITERS)

    assert positions == {rig.store.head()}
    assert [each.id for each in rig.store.read_stream(stream)] == [new.id for new in events]


@pytest.mark.django_db(transaction=True)
def test_a_plain_table_read_by_position_loses_the_event_that_commits_late() -> None:
    """Why `es_append` holds a lock: the naive store, and the interleaving that breaks it."""
    with apart_from_django() as slow, apart_from_django() as quick, apart_from_django() as reader:
        reader.execute(
            "CREATE TABLE naive_event"
            " (position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text NOT NULL)"
        )
        try:
            slow.execute("BEGIN")
            slow.execute("INSERT INTO naive_event (text) VALUES ('slow')")
            quick.execute("INSERT INTO naive_event (text) VALUES ('quick')")
            first = reader.execute("SELECT * FROM naive_event WHERE position > 0").fetchall()
            slow.execute("COMMIT")
            last_seen = first[-1][0]
            second = reader.execute(
                "SELECT * FROM naive_event WHERE position > %s", (last_seen,)
            ).fetchall()
        finally:
            slow.execute("COMMIT")
            reader.execute("DROP TABLE naive_event")

    assert first == [(2, "quick")]
    assert second == [], "the slow writer's event should have been lost"


@pytest.mark.django_db(transaction=True)
def test_the_postgres_store_makes_the_quick_writer_wait_for_the_slow_one(postgres: Rig) -> None:
    store = PostgresStore()

    def quick() -> None:
        try:
            PostgresStore().append(a_stream(), [note("quick")], expected=0, by=BY)
        finally:
            connection.close()

    writer = threading.Thread(target=quick)
    with apart_from_django() as watcher:
        with transaction.atomic():
            store.append(a_stream(), [note("slow")], expected=0, by=BY)
            writer.start()
            wait_for_a_waiting_append(watcher)
            before = watcher.execute("SELECT count(*) FROM es_event").fetchone()
        writer.join(PATIENCE_SECONDS)

    assert before == (0,)
    assert texts(postgres.since_start()) == ["slow", "quick"]
