"""The lab tells whether cohorts got what was theirs, and what cohorts would have changed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.ids import SubscriberId, TenantId
from marketplace.domain.facts.policy_events import CohortPlaced, GovernanceEvent, UnitPlaced
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.lab.cohorts import handed_out
from marketplace.lab.comparing import Question, compare
from marketplace.lab.figures import Figures, figures_of
from marketplace.lab.tally import Tally
from marketplace.lab.variants import Variant
from tests.marketplace.support.governed import unit_of
from tests.marketplace.support.hungry import CROWD, Hungry
from tests.marketplace.support.market import MARKET

HOURS = 24
PPM = 1_000_000


def hungry(cohorts: dict[str, list[str]]) -> Hungry:
    market = Hungry(cohorts, {})
    market.wait(minutes=30)
    for number in range(HOURS):
        market.hour(number, "instant")
    return market


def divided(market: Hungry) -> list[GovernanceEvent]:
    """Return what puts one unit into a cohort of its own, and all others into another."""
    at = market.now - timedelta(hours=HOURS)
    said: list[GovernanceEvent] = [
        CohortPlaced(market=MARKET, cohort=cohort, parent=None, tenant_id=None, at=at)
        for cohort in ("single", "crowd")
    ]
    return said + [
        UnitPlaced(
            market=MARKET,
            subscriber_id=SubscriberId(unit_of(unit)),
            tenant_id=TenantId(unit_of(unit)),
            cohort="single" if unit == "a" else "crowd",
            at=at,
        )
        for unit in market.units
    ]


def measured(market: Hungry, extra: list[GovernanceEvent]) -> Figures:
    tally = Tally.of(market.events(), MARKET, 0)
    policies = tally.policies
    for event in extra:
        policies = Policies.evolve(policies, event)
    until = market.now
    return figures_of(
        tally,
        currency="USD",
        since=until - timedelta(hours=HOURS),
        until=until,
        fee_ppm=0,
        policies=policies,
    )


@pytest.mark.parametrize("cohorts", [{"single": ["a"], "crowd": [*CROWD]}, {"": ["a", *CROWD]}])
def test_who_shares_fairly_at_each_level_is_at_a_million(cohorts: dict[str, list[str]]) -> None:
    assert measured(hungry(cohorts), []).jain_cohorts_ppm == PPM


def test_a_sixth_is_a_third_of_what_a_cohort_of_one_unit_should_have() -> None:
    market = hungry({"": ["a", *CROWD]})

    # A third of its part for one, five thirds for the other.
    expected = round((1 / 3 + 5 / 3) ** 2 / (2 * (1 / 9 + 25 / 9)) * PPM)
    assert measured(market, divided(market)).jain_cohorts_ppm == expected


def test_without_cohorts_there_is_nothing_to_tell() -> None:
    market = hungry({"": ["a", *CROWD]})
    tally = Tally.of(market.events(), MARKET, 0)
    since = market.now - timedelta(hours=HOURS)

    found = figures_of(tally, currency="USD", since=since, until=market.now, fee_ppm=0)

    assert found.jain_cohorts_ppm is None, "no policies, no cohorts"
    alone = hungry({"single": ["a"]})
    assert measured(alone, []).jain_cohorts_ppm is None


def test_cohorts_are_tried_on_the_past() -> None:
    market = hungry({"": ["a", *CROWD]})
    variant = Variant(policies=tuple(divided(market)))

    found = compare(
        market.store,
        market=MARKET,
        currency="USD",
        question=Question(HOURS, variant, 0),
        present=Variant(),
        fee_ppm=0,
        now=market.now,
    )

    assert found.again.jain_cohorts_ppm is not None
    assert found.again.jain_cohorts_ppm < 800_000
    assert found.recorded.jain_cohorts_ppm == found.again.jain_cohorts_ppm
    assert found.variant.jain_cohorts_ppm is not None
    assert found.variant.jain_cohorts_ppm > 990_000


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 1_000), min_size=1),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 4)),
    st.integers(0, 3_000),
)
def test_nobody_has_less_by_weight_unless_it_asked_for_less(
    asked: dict[str, int], weights: dict[str, int], total: int
) -> None:
    by_weight = {node: weights.get(node, 1) for node in asked}

    found = handed_out(total, asked, by_weight)

    assert sum(found.values()) == pytest.approx(min(total, sum(asked.values())))
    for node, part in found.items():
        assert part <= asked[node] + 1e-6
        if part < asked[node] - 1e-6 and by_weight[node]:
            level = part / by_weight[node]
            rest = [found[each] / by_weight[each] for each in found if by_weight[each]]
            assert level >= max(rest) - 1e-6, "who is short has as much by weight as any"
            assert all(found[each] <= 1e-6 for each in found if not by_weight[each])
