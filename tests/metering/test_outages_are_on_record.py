"""The market notes when it was away, and no time that it gives others runs meanwhile."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ledger.domain.span import Window
from ledger.domain.uptime import Uptime
from metering.loops import AWAY_AFTER, beat
from metering.models import OutageRow
from metering.queries.uptime import CLOCK, WEB, uptime
from tests.conftest import NOON
from tests.metering.world import minute

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
