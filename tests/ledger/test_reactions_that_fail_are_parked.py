"""A policy that cannot react to one event goes on with all others, and comes back to that one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import parking
from ledger.domain.event import EVENT_TYPES
from ledger.domain.refusal import Refusal
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import EventStore, Expect, Recorded, StoreUnavailable, StreamMoved
from ledger.following import Policy
from ledger.models import Checkpoint, ParkedReaction
from ledger.reacting import AWAY_MAX, follow_policies
from tests.ledger.tallying import BY, KINDS, Counted, counted

pytestmark = pytest.mark.django_db
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
STREAMS = ("tally-a", "tally-b", "tally-c")


class NotNow(Refusal):
    """Not now."""


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for kind in KINDS:
        monkeypatch.setitem(EVENT_TYPES, kind.name, kind)
    yield


class Desk:
    """A policy that notes what it reacted to, and fails at some numbers."""

    def __init__(self, store: EventStore | None = None, **more: Any) -> None:
        self.store = store or MemoryStore()
        self.done: list[int] = []
        self.failing: dict[int, Exception] = {}
        self.policy = Policy("tallying.desk", self._react, frozenset({Counted.name}), **more)

    def _react(self, recorded: Recorded, store: EventStore) -> None:
        assert isinstance(recorded.event, Counted)
        number = recorded.event.number
        if number in self.failing:
            raise self.failing[number]
        self.done.append(number)

    def put(self, *numbers: int) -> None:
        """Number n is an event of the stream n modulo 3."""
        for number in numbers:
            stream = STREAMS[number % 3]
            self.store.append(stream, [counted(stream, number)], expected=Expect.ANY, by=BY)

    def follow(self, *, again: bool = False) -> int:
        """Let the policy follow; again: as if all pauses were over."""
        if again:
            ParkedReaction.objects.filter(again_at__isnull=False).update(again_at=LONG_AGO)
        return follow_policies(self.store, [self.policy])

    @property
    def position(self) -> int:
        return int(Checkpoint.objects.get(name=self.policy.name).position)


@pytest.mark.parametrize(
    "failure", [ValueError("no"), NotNow(), AssertionError(), StreamMoved("x")]
)
def test_what_fails_is_parked_and_all_others_go_on(failure: Exception) -> None:
    desk = Desk()
    desk.failing[4] = failure
    desk.put(*range(10))

    desk.follow()

    assert desk.done == [0, 1, 2, 3, 5, 6, 8, 9], "7 is behind 4 in its stream"
    assert desk.position == desk.store.head()
    assert [(each.position, each.attempts) for each in parking.parked()] == [(5, 1), (8, 0)]


def test_those_about_the_same_subject_stay_in_their_order() -> None:
    desk = Desk()
    desk.failing[1] = NotNow()
    desk.put(*range(12))
    desk.follow()
    desk.put(13)
    desk.follow()
    assert 13 not in desk.done

    desk.failing.clear()
    assert desk.follow(again=True) == 5

    assert [number for number in desk.done if number % 3 == 1] == [1, 4, 7, 10, 13]
    assert not parking.parked().exists()
    desk.put(16)
    desk.follow()
    assert desk.done[-1] == 16


def test_a_subject_of_its_own_keeps_nobody_else_of_a_busy_stream_waiting() -> None:
    desk = Desk(subject=lambda recorded: str(recorded.event.number % 7))
    desk.failing[0] = NotNow()
    desk.put(*range(0, 42, 3))

    desk.follow()

    assert desk.done == [number for number in range(0, 42, 3) if number % 7]


def test_pauses_grow_and_an_operator_is_told_after_a_few_attempts() -> None:
    desk = Desk()
    desk.failing[0] = NotNow()
    desk.put(0)
    desk.follow()
    pauses = []
    for attempt in range(2, 14):
        before = datetime.now(UTC)
        desk.follow(again=True)
        row = parking.parked().get()
        assert row.attempts == attempt and row.again_at is not None
        pauses.append(row.again_at - before)
        assert parking.set_aside().exists() == (attempt >= parking.SET_ASIDE_AFTER)

    assert all(one < other + timedelta(seconds=1) for one, other in itertools.pairwise(pauses))
    assert pauses[0] < timedelta(seconds=5) and pauses[-1] <= parking.PAUSE_MAX + timedelta(
        seconds=5
    )
    assert "NotNow" in parking.set_aside().get().error


def test_it_is_not_tried_before_its_pause_is_over_but_when_somebody_asks() -> None:
    desk = Desk()
    desk.failing[0] = NotNow()
    desk.put(0)
    desk.follow()
    desk.failing.clear()
    ParkedReaction.objects.update(again_at=datetime.now(UTC) + timedelta(hours=1))

    desk.follow()
    assert desk.done == []
    assert parking.try_again(parking.parked().get().pk, now=datetime.now(UTC))
    desk.follow()

    assert desk.done == [0]


def test_a_store_that_is_away_parks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    desk.failing[1] = StoreUnavailable("gone")
    desk.put(*range(3))

    def away() -> None:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(desk.store, "ping", away)

    with pytest.raises(StoreUnavailable):
        desk.follow()

    assert not parking.parked().exists()
    desk.failing.clear()
    desk.follow()
    assert desk.done[-3:] == [0, 1, 2]


def test_many_that_fail_as_if_the_store_were_away_are_its_fault() -> None:
    desk = Desk(subject=lambda recorded: str(recorded.position))
    desk.failing = {number: StoreUnavailable("slow") for number in range(3 * AWAY_MAX)}
    desk.put(*range(3 * AWAY_MAX))

    with pytest.raises(StoreUnavailable):
        desk.follow()

    assert parking.parked().count() == AWAY_MAX


def test_no_secret_of_a_failure_is_kept() -> None:
    desk = Desk()
    desk.failing[0] = ValueError("postgresql://u:hunter2hunter2@127.0.0.1/x refused")
    desk.put(0)

    desk.follow()

    assert "hunter2" not in parking.parked().get().error


def test_events_asked_for_together_are_told_apart_where_one_breaks_off() -> None:
    desk = Desk(ask=lambda some, store: [[[]] for _ in some])
    calls: list[int] = []

    def broken(some: Any, store: EventStore) -> Any:
        calls.append(len(some))
        raise ValueError("one of them")

    desk.policy = Policy("tallying.desk", desk._react, frozenset({Counted.name}), ask=broken)
    desk.failing[2] = NotNow()
    desk.put(*range(6))

    desk.follow()

    assert calls and desk.done == [0, 1, 3, 4]
    assert [each.position for each in parking.parked()] == [3, 6]


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 5)),
            st.tuples(st.just("fail"), st.integers(0, 30)),
            st.tuples(st.just("heal"), st.integers(0, 30)),
            st.tuples(st.just("follow"), st.integers(0, 1)),
        ),
        max_size=40,
    )
)
def test_every_event_is_reacted_to_once_and_each_stream_in_order(steps: list[Any]) -> None:
    ParkedReaction.objects.all().delete()
    Checkpoint.objects.all().delete()
    desk, number = Desk(), 0
    for what, amount in steps:
        if what == "put":
            desk.put(*range(number, number + amount))
            number += amount
        elif what == "fail":
            desk.failing[amount] = NotNow()
        elif what == "heal":
            desk.failing.pop(amount, None)
        else:
            desk.follow(again=bool(amount))
    desk.failing.clear()
    for _ in range(3):
        desk.follow(again=True)

    assert sorted(desk.done) == list(range(number))
    for stream in range(3):
        mine = [each for each in desk.done if each % 3 == stream]
        assert mine == sorted(mine)
    assert not parking.parked().exists()
