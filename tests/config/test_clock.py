"""A clock that others contradict decides nothing, until they agree."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from config.processes.clock import SETTLED, Clock, ClockUnsure
from tests.conftest import NOON

HOUR = timedelta(hours=1)


class Times:
    """A machine's wall clock, the time that goes by, and a database's clock."""

    def __init__(self) -> None:
        self.gone = 0.0
        self.ahead = self.database_ahead = timedelta()
        self.clock = Clock(wall=self.wall, elapsed=lambda: self.gone)

    def wall(self) -> datetime:
        return NOON + timedelta(seconds=self.gone) + self.ahead

    def database(self) -> datetime:
        return NOON + timedelta(seconds=self.gone) + self.database_ahead

    def pass_by(self, seconds: float, *, every: float = 1.0) -> None:
        for _ in range(int(seconds / every)):
            self.gone += every
            self.clock.compare(self.database)
            self.clock.doubt()


@pytest.fixture
def times() -> Times:
    times = Times()
    times.pass_by(30)
    return times


def test_a_clock_that_nobody_contradicts_is_believed(times: Times) -> None:
    assert times.clock.now() == times.wall()


@pytest.mark.parametrize("step", [HOUR, -HOUR, timedelta(seconds=9), timedelta(seconds=-9)])
def test_a_step_decides_nothing_and_passes_when_it_is_undone(times: Times, step: timedelta) -> None:
    times.ahead = step
    with pytest.raises(ClockUnsure):
        times.clock.now()
    times.pass_by(20)
    assert times.clock.doubt()

    times.ahead = timedelta()

    assert times.clock.now() == times.wall()
    assert times.clock.turned_back == 0


def test_a_step_of_database_and_server_together_is_noticed_as_well(times: Times) -> None:
    times.ahead = times.database_ahead = HOUR
    times.clock.compare(times.database)

    with pytest.raises(ClockUnsure):
        times.clock.now()


def test_a_new_time_on_which_both_go_on_to_agree_is_believed(times: Times) -> None:
    times.ahead = times.database_ahead = -HOUR
    times.pass_by(SETTLED.total_seconds() - 2)
    assert times.clock.doubt()

    times.pass_by(5)

    assert times.clock.now() == times.wall()
    assert times.clock.turned_back == 1


def test_a_clock_that_jumps_about_is_not_believed(times: Times) -> None:
    for number in range(10):
        times.ahead = times.database_ahead = HOUR * (number + 1)
        times.pass_by(30)
        assert times.clock.doubt()


def test_a_clock_that_was_wrong_from_the_start_is_held_against_the_database() -> None:
    times = Times()
    times.ahead = HOUR
    times.clock = Clock(wall=times.wall, elapsed=lambda: times.gone)
    times.clock.compare(times.database)

    assert "3600 s ahead of the database's" in times.clock.doubt()
    times.pass_by(SETTLED.total_seconds() * 3)
    assert times.clock.doubt()

    times.database_ahead = HOUR
    times.pass_by(SETTLED.total_seconds() + 2)
    assert not times.clock.doubt()


def test_slow_drift_and_long_silence_are_no_steps(times: Times) -> None:
    times.ahead += timedelta(seconds=4)
    times.gone += 6 * 3600

    assert times.clock.now() == times.wall()


def test_a_database_that_is_away_leaves_the_clock_as_it_was(times: Times) -> None:
    def away() -> datetime:
        raise OSError("away")

    with pytest.raises(OSError, match="away"):
        times.clock.compare(away)

    assert times.clock.now() == times.wall()
