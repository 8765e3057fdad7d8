"""Several appends in one: in the order given, up to the first that fails."""

from __future__ import annotations

import pytest

from ledger.eventstore.port import (
    NO_STREAM,
    EventStore,
    NewEvent,
    StreamMoved,
    Write,
)
from tests.contracts.event_stores.given import BY, Rig, a_stream, notes


def texts(store: EventStore, stream: str) -> list[object]:
    return [each.event for each in store.read_stream(stream)]


def asked(stream: str, events: list[NewEvent], expected: int = NO_STREAM) -> Write:
    return Write(stream, events, expected, BY)


def test_all_are_written_in_the_order_given(rig: Rig) -> None:
    streams, events = [a_stream() for _ in range(3)], [notes(2), notes(1), notes(3)]

    appended = rig.store.append_each(
        [asked(stream, each) for stream, each in zip(streams, events, strict=True)]
    )

    assert [each.version for each in appended] == [2, 1, 3]
    positions = [each.position for each in appended]
    assert positions == sorted(positions)
    for stream, each in zip(streams, events, strict=True):
        assert texts(rig.store, stream) == [new.event for new in each]


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_those_after_one_that_moved_are_not_written(rig: Rig, moved: int) -> None:
    streams, events = [a_stream() for _ in range(3)], [notes(1), notes(1), notes(1)]
    rig.put(streams[moved], notes(1))

    with pytest.raises(StreamMoved) as refused:
        rig.store.append_each(
            [asked(stream, each) for stream, each in zip(streams, events, strict=True)]
        )

    assert refused.value.stream == streams[moved]
    written = [texts(rig.store, stream) for stream in streams]
    assert [len(each) for each in written] == [1] * (moved + 1) + [0] * (2 - moved)


def test_again_it_goes_on_where_it_ended(rig: Rig) -> None:
    streams, events = [a_stream() for _ in range(3)], [notes(1), notes(2), notes(1)]
    first = rig.store.append(streams[0], events[0], expected=NO_STREAM, by=BY)

    appended = rig.store.append_each(
        [asked(stream, each) for stream, each in zip(streams, events, strict=True)]
    )

    assert (appended[0].position, appended[0].deduplicated) == (first.position, True)
    assert [len(texts(rig.store, stream)) for stream in streams] == [1, 2, 1]
