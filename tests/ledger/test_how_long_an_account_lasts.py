"""How long an account lasts for what it will be asked for, and who is told of it when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.depletion import (
    HORIZON,
    AccountWatch,
    Draw,
    Seen,
    lasts_until,
    used_ppm,
)
from ledger.domain.depletion_events import (
    AccountDepletes,
    AccountLasts,
    AccountRefilled,
    AccountRunsOut,
    WatchEvent,
)
from ledger.domain.money import NANOS_PER_UNIT, Money
from tests.conftest import NOON
from tests.ledger.wallets import ACCOUNT, PLATFORM

HOUR = timedelta(hours=1)
UNIT = NANOS_PER_UNIT


def draw(per_hour: int, since: float, until: float) -> Draw:
    return Draw(per_hour * UNIT, NOON + since * HOUR, NOON + until * HOUR)


def seen(left: int, *, there: int = 100, lasts: datetime | None = None) -> Seen:
    return Seen(
        account_id=ACCOUNT,
        tenant_id=PLATFORM,
        title="Wallet",
        there=Money(there * UNIT),
        left=Money(left * UNIT),
        lasts_until=lasts,
    )


def told(looks: Sequence[Seen]) -> list[str]:
    """Return what was told over some looks, in a word each."""
    watch, words = AccountWatch(), list[str]()
    for each in looks:
        events = watch.look(each, now=NOON)
        watch = reduce(AccountWatch.evolve, events, watch)
        words += [word_of(event) for event in events]
        assert watch.look(each, now=NOON) == [], "the same look again tells nothing"
    return words


def word_of(event: WatchEvent) -> str:
    match event:
        case AccountRunsOut():
            return str(event.level)
        case AccountRefilled():
            return "refilled"
        case AccountDepletes():
            return "depletes"
        case AccountLasts():
            return "lasts"


@pytest.mark.parametrize(
    ("left", "draws", "hours"),
    [
        pytest.param(10, [], None, id="nothing is asked for"),
        pytest.param(10, [draw(2, 0, 5)], None, id="it covers all of it to the nano-unit"),
        pytest.param(10, [draw(2, 0, 6)], 5, id="it is empty within a draw"),
        pytest.param(10, [draw(2, 1, 9)], 6, id="it is asked for later"),
        pytest.param(10, [draw(2, 0, 4), draw(3, 2, 9)], 3.2, id="two draws overlap"),
        pytest.param(10, [draw(2, -3, 9)], 5, id="what was before is paid already"),
        pytest.param(0, [draw(1, 1, 2)], 1, id="nothing is left"),
        pytest.param(-1, [], 0, id="more is set aside than there is"),
    ],
)
def test_an_account_lasts_as_long_as_it_covers_what_is_asked(
    left: int, draws: list[Draw], hours: float | None
) -> None:
    found = lasts_until(left * UNIT, draws, now=NOON)

    assert found == (None if hours is None else NOON + hours * HOUR)


def test_nobody_looks_ahead_for_more_than_a_month() -> None:
    ever = Draw(UNIT, NOON, NOON + 10 * HORIZON)

    assert lasts_until(721 * UNIT, [ever], now=NOON) is None
    assert lasts_until(719 * UNIT, [ever], now=NOON) == NOON + 719 * HOUR


@given(
    st.integers(0, 10**12),
    st.lists(
        st.builds(
            lambda rate, since, length: Draw(
                rate, NOON + timedelta(minutes=since), NOON + timedelta(minutes=since + length)
            ),
            st.integers(0, 10**12),
            st.integers(-600, 6_000),
            st.integers(-5, 6_000),
        ),
        max_size=6,
    ),
)
def test_up_to_that_moment_all_is_covered_and_a_moment_later_it_is_not(
    left: int, draws: list[Draw]
) -> None:
    def asked(until: datetime) -> int:
        """Return what is asked for until then, in nano-units times milliseconds of an hour."""
        return sum(
            max(0, (min(each.until, until) - max(each.since, NOON)) // timedelta(milliseconds=1))
            * each.nanos_per_hour
            for each in draws
        )

    found = lasts_until(left, draws, now=NOON)

    if found is None:
        assert asked(NOON + HORIZON) <= left * 3_600_000
    else:
        assert asked(found) <= left * 3_600_000 < asked(found + timedelta(milliseconds=1))


def test_each_level_is_told_once_on_the_way_up() -> None:
    assert told([seen(30), seen(21), seen(20), seen(12), seen(5), seen(1), seen(0)]) == [
        "80",
        "95",
        "100",
    ]


def test_a_level_that_is_passed_over_is_not_told_as_well() -> None:
    assert told([seen(90), seen(3)]) == ["95"]


def test_levels_are_told_anew_after_a_top_up_and_not_while_holds_come_and_go() -> None:
    assert told([seen(19), seen(15), seen(19), seen(60, there=119), seen(20, there=119)]) == [
        "80",
        "refilled",
        "80",
    ]


def test_that_it_is_empty_within_a_day_is_told_once_until_it_lasts_longer() -> None:
    soon, later, long = NOON + 20 * HOUR, NOON + 30 * HOUR, NOON + 50 * HOUR

    assert told(
        [
            seen(90, lasts=long),
            seen(90, lasts=soon),
            seen(90, lasts=later),
            seen(90, lasts=soon),
            seen(90),
            seen(90, lasts=soon),
        ]
    ) == ["depletes", "lasts", "depletes"]


@pytest.mark.parametrize(
    ("there", "left", "used"),
    [(100, 100, 0), (100, 130, 0), (100, 20, 800_000), (100, -5, 1_000_000), (0, 0, 0)],
)
def test_what_is_used_is_what_is_gone_of_what_was_there(there: int, left: int, used: int) -> None:
    assert used_ppm(there_nanos=there, left_nanos=left) == used
