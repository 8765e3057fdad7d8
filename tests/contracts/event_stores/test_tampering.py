"""Nothing recorded may change: the database refuses, and `verify` finds what got past it."""

from __future__ import annotations

from uuid import UUID

import pytest
from django.db import DatabaseError, connection, transaction

from ledger.eventstore import chain
from ledger.eventstore.port import Recorded
from tests.contracts.event_stores.conftest import behind_the_trigger
from tests.contracts.event_stores.given import BY, Rig, a_stream, note, notes, texts

FORGED = '{"text":"forged"}'


def fill(rig: Rig) -> list[Recorded]:
    """Record three streams, taking turns, and return it all."""
    streams = [a_stream() for _stream in range(3)]
    for version in range(4):
        for stream in streams:
            rig.store.append(stream, [note(f"{version}")], expected=version, by=BY)
    return rig.since_start()


def test_an_untouched_store_passes_verification(rig: Rig) -> None:
    recorded = fill(rig)

    report = rig.store.verify()

    assert report.ok, report.detail
    assert report.checked >= len(recorded)
    assert report.head == rig.store.head()


def test_every_record_carries_the_hash_that_the_next_one_continues(rig: Rig) -> None:
    recorded = fill(rig)

    hashes = [each.hash for each in recorded]

    assert len(set(hashes)) == len(recorded)
    assert all(hash_ is not None and len(hash_) == 32 for hash_ in hashes)


@pytest.mark.parametrize("index", [0, 5, 11])
def test_changed_contents_are_found_where_they_are(damageable: Rig, index: int) -> None:
    recorded = fill(damageable)
    victim = recorded[index]
    assert damageable.tamper is not None

    damageable.tamper(victim.stream, victim.version, FORGED)

    report = damageable.another().verify()
    assert texts(damageable.store.read_stream(victim.stream))[victim.version - 1] == "forged"
    assert not report.ok
    assert report.broken_at == victim.position
    assert report.checked == index


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("data", b"{}"),
        ("meta", b'{"actor":"user:somebody-else"}'),
        ("type", "contract.noted-loudly"),
        ("schema_version", 2),
        ("stream", "another-stream"),
        ("version", 99),
        ("event_id", "00000000-0000-0000-0000-000000000001"),
        ("hash", bytes(32)),
    ],
)
def test_a_change_of_any_hashed_column_is_found(
    postgres: Rig, column: str, value: str | bytes | int
) -> None:
    victim = fill(postgres)[5]

    behind_the_trigger(f"UPDATE es_event SET {column} = %s WHERE position = 6", value)

    assert postgres.store.verify().broken_at == victim.position


@pytest.mark.django_db(transaction=True)
def test_an_event_taken_out_of_the_middle_is_found(postgres: Rig) -> None:
    fill(postgres)

    behind_the_trigger("DELETE FROM es_event WHERE position = 6")

    assert postgres.store.verify().broken_at == 7


@pytest.mark.django_db(transaction=True)
def test_two_events_exchanged_are_found(postgres: Rig) -> None:
    fill(postgres)

    behind_the_trigger("UPDATE es_event SET position = -1 WHERE position = 6")
    behind_the_trigger("UPDATE es_event SET position = 6 WHERE position = 7")
    behind_the_trigger("UPDATE es_event SET position = 7 WHERE position = -1")

    assert postgres.store.verify().broken_at == 6


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE es_event SET data = ''",
        "UPDATE es_event SET data = '' WHERE position = 1",
        "DELETE FROM es_event",
        "DELETE FROM es_event WHERE false",
        "TRUNCATE es_event",
        "INSERT INTO es_event SELECT * FROM es_event"
        " ON CONFLICT (position) DO UPDATE SET data = ''",
    ],
)
def test_the_database_refuses_to_change_what_is_recorded(postgres: Rig, statement: str) -> None:
    before = fill(postgres)

    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)

    assert postgres.since_start() == before


@pytest.mark.django_db(transaction=True)
def test_the_database_computes_the_same_hashes_as_the_program(postgres: Rig) -> None:
    """Both stores that chain over all positions agree, so a log can move from one to the other."""
    recorded = fill(postgres)
    previous = chain.GENESIS

    for each in recorded:
        previous = chain.link(
            previous,
            position=each.position,
            stream=each.stream,
            version=each.version,
            event_id=each.id,
            type_name=each.type,
            schema_version=each.schema_version,
            meta=each.meta_data,
            data=each.data,
        )
        assert each.hash == previous


def test_bytes_moved_from_one_field_to_the_next_change_the_hash() -> None:
    def link(stream: str, type_name: str) -> bytes:
        return chain.link(
            chain.GENESIS,
            position=1,
            stream=stream,
            version=1,
            event_id=UUID(int=1),
            type_name=type_name,
            schema_version=1,
            meta=b"",
            data=b"",
        )

    assert link("ab", "c") != link("a", "bc")


@pytest.mark.django_db(transaction=True)
def test_a_rollback_takes_the_append_with_it(postgres: Rig) -> None:
    stream, store = a_stream(), postgres.store

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        store.append(stream, notes(2), expected=0, by=BY)
        _ = 1 // 0

    assert list(store.read_stream(stream)) == []
    assert store.append(stream, notes(1), expected=0, by=BY).version == 1
    assert store.verify().ok
