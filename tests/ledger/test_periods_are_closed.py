"""Closing a month: in order, by checks, and by two people where it is opened again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.closing import (
    Check,
    EarlierPeriodOpen,
    PeriodNotOver,
    PeriodNotReady,
    Periods,
    PeriodStateOtherwise,
    ReasonMissing,
    ReopeningAskedBefore,
    ReopeningNotAsked,
    SecondPersonNeeded,
)
from ledger.domain.closing_events import FrozenExport, PeriodEvent
from ledger.domain.ids import UserId
from ledger.domain.periods import Period
from ledger.domain.refusal import Refusal

JOAN, OSCAR = UserId(uuid4()), UserId(uuid4())
OCTOBER, NOVEMBER, DECEMBER = Period(2026, 10), Period(2026, 11), Period(2026, 12)
NEW_YEAR = datetime(2027, 1, 2, tzinfo=UTC)
MET = Check(name="trial-balance", title="Trial balance", passed=True, words="It adds up.")
MISSED = Check(name="use-rated", title="Use", passed=False, words="2 leases wait.")


def after(periods: Periods, events: Sequence[PeriodEvent]) -> Periods:
    for event in events:
        periods = Periods.evolve(periods, event)
    return periods


def closed(periods: Periods, period: Period) -> Periods:
    periods = after(periods, periods.soft_close(period, by=JOAN, now=NEW_YEAR))
    return after(periods, periods.close(period, checks=[MET], by=JOAN, now=NEW_YEAR))


def reopened(periods: Periods, period: Period) -> Periods:
    asked = periods.ask_to_reopen(period, reason="wrong rate", by=JOAN, now=NEW_YEAR)
    periods = after(periods, asked)
    return after(periods, periods.approve(period, by=OSCAR, now=NEW_YEAR))


def test_a_month_is_soft_closed_and_then_closed() -> None:
    periods = Periods()
    assert periods.month(OCTOBER).state == "open"

    periods = after(periods, periods.soft_close(OCTOBER, by=JOAN, now=NEW_YEAR))
    assert periods.month(OCTOBER).state == "soft-closed"
    assert periods.counts_in(OCTOBER) == OCTOBER

    periods = after(periods, periods.close(OCTOBER, checks=[MET], by=JOAN, now=NEW_YEAR))
    assert periods.month(OCTOBER).state == "closed"
    assert periods.counts_in(OCTOBER) == NOVEMBER


def test_a_month_that_is_not_over_is_not_closed() -> None:
    last = DECEMBER.window.ends_at - timedelta(microseconds=1)
    with pytest.raises(PeriodNotOver):
        Periods().soft_close(DECEMBER, by=JOAN, now=last)

    assert Periods().soft_close(DECEMBER, by=JOAN, now=DECEMBER.window.ends_at)


def test_what_is_left_to_do_keeps_a_month_open_and_is_named() -> None:
    periods = after(Periods(), Periods().soft_close(OCTOBER, by=JOAN, now=NEW_YEAR))

    with pytest.raises(PeriodNotReady) as refused:
        periods.close(OCTOBER, checks=[MET, MISSED], by=JOAN, now=NEW_YEAR)

    assert refused.value.details["checks"] == ["Use: 2 leases wait."]


def test_all_months_before_the_first_one_are_closed_with_it() -> None:
    periods = closed(Periods(), NOVEMBER)

    assert periods.month(Period(2025, 3)).state == "closed"
    assert periods.counts_in(Period(2025, 3)) == DECEMBER


def test_months_are_closed_in_order() -> None:
    periods = closed(Periods(), OCTOBER)

    with pytest.raises(EarlierPeriodOpen) as refused:
        periods.soft_close(DECEMBER, by=JOAN, now=NEW_YEAR)

    assert refused.value.details["open"] == "2026-11"
    assert closed(closed(periods, NOVEMBER), DECEMBER).counts_in(OCTOBER) == Period(2027, 1)


def test_the_first_month_that_is_closed_leaves_none_before_it_half_closed() -> None:
    """Else a month would be open, with two people never asked, behind one that is closed."""
    periods = after(Periods(), Periods().soft_close(NOVEMBER, by=JOAN, now=NEW_YEAR))
    periods = after(periods, periods.soft_close(OCTOBER, by=JOAN, now=NEW_YEAR))

    with pytest.raises(EarlierPeriodOpen):
        periods.close(NOVEMBER, checks=[MET], by=JOAN, now=NEW_YEAR)

    periods = after(periods, periods.close(OCTOBER, checks=[MET], by=JOAN, now=NEW_YEAR))
    periods = after(periods, periods.close(NOVEMBER, checks=[MET], by=JOAN, now=NEW_YEAR))
    assert periods.through == NOVEMBER


def test_a_month_is_opened_again_by_two_people_and_closed_anew() -> None:
    periods = closed(closed(Periods(), OCTOBER), NOVEMBER)
    periods = reopened(periods, OCTOBER)

    assert periods.month(OCTOBER).state == "open" and periods.counts_in(OCTOBER) == OCTOBER
    assert periods.counts_in(NOVEMBER) == DECEMBER
    with pytest.raises(EarlierPeriodOpen):
        periods.soft_close(DECEMBER, by=JOAN, now=NEW_YEAR)
    assert closed(periods, OCTOBER).counts_in(OCTOBER) == DECEMBER


def test_whoever_asked_does_not_approve() -> None:
    periods = closed(Periods(), OCTOBER)
    asked = periods.ask_to_reopen(OCTOBER, reason="wrong rate", by=JOAN, now=NEW_YEAR)
    periods = after(periods, asked)

    with pytest.raises(SecondPersonNeeded):
        periods.approve(OCTOBER, by=JOAN, now=NEW_YEAR)

    declined = after(periods, periods.decline(OCTOBER, by=JOAN, now=NEW_YEAR))
    with pytest.raises(ReopeningNotAsked):
        declined.approve(OCTOBER, by=OSCAR, now=NEW_YEAR)


def test_asking_the_same_twice_changes_nothing_and_another_reason_is_refused() -> None:
    periods = closed(Periods(), OCTOBER)
    asked = periods.ask_to_reopen(OCTOBER, reason="wrong rate", by=JOAN, now=NEW_YEAR)
    periods = after(periods, asked)

    assert not periods.ask_to_reopen(OCTOBER, reason="wrong rate", by=JOAN, now=NEW_YEAR)
    with pytest.raises(ReopeningAskedBefore):
        periods.ask_to_reopen(OCTOBER, reason="wrong price", by=JOAN, now=NEW_YEAR)
    with pytest.raises(ReasonMissing):
        periods.ask_to_reopen(OCTOBER, reason=" ", by=JOAN, now=NEW_YEAR)


STEPS: dict[str, Callable[[Periods], Sequence[PeriodEvent]]] = {
    "soft-close": lambda all_: all_.soft_close(OCTOBER, by=JOAN, now=NEW_YEAR),
    "close": lambda all_: all_.close(OCTOBER, checks=[MET], by=JOAN, now=NEW_YEAR),
    "ask": lambda all_: all_.ask_to_reopen(OCTOBER, reason="x", by=JOAN, now=NEW_YEAR),
}
MAY = {"open": "soft-close", "soft-closed": "close", "closed": "ask"}


@pytest.mark.parametrize("state", MAY)
@pytest.mark.parametrize("step", STEPS)
def test_each_step_is_taken_from_one_state_only(state: str, step: str) -> None:
    periods = Periods()
    for name in ("soft-close", "close")[: list(MAY).index(state)]:
        periods = after(periods, STEPS[name](periods))

    if MAY[state] == step:
        assert STEPS[step](periods)
    else:
        with pytest.raises(PeriodStateOtherwise):
            STEPS[step](periods)


def test_exports_are_noted_once_for_each_time_that_a_month_is_closed() -> None:
    export = FrozenExport(format="gl", version="1", position=7, rows=1, bytes=9, sha256="00")
    periods = closed(Periods(), OCTOBER)

    noted = periods.freeze(OCTOBER, exports=[export], now=NEW_YEAR)
    assert noted
    periods = after(periods, noted)
    assert not periods.freeze(OCTOBER, exports=[export], now=NEW_YEAR)
    assert not periods.freeze(NOVEMBER, exports=[export], now=NEW_YEAR)
    again = closed(reopened(periods, OCTOBER), OCTOBER)
    assert again.freeze(OCTOBER, exports=[export], now=NEW_YEAR)


MONTHS = [Period(2026, month) for month in range(6, 13)]


@given(
    st.lists(
        st.tuples(st.sampled_from(["soft", "close", "ask", "approve"]), st.sampled_from(MONTHS)),
        max_size=40,
    )
)
def test_what_counts_in_a_month_never_goes_back_into_a_closed_one(
    steps: list[tuple[str, Period]],
) -> None:
    periods = Periods()
    for step, period in steps:
        try:
            match step:
                case "soft":
                    events = periods.soft_close(period, by=JOAN, now=NEW_YEAR)
                case "close":
                    events = periods.close(period, checks=[MET], by=JOAN, now=NEW_YEAR)
                case "ask":
                    events = periods.ask_to_reopen(period, reason="x", by=JOAN, now=NEW_YEAR)
                case _:
                    events = periods.approve(period, by=OSCAR, now=NEW_YEAR)
        except Refusal:
            continue
        periods = after(periods, events)

    for period in MONTHS:
        counted = periods.counts_in(period)
        assert counted >= period and periods.month(counted).state != "closed"
        between = (each for each in MONTHS if period <= each < counted)
        assert all(periods.month(each).state == "closed" for each in between)
