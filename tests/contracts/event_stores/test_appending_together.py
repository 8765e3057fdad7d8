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


def test_what_is_written_twice_to_one_stream_stands_in_order(rig: Rig) -> None:
    first, second, others = a_stream(), a_stream(), [notes(2), notes(1), notes(1), notes(2)]
    rig.put(first, notes(1))

    appended = rig.store.append_each(
        [
            asked(first, others[0], 1),
            asked(second, others[1]),
            asked(first, others[2], 3),
            asked(second, others[3], 1),
        ]
    )

    assert [each.version for each in appended] == [3, 1, 4, 3]
    assert texts(rig.store, first)[1:] == [new.event for new in others[0] + others[2]]
    assert texts(rig.store, second) == [new.event for new in others[1] + others[3]]
    written = [each for each in rig.store.read_all(limit=1000).events if each.stream == second]
    assert [each.position for each in written][-1] == appended[-1].position
    assert rig.store.verify().ok


def test_a_version_that_skips_what_is_written_before_it_is_refused(rig: Rig) -> None:
    stream = a_stream()

    with pytest.raises(StreamMoved):
        rig.store.append_each([asked(stream, notes(2)), asked(stream, notes(1), 3)])

    assert len(texts(rig.store, stream)) == 2


def test_several_streams_are_read_at_once_each_from_its_own_version(rig: Rig) -> None:
    streams, unknown = [a_stream(), a_stream()], a_stream()
    for stream in streams:
        rig.put(stream, notes(3))

    found = rig.store.read_streams([(streams[0], 1), (streams[1], 0), (unknown, 0)])

    assert [each.version for each in found[streams[0]]] == [2, 3]
    assert list(found[streams[1]]) == list(rig.store.read_stream(streams[1]))
    assert list(found[unknown]) == []


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_whole_append_leaves_nothing_behind_where_one_stream_moved(rig: Rig, moved: int) -> None:
    streams, events = [a_stream() for _ in range(3)], [notes(1), notes(2), notes(1)]
    rig.put(streams[moved], notes(1))

    with pytest.raises(StreamMoved) as refused:
        rig.store.append_whole(
            [asked(stream, each) for stream, each in zip(streams, events, strict=True)]
        )

    assert refused.value.stream == streams[moved]
    lengths = [len(texts(rig.store, stream)) for stream in streams]
    if rig.store.appends_whole:
        assert lengths == [int(place == moved) for place in range(3)]
    else:
        assert lengths[moved + 1 :] == [0] * (2 - moved), "in order, up to the first that fails"


def test_a_write_without_events_holds_its_stream_where_it_is(rig: Rig) -> None:
    held, written = a_stream(), a_stream()
    rig.put(held, notes(2))

    appended = rig.store.append_whole([asked(held, [], 2), asked(written, notes(1))])

    assert [each.version for each in appended] == [2, 1]
    rig.put(held, notes(1))
    with pytest.raises(StreamMoved) as refused:
        rig.store.append_whole([asked(held, [], 2), asked(written, notes(1), 1)])
    assert refused.value.stream == held
    assert (len(texts(rig.store, held)), len(texts(rig.store, written))) == (3, 1)


def test_a_whole_append_whose_answer_was_lost_is_known_again(rig: Rig) -> None:
    streams, events = [a_stream() for _ in range(2)], [notes(2), notes(1)]
    writes = [asked(stream, each) for stream, each in zip(streams, events, strict=True)]
    first = rig.store.append_whole(writes)

    again = rig.store.append_whole(writes)

    assert [each.position for each in again] == [each.position for each in first]
    assert [len(texts(rig.store, stream)) for stream in streams] == [2, 1]


def test_a_whole_append_to_one_stream_twice_stands_in_order(rig: Rig) -> None:
    stream, others = a_stream(), [notes(2), notes(1)]

    appended = rig.store.append_whole([asked(stream, others[0]), asked(stream, others[1], 2)])

    assert [each.version for each in appended] == [2, 3]
    assert rig.store.verify().ok
