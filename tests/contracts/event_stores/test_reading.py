"""Reads: one stream in version order, the whole log in position order, filtered by type."""

from __future__ import annotations

from uuid import uuid4

import pytest

from ledger.domain.event import Event
from ledger.eventstore.port import Expect, NewEvent, Position
from tests.contracts.event_stores.given import (
    BY,
    FootNoted,
    Noted,
    NotedBesides,
    NotedLoudly,
    Rig,
    a_stream,
    note,
    notes,
    texts,
)


def put(rig: Rig, *events: Event) -> None:
    rig.store.append(
        a_stream(), [NewEvent(uuid4(), event) for event in events], expected=Expect.ANY, by=BY
    )


def test_an_unknown_stream_is_empty(rig: Rig) -> None:
    assert list(rig.store.read_stream(a_stream())) == []


@pytest.mark.parametrize("after", [0, 1, 4, 5, 6])
def test_a_stream_can_be_read_after_any_version(rig: Rig, after: int) -> None:
    stream = a_stream()
    rig.put(stream, notes(5))

    read = rig.store.read_stream(stream, after_version=after)

    assert [each.version for each in read] == list(range(after + 1, 6))


def test_a_long_stream_is_read_to_its_end(rig: Rig) -> None:
    stream = a_stream()
    for _part in range(3):
        rig.put(stream, notes(700))

    read = rig.store.read_stream(stream)

    assert [each.version for each in read] == list(range(1, 2101))


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_of_any_size_hold_every_event_once(rig: Rig, limit: int) -> None:
    for index in range(4):
        rig.put(a_stream(), [note(f"{index}a"), note(f"{index}b")])

    found, position, caught_up = [], rig.start, False
    while not caught_up:
        page = rig.store.read_all(after=position, limit=limit)
        assert len(page.events) <= limit
        found += texts(page.events)
        position, caught_up = page.next_position, page.caught_up

    assert found == ["0a", "0b", "1a", "1b", "2a", "2b", "3a", "3b"]
    assert position == rig.store.head()


def test_a_page_after_the_head_is_empty_and_stays_there(rig: Rig) -> None:
    rig.put(a_stream(), notes(1))
    head = rig.store.head()

    page = rig.store.read_all(after=head)

    assert (list(page.events), page.next_position, page.caught_up) == ([], head, True)


def test_a_filter_takes_exactly_the_types_it_names(rig: Rig) -> None:
    put(rig, Noted(text="a"), NotedLoudly(text="b"), FootNoted(text="c"), NotedBesides(text="d"))

    def found(*kinds: type[Event]) -> list[str]:
        return texts(rig.since_start(only=frozenset(kind.name for kind in kinds)))

    assert found(Noted) == ["a"]
    assert found(NotedLoudly) == ["b"]
    assert found(FootNoted) == ["c"]
    assert found(Noted, FootNoted) == ["a", "c"]
    assert found(NotedBesides, NotedLoudly) == ["b", "d"]
    assert found(Noted, NotedLoudly, FootNoted, NotedBesides) == ["a", "b", "c", "d"]


def test_a_filter_of_no_types_takes_nothing_and_moves_to_the_head(rig: Rig) -> None:
    put(rig, Noted(text="a"))

    page = rig.store.read_all(after=rig.start, only=frozenset())

    assert (list(page.events), page.next_position) == ([], rig.store.head())


def test_a_filtered_page_moves_over_the_events_it_leaves_out(rig: Rig) -> None:
    put(rig, Noted(text="wanted"), *(NotedLoudly(text="noise") for _ in range(50)))

    page = rig.store.read_all(after=rig.start, limit=10, only=frozenset({Noted.name}))

    assert texts(page.events) == ["wanted"]
    assert page.caught_up
    assert page.next_position == rig.store.head()


def test_full_filtered_pages_continue_where_they_ended(rig: Rig) -> None:
    for index in range(6):
        put(rig, Noted(text=str(index)), NotedLoudly(text="noise"))
    only = frozenset({Noted.name})

    first = rig.store.read_all(after=rig.start, limit=4, only=only)
    second = rig.store.read_all(after=first.next_position, limit=4, only=only)

    assert texts(first.events) == ["0", "1", "2", "3"]
    assert not first.caught_up
    assert texts(second.events) == ["4", "5"]
    assert second.caught_up


def test_reading_resumes_after_every_position(rig: Rig) -> None:
    for index in range(3):
        rig.put(a_stream(), [note(f"{index}a"), note(f"{index}b")])
    recorded = rig.since_start()

    for index, each in enumerate(recorded, start=1):
        page = rig.store.read_all(after=each.position)
        assert [rest.id for rest in page.events] == [rest.id for rest in recorded[index:]]


def test_a_position_survives_being_written_down(rig: Rig) -> None:
    rig.put(a_stream(), [note("a")])
    written = str(rig.store.head())
    rig.put(a_stream(), [note("b")])

    page = rig.another().read_all(after=Position(int(written)))

    assert texts(page.events) == ["b"]


def test_two_processes_see_the_same_records(rig: Rig) -> None:
    rig.put(a_stream(), notes(3))

    theirs = rig.another().read_all(after=rig.start)

    assert list(theirs.events) == rig.since_start()
