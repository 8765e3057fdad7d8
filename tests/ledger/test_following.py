"""Followers: a projection counts every event once, whenever it is killed; a policy asks again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import pytest
from django.db import connection

from ledger import places, reacting
from ledger import rows as rows_of_a_page
from ledger.domain.event import EVENT_TYPES, Event
from ledger.eventstore.port import EventStore, Expect, Meta, Position, Recorded, record
from ledger.eventstore.postgres import PostgresStore
from ledger.following import Policy, Projecting, follow_projections, wait_until_read
from ledger.models import Checkpoint
from ledger.prepared import ask_for_all
from ledger.reacting import follow_policies
from ledger.rows import Rows
from tests.ledger.tallying import BY, KINDS, PROJECTION, Counted, Echoed, Tally, counted

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[2]
STREAMS = ("tally-a", "tally-b", "tally-c")
PATIENCE_SECONDS = 60
FOLLOWER = """
import sys
from django.conf import settings
settings.DATABASES["default"]["NAME"] = sys.argv[1]
import django
django.setup()
from tests.ledger.tallying import follow_until
follow_until(sys.argv[2])
"""


class Killed(BaseException):
    """What no handler of a failure catches: the process is gone."""


class Echo:
    """What the policy of these tests keeps, one stream for each number."""

    STREAM: ClassVar[str] = "echo"

    @classmethod
    def evolve(cls, state: Echo | None, event: Event, /) -> Echo:
        return state or cls()


@pytest.fixture
def store(committed_store: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventStore]:
    """A PostgreSQL store, and the table of the tally."""
    for kind in KINDS:
        monkeypatch.setitem(EVENT_TYPES, kind.name, kind)
    with connection.schema_editor() as editor:
        editor.create_model(Tally)
    yield PostgresStore()
    with connection.schema_editor() as editor:
        editor.delete_model(Tally)


def put(store: EventStore, numbers: range) -> None:
    for number in numbers:
        stream = STREAMS[number % len(STREAMS)]
        store.append(stream, [counted(stream, number)], expected=Expect.ANY, by=BY)


def tallied() -> dict[str, tuple[int, int]]:
    return {row.stream: (row.events, row.total) for row in Tally.objects.all()}


def tally_of(numbers: Sequence[int]) -> dict[str, tuple[int, int]]:
    parts = {
        stream: [number for number in numbers if number % len(STREAMS) == place]
        for place, stream in enumerate(STREAMS)
    }
    return {stream: (len(part), sum(part)) for stream, part in parts.items() if part}


def place_of(name: str) -> Position:
    return Position(Checkpoint.objects.get(name=name).position)


def kill_a_follower_at(point: str) -> None:
    """Start a follower in a process of its own and kill it with SIGKILL where it stops."""
    with subprocess.Popen(
        [sys.executable, "-c", FOLLOWER, str(connection.settings_dict["NAME"]), point],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        reached = process.stdout.readline().strip()
        process.kill()
    assert reached == point


@pytest.mark.parametrize("point", ["checkpoint", "rows", "commit"])
def test_a_projector_killed_in_the_middle_of_a_page_leaves_nothing_of_it(
    store: EventStore, point: str
) -> None:
    put(store, range(10))
    follow_projections(store, [PROJECTION])
    before = place_of(PROJECTION.name)
    put(store, range(10, 30))

    kill_a_follower_at(point)

    assert (tallied(), place_of(PROJECTION.name)) == (tally_of(range(10)), before)
    assert follow_projections(store, [PROJECTION]) == 20
    assert (tallied(), place_of(PROJECTION.name)) == (tally_of(range(30)), store.head())


def test_two_projectors_at_once_count_every_event_once(store: EventStore) -> None:
    follow_projections(store, [PROJECTION])
    together = threading.Barrier(3)

    def follow() -> None:
        try:
            for _turn in range(6):
                together.wait(PATIENCE_SECONDS)
                follow_projections(PostgresStore(), [PROJECTION])
        finally:
            connection.close()

    threads = [threading.Thread(target=follow) for _thread in range(2)]
    for thread in threads:
        thread.start()
    for turn in range(6):
        put(store, range(turn * 20, turn * 20 + 20))
        together.wait(PATIENCE_SECONDS)
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    follow_projections(store, [PROJECTION])

    assert tallied() == tally_of(range(120))
    assert place_of(PROJECTION.name) == store.head()


def test_a_projection_that_fails_stops_there_and_the_others_go_on(store: EventStore) -> None:
    def fail_at_seven(recorded: Recorded, rows: Rows) -> None:
        event = recorded.event
        assert isinstance(event, Counted)
        if event.number == 7:
            raise ValueError("seven")

    failing = replace(PROJECTION, name="tallying.failing", project=fail_at_seven)
    put(store, range(10))

    follow_projections(store, [failing, PROJECTION])

    assert (tallied(), place_of(PROJECTION.name)) == (tally_of(range(10)), store.head())
    stopped = Checkpoint.objects.get(name=failing.name)
    assert (stopped.position, stopped.error) == (0, "ValueError: seven")
    assert follow_projections(store, [failing]) == 0, "it was tried again at once"


def test_who_stood_still_while_another_went_on_counts_nothing_twice(store: EventStore) -> None:
    slept = Projecting([PROJECTION])
    put(store, range(10))
    assert slept.run_once(store) == 10

    put(store, range(10, 20))
    follow_projections(store, [PROJECTION])
    put(store, range(20, 30))
    while slept.run_once(store):
        pass

    assert (tallied(), place_of(PROJECTION.name)) == (tally_of(range(30)), store.head())


def test_one_that_stopped_is_tried_again_after_a_while(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = ["once"]

    def fail_once(recorded: Recorded, rows: Rows) -> None:
        if faults:
            raise ValueError(faults.pop())
        PROJECTION.project(recorded, rows)

    failing = Projecting([replace(PROJECTION, name="tallying.failing", project=fail_once)])
    put(store, range(3))

    assert failing.run_once(store) == 0
    assert failing.run_once(store) == 0, "it was tried again at once"
    monkeypatch.setattr(places, "RETRY_AFTER", timedelta())
    failing.forget()
    assert failing.run_once(store) == 3

    assert tallied() == tally_of(range(3))


def test_rows_that_a_page_begins_are_not_looked_for(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def noted(sql: str, parameters: Sequence[object]) -> list[tuple[object, ...]]:
        asked.append(sql)
        return ask_for_all(sql, parameters)

    def begin(recorded: Recorded, rows: Rows) -> None:
        rows.add(Tally(stream=str(recorded.position), events=1, total=0))
        rows.change(Tally, str(recorded.position), events=2)

    monkeypatch.setattr(rows_of_a_page, "ask_for_all", noted)
    put(store, range(5))
    follow_projections(store, [replace(PROJECTION, name="tallying.begin", project=begin)])

    assert Tally.objects.filter(events=2).count() == 5
    assert asked == []


def test_a_projection_moves_over_events_that_it_is_not_told(store: EventStore) -> None:
    deaf = replace(PROJECTION, on=frozenset({Echoed.name}))
    put(store, range(5))

    follow_projections(store, [deaf])

    assert (tallied(), place_of(deaf.name)) == ({}, store.head())


def test_a_policy_killed_before_its_checkpoint_asks_again_and_nothing_happens_twice(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def echo(recorded: Recorded, store: EventStore) -> None:
        event = recorded.event
        assert isinstance(event, Counted)
        asked.append(event.number)
        by = Meta.because(recorded, policy="echo")
        record(store, Echo, event.number, lambda _: [Echoed(number=event.number)], by=by)

    policy = Policy("tallying.echo", echo, frozenset({Counted.name}))
    put(store, range(3))

    def killed(*_arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(reacting, "NOTED_EVERY", 2)
        dying.setattr(reacting, "move", killed)
        with pytest.raises(Killed):
            follow_policies(store, [policy])
    follow_policies(store, [policy])

    assert asked == [0, 1, 0, 1, 2]
    echoes = store.read_all(only=frozenset({Echoed.name})).events
    assert [each.event for each in echoes] == [Echoed(number=number) for number in range(3)]


def test_a_reader_can_wait_until_its_own_write_is_in_the_rows(store: EventStore) -> None:
    put(store, range(3))
    head = store.head()

    assert not wait_until_read([PROJECTION.name], head, timeout_seconds=0)
    follow_projections(store, [PROJECTION])
    assert wait_until_read([PROJECTION.name], head, timeout_seconds=0)


def test_a_row_the_database_refuses_stops_the_follower_with_its_reason(store: EventStore) -> None:
    """A constraint is the follower's own fault; a database that is away is not."""
    put(store, range(1))

    def refused(recorded: Recorded, rows: Rows) -> None:
        rows.add(Checkpoint(name="x" * 129))

    follow_projections(store, [replace(PROJECTION, name="test.refused", project=refused)])

    standing = Checkpoint.objects.get(name="test.refused")
    assert standing.position == 0
    assert "too long" in standing.error
