"""Appends: at an expected version, whole or not at all, with who did it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ledger.eventstore.port import (
    EVENT_BYTES_MAX,
    NO_STREAM,
    EventTooLarge,
    Expect,
    StreamMoved,
)
from tests.contracts.event_stores.given import BY, Noted, Rig, a_stream, note, notes, texts


def test_what_was_appended_reads_back_in_order(rig: Rig) -> None:
    stream, events = a_stream(), notes(3)

    rig.store.append(stream, events, expected=NO_STREAM, by=BY)

    recorded = list(rig.store.read_stream(stream))
    assert [each.id for each in recorded] == [new.id for new in events]
    assert [each.event for each in recorded] == [new.event for new in events]
    assert [each.version for each in recorded] == [1, 2, 3]


def test_an_event_keeps_who_did_it_and_its_type(rig: Rig) -> None:
    stream = a_stream()

    rig.store.append(stream, notes(1), expected=NO_STREAM, by=BY)

    [recorded] = rig.store.read_stream(stream)
    assert recorded.meta == BY
    assert (recorded.type, recorded.schema_version) == (Noted.name, 1)


def test_an_event_says_when_it_was_recorded(rig: Rig) -> None:
    stream = a_stream()

    rig.store.append(stream, notes(1), expected=NO_STREAM, by=BY)

    [recorded] = rig.store.read_stream(stream)
    assert recorded.recorded_at.tzinfo is not None
    assert abs(datetime.now(UTC) - recorded.recorded_at) < timedelta(minutes=5)


def test_an_append_tells_the_version_and_position_of_its_last_event(rig: Rig) -> None:
    stream = a_stream()
    rig.store.append(stream, notes(2), expected=NO_STREAM, by=BY)

    appended = rig.store.append(stream, notes(2), expected=2, by=BY)

    last = list(rig.store.read_stream(stream))[-1]
    assert (appended.version, appended.position) == (4, last.position)
    assert not appended.deduplicated
    assert rig.store.head() == last.position


@pytest.mark.parametrize("expected", [1, 3])
def test_a_new_stream_is_refused_at_any_version_but_none(rig: Rig, expected: int) -> None:
    stream = a_stream()

    with pytest.raises(StreamMoved) as moved:
        rig.store.append(stream, notes(1), expected=expected, by=BY)

    assert moved.value.actual == 0
    assert list(rig.store.read_stream(stream)) == []


@pytest.mark.parametrize("expected", [NO_STREAM, 1, 3, 9])
def test_a_stream_is_refused_at_any_version_but_its_own(rig: Rig, expected: int) -> None:
    stream = a_stream()
    rig.store.append(stream, notes(2), expected=NO_STREAM, by=BY)

    with pytest.raises(StreamMoved) as moved:
        rig.store.append(stream, notes(1), expected=expected, by=BY)

    assert (moved.value.expected, moved.value.actual) == (expected, 2)
    assert len(list(rig.store.read_stream(stream))) == 2


def test_a_writer_that_was_overtaken_by_another_process_is_refused(rig: Rig) -> None:
    stream, other = a_stream(), rig.another()
    rig.store.append(stream, notes(1), expected=NO_STREAM, by=BY)
    other.append(stream, notes(1), expected=1, by=BY)

    with pytest.raises(StreamMoved):
        rig.store.append(stream, notes(1), expected=1, by=BY)

    assert len(list(rig.store.read_stream(stream))) == 2


def test_two_processes_can_write_to_one_stream_in_turn(rig: Rig) -> None:
    stream, other = a_stream(), rig.another()

    for version in range(0, 6, 2):
        rig.store.append(stream, notes(1), expected=version, by=BY)
        other.append(stream, notes(1), expected=version + 1, by=BY)

    assert [each.version for each in rig.store.read_stream(stream)] == [1, 2, 3, 4, 5, 6]


def test_telemetry_is_appended_at_any_version(rig: Rig) -> None:
    stream = a_stream()

    rig.store.append(stream, [note("a")], expected=Expect.ANY, by=BY)
    rig.another().append(stream, [note("b")], expected=Expect.ANY, by=BY)
    appended = rig.store.append(stream, [note("c")], expected=Expect.ANY, by=BY)

    assert appended.version == 3
    assert texts(rig.store.read_stream(stream)) == ["a", "b", "c"]


def test_nothing_is_a_valid_append_that_still_checks_the_version(rig: Rig) -> None:
    stream = a_stream()
    rig.store.append(stream, notes(2), expected=NO_STREAM, by=BY)

    assert rig.store.append(stream, [], expected=2, by=BY).version == 2
    with pytest.raises(StreamMoved):
        rig.store.append(stream, [], expected=1, by=BY)
    assert len(list(rig.store.read_stream(stream))) == 2


def test_positions_rise_across_streams(rig: Rig) -> None:
    first = rig.put(a_stream(), notes(1))
    second = rig.put(a_stream(), notes(3))
    third = rig.put(a_stream(), notes(1))

    assert rig.start < first < second < third
    positions = [each.position for each in rig.since_start()]
    assert positions == sorted(set(positions))
    assert len(positions) == 5


def test_an_event_that_is_too_large_is_refused_with_its_whole_append(rig: Rig) -> None:
    stream = a_stream()

    with pytest.raises(EventTooLarge):
        rig.store.append(stream, [note(), note("x" * EVENT_BYTES_MAX)], expected=NO_STREAM, by=BY)

    assert list(rig.store.read_stream(stream)) == []
    assert rig.store.append(stream, notes(1), expected=NO_STREAM, by=BY).version == 1


def test_a_large_event_below_the_limit_is_kept_whole(rig: Rig) -> None:
    stream, text = a_stream(), "\N{SNOWMAN}" * 330_000

    rig.store.append(stream, [note(text)], expected=NO_STREAM, by=BY)

    assert texts(rig.store.read_stream(stream)) == [text]


@pytest.mark.parametrize(
    "name", ["straße-äöü", "市場-東京", "offer-\N{GRINNING FACE}", "a b'c\"d%"]
)
def test_stream_names_and_contents_may_be_in_any_script(rig: Rig, name: str) -> None:
    stream = f"{a_stream()}-{name}"

    rig.store.append(stream, [note(name)], expected=NO_STREAM, by=BY)

    [recorded] = rig.store.read_stream(stream)
    assert (recorded.stream, texts([recorded])) == (stream, [name])
