"""Repeats: an append whose reply was lost is asked for again with the same event ids."""

from __future__ import annotations

import pytest

from ledger.eventstore.port import (
    NO_STREAM,
    EventIdConflict,
    EventStore,
    Expect,
    NewEvent,
    StreamMoved,
)
from tests.contracts.event_stores.conftest import POSTGRES
from tests.contracts.event_stores.given import BY, Noted, Rig, a_stream, note, notes


def ids_in(store: EventStore, stream: str) -> list[object]:
    return [each.id for each in store.read_stream(stream)]


@pytest.mark.parametrize("expected", [NO_STREAM, 3, Expect.ANY])
def test_a_repeat_changes_nothing_whatever_version_it_expects(
    rig: Rig, expected: int | Expect
) -> None:
    stream, events = a_stream(), notes(3)
    first = rig.store.append(stream, events, expected=NO_STREAM, by=BY)

    again = rig.store.append(stream, events, expected=expected, by=BY)

    assert (again.version, again.position) == (first.version, first.position)
    assert again.deduplicated
    assert ids_in(rig.store, stream) == [new.id for new in events]


@pytest.mark.parametrize("expected", [1, 2, 5, 6])
def test_a_repeat_is_recognised_after_others_have_written(rig: Rig, expected: int) -> None:
    stream, events = a_stream(), notes(2)
    rig.put(stream, notes(1))
    first = rig.store.append(stream, events, expected=1, by=BY)
    rig.put(stream, notes(3))

    again = rig.store.append(stream, events, expected=expected, by=BY)

    assert (again.version, again.position, again.deduplicated) == (3, first.position, True)
    assert len(ids_in(rig.store, stream)) == 6


@pytest.mark.parametrize("expected", [NO_STREAM, 2, 3])
def test_a_repeat_by_another_process_is_recognised(rig: Rig, expected: int) -> None:
    stream, events, other = a_stream(), notes(2), rig.another()
    other.append(stream, notes(1), expected=NO_STREAM, by=BY)
    first = rig.store.append(stream, events, expected=1, by=BY)

    again = other.append(stream, events, expected=expected, by=BY)

    assert (again.version, again.position, again.deduplicated) == (3, first.position, True)
    assert len(ids_in(rig.store, stream)) == 3


def test_a_repeat_that_decided_differently_returns_what_was_recorded_first(rig: Rig) -> None:
    stream, first = a_stream(), note("first")
    rig.store.append(stream, [first], expected=NO_STREAM, by=BY)

    rig.store.append(stream, [NewEvent(first.id, Noted(text="other"))], expected=1, by=BY)

    [recorded] = rig.store.read_stream(stream)
    assert recorded.event == first.event


def test_an_append_that_mixes_known_and_new_ids_is_refused(rig: Rig) -> None:
    stream, known = a_stream(), note()
    rig.store.append(stream, [known], expected=NO_STREAM, by=BY)

    for events in ([known, note()], [note(), known]):
        with pytest.raises(EventIdConflict):
            rig.store.append(stream, events, expected=1, by=BY)

    assert ids_in(rig.store, stream) == [known.id]


def test_known_ids_in_another_order_are_refused(rig: Rig) -> None:
    stream, events = a_stream(), notes(2)
    rig.store.append(stream, events, expected=NO_STREAM, by=BY)

    with pytest.raises(EventIdConflict):
        rig.store.append(stream, events[::-1], expected=2, by=BY)


def test_one_id_twice_in_an_append_is_refused(rig: Rig) -> None:
    stream, event = a_stream(), note()

    with pytest.raises(EventIdConflict):
        rig.store.append(stream, [event, event], expected=NO_STREAM, by=BY)

    assert ids_in(rig.store, stream) == []


@pytest.mark.parametrize("kept", ["memory", POSTGRES])
def test_an_id_of_another_stream_is_refused(kept: str, request: pytest.FixtureRequest) -> None:
    """EventStoreDB keeps no index of ids over all streams, so there it cannot be told."""
    rig: Rig = request.getfixturevalue(kept)
    stream, event = a_stream(), note()
    rig.put(a_stream(), [event])

    with pytest.raises(EventIdConflict):
        rig.store.append(stream, [event], expected=NO_STREAM, by=BY)

    assert ids_in(rig.store, stream) == []


def test_new_events_at_an_old_version_are_no_repeat(rig: Rig) -> None:
    stream = a_stream()
    rig.store.append(stream, notes(2), expected=NO_STREAM, by=BY)

    with pytest.raises(StreamMoved):
        rig.store.append(stream, notes(2), expected=NO_STREAM, by=BY)
