"""What a spending budget allows: periods, what rolls over, grants and thresholds."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import cast, get_args
from uuid import UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.event import Event
from ledger.domain.ids import BidId
from ledger.domain.span import Window
from marketplace.domain.spending import budgets as rules
from marketplace.domain.spending.budget import Budget, BudgetUsedUp
from marketplace.domain.spending.budgets import Budgets, Counted, CountedUpTo
from marketplace.domain.spending.events import (
    BudgetScope,
    RollOver,
    SpendingGrantAsked,
    SpendingNoted,
    SpendingPeriod,
    SpendingThresholdMet,
    Threshold,
)
from marketplace.domain.spending.forecast import forecast
from marketplace.domain.spending.periods import period_at, periods_from
from tests.conftest import NOON
from tests.marketplace.support.spending import (
    NAMES,
    PERSON,
    SECOND,
    TENANT,
    USUAL,
    WHO,
    budget,
    usd,
)

MOMENTS = st.datetimes(
    min_value=datetime(2020, 1, 1),  # noqa: DTZ001  # the zone is given below
    max_value=datetime(2060, 1, 1),  # noqa: DTZ001
    timezones=st.timezones() | st.just(UTC),
)
KINDS = st.sampled_from(["week", "month", "quarter", "year"])
BUDGET = budget().budget_id


def after(*events: Event, state: Budgets | None = None) -> Budgets:
    for event in events:
        state = Budgets.evolve(state, event)  # type: ignore[arg-type]  # a test's own list
    assert state is not None
    return state


def bid(number: int) -> BidId:
    return BidId(UUID(int=number))


def drawn(state: Budgets, number: int, amount: float, *, at: datetime = NOON) -> Budgets:
    return after(
        *rules.draw(state, TENANT, WHO, usd(amount), bid_id=bid(number), at=at), state=state
    )


def noted(
    state: Budgets,
    *,
    spent: float = 0,
    held: float = 0,
    drawn: int = 0,
    through: int = 1,
    at: datetime = NOON,
) -> Budgets:
    starts_at = period_at(state.budgets[BUDGET].terms.period, at).starts_at
    counted = Counted(BUDGET, {starts_at: usd(spent).nanos}, usd(held).nanos)
    return after(
        *rules.note(state, TENANT, [counted], CountedUpTo(drawn, through), at=at), state=state
    )


@given(KINDS, MOMENTS)
def test_every_moment_of_any_zone_lies_in_one_period_of_utc(
    kind: SpendingPeriod, moment: datetime
) -> None:
    period = period_at(kind, moment)
    assert period.starts_at <= moment < period.ends_at
    assert (period.starts_at.hour, period.starts_at.minute) == (0, 0)
    assert period_at(kind, period.starts_at) == period
    assert period_at(kind, period.ends_at - timedelta(microseconds=1)) == period
    following = period_at(kind, period.ends_at)
    assert following.starts_at == period.ends_at


@given(KINDS, MOMENTS, st.integers(0, 900))
def test_periods_follow_one_another_without_gap(
    kind: SpendingPeriod, since: datetime, days: int
) -> None:
    found = list(periods_from(kind, since, since + timedelta(days=days)))
    assert found
    assert all(one.ends_at == two.starts_at for one, two in pairwise(found))
    assert found[-1].starts_at <= since + timedelta(days=days) < found[-1].ends_at


def test_a_leap_february_is_a_day_longer_and_a_week_begins_on_monday() -> None:
    assert period_at("month", datetime(2028, 2, 29, 23, tzinfo=UTC)).length == timedelta(days=29)
    assert period_at("month", datetime(2026, 2, 3, tzinfo=UTC)).length == timedelta(days=28)
    assert period_at("week", datetime(2026, 12, 6, tzinfo=UTC)).starts_at.day == 30
    quarter = period_at("quarter", datetime(2026, 11, 30, tzinfo=UTC))
    assert quarter == Window(datetime(2026, 10, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))


def test_bids_are_drawn_until_the_budget_blocks_and_no_further() -> None:
    state = after(budget(amount=100))
    state = drawn(drawn(state, 1, 60), 2, 40)
    with pytest.raises(BudgetUsedUp) as refused:
        drawn(state, 3, 0.000000001)
    assert refused.value.details["budget"] == "budget"
    assert refused.value.details["used"] == usd(100)
    assert refused.value.details["opens_at"] == datetime(2026, 2, 1, tzinfo=UTC)
    assert not rules.draw(state, TENANT, WHO, usd(0), bid_id=bid(4), at=NOON)


def test_the_same_bid_is_drawn_once() -> None:
    state = drawn(after(budget(amount=100)), 1, 60)
    assert not rules.draw(state, TENANT, WHO, usd(60), bid_id=bid(1), at=NOON)


def test_what_is_given_back_can_be_drawn_again_once_it_is_noted() -> None:
    state = drawn(after(budget(amount=100)), 1, 100)
    state = noted(state, spent=10, held=0, drawn=1, at=NOON)
    state = drawn(state, 2, 90)
    with pytest.raises(BudgetUsedUp):
        drawn(state, 3, 1)


def test_a_draw_that_is_not_counted_yet_stays_beside_the_note() -> None:
    state = drawn(drawn(after(budget(amount=100)), 1, 50), 2, 50)
    state = noted(state, held=50, drawn=1)
    with pytest.raises(BudgetUsedUp):
        drawn(state, 3, 1)


def test_what_was_counted_before_the_last_note_says_nothing() -> None:
    state = noted(drawn(after(budget(amount=100)), 1, 100), held=100, drawn=1, through=9)
    again = noted(state, held=0, drawn=0, through=3, at=NOON + timedelta(hours=1))
    assert again == state


@pytest.mark.parametrize(
    ("scope", "subject", "covered"),
    [
        ("tenant", "", True),
        ("unit", str(WHO.subscriber_id), True),
        ("person", str(WHO.user_id), True),
        ("project", "llm", True),
        ("kind", "training", True),
        ("unit", str(UUID(int=9)), False),
        ("person", str(UUID(int=9)), False),
        ("project", "other", False),
        ("kind", "batch", False),
    ],
)
def test_a_budget_counts_what_its_scope_says(scope: str, subject: str, covered: bool) -> None:
    terms = replace(budget(amount=1), scope=cast(BudgetScope, scope), subject=subject)
    state = after(terms)
    assert bool(state.blocking(WHO, "USD")) is covered
    assert not state.blocking(WHO, "EUR")


@given(st.integers(0, 400), st.integers(0, 300), st.integers(0, 1_000_000), st.integers(-100, 100))
def test_what_rolls_over_never_makes_money(
    spent: int, amount: int, share: int, carried: int
) -> None:
    period = period_at("month", NOON)
    for roll_over in get_args(RollOver):
        terms = replace(budget(amount=amount + 1), roll_over=roll_over, unused_ppm=share)
        state = after(terms).budgets[BUDGET]
        rolled = state.rolled(period, carried=usd(carried).nanos, spent=usd(spent).nanos)
        left = usd(amount + 1 + carried - spent).nanos
        assert rolled <= max(0, left)
        assert rolled <= usd(amount + 1).nanos * share // 1_000_000
        assert rolled >= min(0, left)
        if roll_over in ("none", "unused"):
            assert rolled >= 0
        if roll_over in ("none", "overspent"):
            assert rolled <= 0


def test_unused_rolls_over_up_to_its_share_and_overspending_is_taken_off() -> None:
    january, february = NOON, datetime(2026, 2, 10, tzinfo=UTC)
    cases: tuple[tuple[RollOver, int, int], ...] = (
        ("none", 30, 100),
        ("unused", 30, 120),
        ("unused", 90, 110),
        ("overspent", 130, 70),
        ("both", 30, 120),
        ("both", 130, 70),
    )
    for roll_over, spent, limit in cases:
        terms = replace(budget(amount=100), roll_over=roll_over, unused_ppm=200_000, at=january)
        state = after(terms).budgets[BUDGET]
        by_period = {period_at("month", january).starts_at: usd(spent).nanos}
        carried = state.carried_into(period_at("month", february), by_period)
        assert state.limit_at(february, carried=carried) == usd(limit).nanos


def test_an_amount_that_changed_counts_for_the_period_in_which_it_was_changed() -> None:
    february = datetime(2026, 2, 10, tzinfo=UTC)
    terms = replace(budget(amount=100), roll_over="unused", unused_ppm=1_000_000)
    changed = replace(terms, amount=usd(50), at=february)
    state = after(terms, changed).budgets[BUDGET]
    assert state.amount_in(period_at("month", NOON)) == usd(100).nanos
    assert state.amount_in(period_at("month", february)) == usd(50).nanos


def test_a_new_period_opens_what_was_full_but_for_what_is_still_held() -> None:
    state = noted(after(budget(amount=100)), spent=70, held=30)
    february = datetime(2026, 2, 1, tzinfo=UTC)
    with pytest.raises(BudgetUsedUp):
        drawn(state, 1, 1)
    state = drawn(state, 1, 70, at=february)
    with pytest.raises(BudgetUsedUp):
        drawn(state, 2, 1, at=february)


def test_thresholds_are_met_once_in_each_period() -> None:
    state = after(budget(amount=100))
    events = []
    for through, spent in enumerate((40, 50, 55, 81, 100, 101), 1):
        starts_at = period_at("month", NOON).starts_at
        counted = Counted(BUDGET, {starts_at: usd(spent).nanos}, 0)
        told = rules.note(state, TENANT, [counted], CountedUpTo(0, through), at=NOON)
        events += [each for each in told if isinstance(each, SpendingThresholdMet)]
        state = after(*told, state=state)
    assert [(each.at_ppm, each.action) for each in events] == [
        (500_000, "notify"),
        (800_000, "notify"),
        (1_000_000, "block"),
    ]
    february = noted(state, spent=50, through=9, at=datetime(2026, 2, 3, tzinfo=UTC))
    assert february.budgets[BUDGET].met == {USUAL[0]}


def test_nothing_new_is_noted_where_nothing_changed() -> None:
    state = noted(after(budget(amount=100)), spent=10, held=5)
    same = noted(state, spent=12, held=3, through=5, at=NOON + timedelta(hours=2))
    assert same == state, "a capture moves what was held to what is spent"
    little = noted(state, spent=10.5, held=5, through=5, at=NOON + timedelta(seconds=5))
    assert little == state
    assert noted(state, spent=10.5, held=5, through=5, at=NOON + timedelta(minutes=2)) != state
    assert isinstance(state.budgets[BUDGET].noted, SpendingNoted)


def test_a_threshold_that_is_reached_again_in_its_period_is_not_told_again() -> None:
    pausing = replace(budget(amount=100), thresholds=(Threshold(1_000_000, "pause"),))
    state, told = after(pausing), []
    for through, (spent, more) in enumerate(((100, 10), (105, 0), (110, 0)), 1):
        counted = Counted(BUDGET, {period_at("month", NOON).starts_at: usd(spent).nanos}, 0)
        noticed = rules.note(state, TENANT, [counted], CountedUpTo(0, through), at=NOON)
        told += [each for each in noticed if isinstance(each, SpendingThresholdMet)]
        state = after(*noticed, state=state)
        state = asked(state, more) if more else state

    assert [(each.at_ppm, each.action) for each in told] == [(1_000_000, "pause")]
    assert limit(state) == usd(110).nanos, "it was opened by the grant, and reached once more"


def grant(amount: float, *, by: object = PERSON, days: int = 3, at: datetime = NOON) -> object:
    return SpendingGrantAsked(
        tenant_id=TENANT,
        budget_id=BUDGET,
        grant_id=uuid5(NAMES, f"grant {amount} {by}"),
        money=usd(amount),
        starts_at=at,
        until=at + timedelta(days=days),
        why="a deadline",
        alone=False,
        by=by,  # type: ignore[arg-type]  # a person of the test
        at=at,
    )


def asked(state: Budgets, amount: float, **given: object) -> Budgets:
    what = grant(amount, **given)  # type: ignore[arg-type]
    return after(*rules.ask_grant(state, what), state=state)  # type: ignore[arg-type]


def limit(state: Budgets, at: datetime = NOON) -> int:
    return state.budgets[BUDGET].limit_at(at, carried=0)


def test_a_small_grant_counts_at_once_until_its_end() -> None:
    state = asked(after(budget(amount=100)), 10)
    assert limit(state) == usd(110).nanos
    assert limit(state, NOON + timedelta(days=3)) == usd(100).nanos


def test_a_large_grant_takes_a_second_person_and_never_ones_own() -> None:
    state = asked(after(budget(amount=100)), 11)
    assert limit(state) == usd(100).nanos
    [(grant_id, _)] = state.budgets[BUDGET].grants.items()
    told = {"approved": True, "at": NOON}
    with pytest.raises(rules.GrantIsYourOwn):
        rules.decide_grant(state, TENANT, BUDGET, grant_id, by=PERSON, **told)  # type: ignore[arg-type]
    events = rules.decide_grant(state, TENANT, BUDGET, grant_id, by=SECOND, **told)  # type: ignore[arg-type]
    state = after(*events, state=state)
    assert limit(state) == usd(111).nanos
    assert not rules.decide_grant(state, TENANT, BUDGET, grant_id, by=SECOND, **told)  # type: ignore[arg-type]
    with pytest.raises(rules.GrantDecided):
        rules.decide_grant(state, TENANT, BUDGET, grant_id, by=SECOND, approved=False, at=NOON)


def test_many_small_grants_are_a_large_one() -> None:
    state = asked(after(budget(amount=100)), 6)
    state = asked(state, 5)
    assert limit(state) == usd(106).nanos
    assert [each.approved for each in state.budgets[BUDGET].grants.values()] == [True, None]


def test_a_grant_ends_in_the_period_in_which_it_begins() -> None:
    with pytest.raises(rules.GrantUnclear):
        asked(after(budget(amount=100)), 5, days=40)
    with pytest.raises(rules.SpendingBudgetUnknown):
        rules.ask_grant(Budgets(), grant(5))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "terms",
    [
        replace(budget(), title=" "),
        replace(budget(), amount=usd(0)),
        replace(budget(), subject="x"),
        replace(budget(), scope="project"),
        replace(budget(), thresholds=()),
        replace(budget(), thresholds=(USUAL[0], USUAL[0])),
        replace(budget(), thresholds=(Threshold(2_010_000, "notify"),)),
    ],
)
def test_an_unclear_budget_is_refused(terms: object) -> None:
    with pytest.raises(rules.SpendingBudgetUnclear):
        rules.set_budget(Budgets(), terms)  # type: ignore[arg-type]


def test_what_a_budget_counts_stays_and_an_ended_one_counts_no_more() -> None:
    state = after(budget())
    assert not rules.set_budget(state, replace(budget(), at=NOON + timedelta(days=1)))
    with pytest.raises(rules.SpendingScopeFixed):
        rules.set_budget(state, replace(budget(), scope="project", subject="llm"))
    with pytest.raises(rules.ZoneUnknown):
        rules.set_budget(state, replace(budget(), zone="Mars/Olympus"))
    state = after(*rules.end_budget(state, TENANT, BUDGET, by=PERSON, at=NOON), state=state)
    assert not state.blocking(WHO, "USD")
    assert not rules.end_budget(state, TENANT, BUDGET, by=PERSON, at=NOON)
    with pytest.raises(rules.SpendingBudgetOver):
        rules.set_budget(state, budget())


def test_the_forecast_is_what_is_spent_and_the_last_seven_days_again() -> None:
    period = period_at("week", NOON)  # Monday noon
    days = {period.starts_at.date() - timedelta(days=back): 10 for back in range(1, 8)}
    days[period.starts_at.date()] = 4
    told = forecast(days, [(30, NOON + timedelta(days=1))], period=period, now=NOON)
    assert (told.spent, told.run_rate, told.committed) == (4, 6 + 60, 30)
    assert (told.low, told.expected, told.high) == (34, 70, 100)


@given(
    st.dictionaries(
        st.dates(datetime(2025, 12, 1).date(), datetime(2026, 1, 31).date()),  # noqa: DTZ001
        st.integers(0, 10**12),
    ),
    st.lists(st.tuples(st.integers(0, 10**12), MOMENTS), max_size=5),
    KINDS,
)
def test_a_forecast_is_never_less_than_what_is_spent(
    days: dict[date, int], held: list[tuple[int, datetime]], kind: SpendingPeriod
) -> None:
    told = forecast(days, held, period=period_at(kind, NOON), now=NOON)
    assert told.spent <= told.low <= told.expected <= told.high


def test_a_budget_folds_to_what_its_events_say() -> None:
    state = drawn(after(budget(amount=100)), 1, 5)
    assert isinstance(state.budgets[BUDGET], Budget)
    assert state.drawn == 1
