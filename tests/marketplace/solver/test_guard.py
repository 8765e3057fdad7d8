"""A search keeps to its guard: it is asked within a step of price finding, and sooner there."""

from __future__ import annotations

import pytest

from marketplace.domain.solver import Ask, Effort, Entry, Pool, pose, solve
from marketplace.domain.solver.builder import WrongAsk
from marketplace.round_time import PRICES_SHARE_MAX, Guard
from tests.benchmarks.families import TIGHT, draw
from tests.marketplace.solver.telling import told

HOUR = 3_600_000


def test_a_step_of_price_finding_that_is_cut_short_can_be_done_again() -> None:
    problem = draw(TIGHT, 2_000, 4)
    looks = iter([False] * 4)

    short = solve(problem, effort=Effort(50, 50), seed=2, enough=lambda: next(looks, True))
    again = solve(problem, effort=short.done, seed=2)

    assert short.done.asked > 0
    assert ("asked", short.done.asked) in short.iterations
    assert told(short) == told(again)


def test_prices_are_found_in_a_part_of_the_time_that_a_search_has() -> None:
    moment = 0.0
    guard = Guard(10.0, clock=lambda: moment)
    assert not guard()

    moment = 10.0 * PRICES_SHARE_MAX + 0.1
    assert guard.soon()
    assert not guard()
    moment = 10.1
    assert guard()


def test_a_part_of_a_round_has_a_part_of_its_time_from_when_it_is_first_asked() -> None:
    moment = 0.0
    guard = Guard(10.0, clock=lambda: moment)
    assert not guard()

    moment = 9.0
    part = guard.part(0.3)
    assert not part()
    moment = 11.9
    assert not part()
    moment = 12.1
    assert part()


def test_time_is_counted_from_when_it_is_first_asked_about() -> None:
    moment = 50.0
    guard = Guard(10.0, clock=lambda: moment)

    assert not guard.soon()
    moment = 54.9
    assert not guard.soon()


@pytest.mark.parametrize("wrong", [0, 3, 6])
def test_a_bid_that_cannot_be_posed_is_named(wrong: int) -> None:
    right = Ask(1, HOUR, 0, HOUR, 1_000, (Entry(0, 1),))
    asks = [right] * 7
    asks[wrong] = Ask(1, HOUR, 0, HOUR, 2**70, (Entry(0, 1),))

    with pytest.raises(WrongAsk) as refused:
        pose([0, HOUR], [Pool(0, (2,))], asks)

    assert refused.value.number == wrong


def test_no_bid_is_named_where_the_supply_is_at_fault() -> None:
    ask = Ask(1, HOUR, 0, HOUR, 1_000, (Entry(0, 1),))

    with pytest.raises(ValueError, match="grid rises"):
        pose([0, 0], [Pool(0, (2,))], [ask])
