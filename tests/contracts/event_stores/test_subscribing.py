"""Subscriptions: every event after a position, as it comes, and word when there is no more."""

from __future__ import annotations

import time
from uuid import uuid4

from ledger.eventstore.port import CaughtUp, NewEvent, Recorded
from tests.contracts.event_stores.given import (
    BY,
    Noted,
    NotedLoudly,
    Rig,
    a_stream,
    following,
    note,
    texts,
)

WAKE_SECONDS_MAX = 10.0  # a thousandth of it is usual; one that no turn woke would wait for ever


def test_a_subscription_begins_with_what_is_there(rig: Rig) -> None:
    rig.put(a_stream(), [note("a"), note("b")])

    with following(rig).running() as follower:
        heard = [follower.next(), follower.next()]
        rest = follower.next()
        head = rig.store.head()

    assert texts(each for each in heard if isinstance(each, Recorded)) == ["a", "b"]
    assert rest == CaughtUp(head)


def test_a_waiting_subscription_is_woken_by_an_append(rig: Rig) -> None:
    stream = a_stream()
    with following(rig).running() as follower:
        follower.rest()
        waits = []

        for text in ("a", "b", "c"):
            began = time.monotonic()
            rig.put(stream, [note(text)])
            assert texts([follower.next_event()]) == [text]
            waits.append(time.monotonic() - began)

    assert min(waits) < WAKE_SECONDS_MAX


def test_a_waiting_subscription_is_woken_by_another_process(rig: Rig) -> None:
    stream, other = a_stream(), rig.another()
    with following(rig).running() as follower:
        follower.rest()

        began = time.monotonic()
        other.append(stream, [note("theirs")], expected=0, by=BY)
        heard = follower.next_event()
        wait = time.monotonic() - began

    assert texts([heard]) == ["theirs"]
    assert wait < 4 * WAKE_SECONDS_MAX


def test_a_subscription_resumes_after_every_position(rig: Rig) -> None:
    for index in range(3):
        rig.put(a_stream(), [note(f"{index}a"), note(f"{index}b")])
    recorded = rig.since_start()
    ends = [rig.start, *(each.position for each in recorded)]

    for passed, position in enumerate(ends):
        with following(rig, after=position, idle_seconds=0.05).running() as follower:
            rest = []
            while isinstance(heard := follower.next(), Recorded):
                rest.append(heard)
        assert [each.id for each in rest] == [each.id for each in recorded[passed:]]
        assert heard.position == ends[-1]


def test_a_filtered_subscription_hears_only_its_types(rig: Rig) -> None:
    only = frozenset({Noted.name})
    with following(rig, only=only).running() as follower:
        follower.rest()
        rig.put(a_stream(), [NewEvent(uuid4(), NotedLoudly(text="noise")), note("wanted")])

        assert texts([follower.next_event()]) == ["wanted"]


def test_a_filtered_subscription_moves_over_what_it_leaves_out(rig: Rig) -> None:
    only = frozenset({Noted.name})
    with following(rig, only=only).running() as follower:
        assert follower.next() == CaughtUp(rig.start)
        head = rig.put(a_stream(), [NewEvent(uuid4(), NotedLoudly(text="noise"))])

        follower.rest(at=head)


def test_an_idle_subscription_gives_its_reader_a_turn(rig: Rig) -> None:
    with following(rig, idle_seconds=0.05).running() as follower:
        turns = [follower.next() for _turn in range(3)]

    assert turns == [CaughtUp(rig.start)] * 3


def test_an_idle_subscription_ends_soon_after_it_is_told_to(rig: Rig) -> None:
    follower = following(rig, idle_seconds=0.2)
    with follower.running():
        follower.rest()
        began = time.monotonic()

    assert time.monotonic() - began < WAKE_SECONDS_MAX


def test_several_subscriptions_hear_the_same(rig: Rig) -> None:
    first = following(rig)
    second = following(rig)
    with first.running(), second.running():
        first.rest()
        second.rest()
        rig.put(a_stream(), [note("a"), note("b")])

        assert texts([first.next_event(), first.next_event()]) == ["a", "b"]
        assert texts([second.next_event(), second.next_event()]) == ["a", "b"]
