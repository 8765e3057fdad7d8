"""The market notes when it was away, and no time that it gives others runs meanwhile."""

from __future__ import annotations

from datetime import timedelta

import pytest

from config.processes.beating import TOLD_FROM, Beats
from ledger.domain.span import Window
from ledger.domain.uptime import Uptime
from ledger.eventstore.memory import MemoryStore
from ledger.models import Checkpoint
from marketplace.domain.facts.events import LeaseExtended, LeaseStarting
from metering.loops import AWAY_AFTER, beat
from metering.models import Beat, OutageRow
from metering.queries.uptime import CLOCK, ROWS, WEB, uptime
from tests.conftest import NOON
from tests.metering.world import LEASE, World, minute

pytestmark = pytest.mark.django_db


def test_before_anything_beats_the_market_counts_as_up() -> None:
    assert uptime(since=NOON) == Uptime()


def test_beats_that_follow_each_other_are_no_outage() -> None:
    for seconds in range(0, 60, 5):
        beat(CLOCK, now=NOON + timedelta(seconds=seconds))
    beat(CLOCK, now=NOON + timedelta(seconds=55) + AWAY_AFTER)
    assert not OutageRow.objects.exists()


def test_a_pause_is_an_outage_from_the_last_beat_on() -> None:
    beat(CLOCK, now=minute(1))
    beat(CLOCK, now=minute(16))
    assert uptime(since=NOON) == Uptime((Window(minute(1), minute(16)),), minute(16))
    assert uptime(since=minute(16)).outages == ()


def test_what_follows_the_last_beat_is_not_known_to_be_up() -> None:
    """The clock looks before anything has beaten again."""
    beat(WEB, now=minute(1))
    beat(CLOCK, now=minute(5))
    assert uptime(since=NOON).between(NOON, minute(60)) == timedelta(minutes=1)


def test_outages_of_web_and_clock_that_overlap_count_once() -> None:
    for name, away, back in ((WEB, 1, 20), (CLOCK, 10, 30), (CLOCK, 40, 50)):
        beat(name, now=minute(away))
        beat(name, now=minute(back))
    beat(WEB, now=minute(50))
    found = uptime(since=NOON)
    assert found.outages == (Window(minute(1), minute(50)),)
    assert found.between(NOON, minute(60)) == timedelta(minutes=1)


def test_a_clock_that_goes_back_takes_no_beat_back() -> None:
    beat(CLOCK, now=minute(10))
    beat(CLOCK, now=minute(5))
    assert uptime(since=NOON).up_to == minute(10)


class Rows:
    """What is recorded, how far the rows of leases show it, and a clock that beats every 5 s."""

    def __init__(self, store: MemoryStore) -> None:
        self.world, self.beats, self.at = World(store), Beats(), NOON
        self.world.schedule()
        self.follow()

    def follow(self) -> None:
        head = self.world.store.head()
        Checkpoint.objects.update_or_create(name=TOLD_FROM, defaults={"position": head})

    def beat_for(self, seconds: int, *, recording: bool = False, following: bool = False) -> None:
        for _ in range(0, seconds, 5):
            self.at += timedelta(seconds=5)
            if recording:
                ends_at = self.at + timedelta(days=1)
                self.world.tell(LeaseExtended(lease_id=LEASE, ends_at=ends_at, at=self.at))
            if following:
                self.follow()
            self.beats.run_once(self.world.store, now=self.at)


def test_while_rows_do_not_show_what_was_recorded_no_host_can_act(store: MemoryStore) -> None:
    """The process that writes rows is gone for a quarter of an hour; web and clock are up."""
    rows = Rows(store)
    rows.beat_for(60, following=True)
    rows.world.tell(LeaseStarting(lease_id=LEASE, at=rows.at))
    asked_at = rows.at
    rows.beat_for(15 * 60)
    assert uptime(since=NOON).between(asked_at, rows.at) == timedelta()

    rows.beat_for(60, following=True)
    up = uptime(since=NOON)
    assert up.between(asked_at, rows.at) == timedelta(seconds=55)
    assert up.outages == (Window(asked_at, asked_at + timedelta(minutes=15, seconds=5)),)


def test_rows_that_lag_a_little_are_no_outage(store: MemoryStore) -> None:
    rows = Rows(store)
    for _ in range(20):
        rows.beat_for(20, recording=True)
        rows.follow()
        rows.beat_for(5)
    assert not OutageRow.objects.exists()
    assert uptime(since=NOON).up_to == rows.at


def test_rows_that_stand_still_while_nothing_happens_are_no_outage(store: MemoryStore) -> None:
    rows = Rows(store)
    rows.beat_for(900)
    assert uptime(since=NOON).up_to == rows.at


def test_where_no_rows_are_written_the_clock_alone_counts(store: MemoryStore) -> None:
    Beats().run_once(store, now=NOON)
    assert list(Beat.objects.values_list("name", flat=True)) == [CLOCK]
    assert not OutageRow.objects.filter(name=ROWS).exists()
