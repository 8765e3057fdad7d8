"""A book puts units in the same order whichever way it came to be what it is."""

from __future__ import annotations

from random import Random
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.ids import LeaseId, SubscriberId, TenantId
from marketplace.domain.facts.events import BidPlaced
from marketplace.domain.facts.instants import from_above
from marketplace.domain.facts.policy_events import (
    CohortPlaced,
    GovernanceEvent,
    HalfLifeSet,
    ShareWeightSet,
    UnitPlaced,
)
from marketplace.domain.quotas.quota_book import QuotaBook
from marketplace.domain.quotas.snapshot import restored_quotas, state_of_quotas
from marketplace.domain.quotas.use import Gpus, Use
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, Market

HOUR = 3_600_000
START = from_above(NOON)
COHORTS = ("all", "left", "right", "inner")
UNITS = tuple(UUID(int=number) for number in range(1, 7))
CAPACITY = {"H100-80GB": 4, "A100-80GB": 8}


def terms_of(unit: UUID) -> BidPlaced:
    market = Market()
    market.bid("any", tenant=TenantId(unit))
    [bid] = [each.event for each in market.events() if isinstance(each.event, BidPlaced)]
    return bid


TERMS = {unit: terms_of(unit) for unit in UNITS}


def policies(random: Random) -> list[GovernanceEvent]:
    """Return who stands where and what counts how much, each said once."""
    parents = {"all": None, "left": "all", "right": "all", "inner": "left"}
    said: list[GovernanceEvent] = [
        CohortPlaced(market=MARKET, cohort=name, parent=parent, tenant_id=None, at=NOON)
        for name, parent in parents.items()
    ]
    said += [
        UnitPlaced(
            market=MARKET,
            subscriber_id=SubscriberId(unit),
            tenant_id=TenantId(unit),
            cohort=random.choice((None, *COHORTS)),
            at=NOON,
        )
        for unit in UNITS[:-1]
    ]
    said += [
        ShareWeightSet(
            market=MARKET, node=node, weight_ppm=random.choice((0, 10**6, 3 * 10**6)), at=NOON
        )
        for node in (*COHORTS, *map(str, UNITS))
        if random.random() < 0.5
    ]
    return [*said, HalfLifeSet(market=MARKET, seconds=random.choice((3_600, 86_400)), at=NOON)]


def uses(random: Random) -> dict[LeaseId, Use]:
    """Return leases of all units that begin within a day."""
    found = {}
    for number in range(random.randint(0, 20)):
        model = random.choice(tuple(CAPACITY))
        count, starts = random.randint(1, 3), START + random.randint(0, 24) * HOUR
        use = Use(
            TERMS[random.choice(UNITS)],
            (Gpus(model, count, count * 81_559),),
            starts,
            starts + random.randint(1, 30) * HOUR,
            0,
        )
        found[LeaseId(UUID(int=number))] = use
    return found


@given(st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_the_order_is_that_of_the_state_not_of_what_led_to_it(random: Random) -> None:
    said, taken = policies(random), uses(random)
    # One lease of a unit ends: what is forgotten of several is summed as they end.
    ends = {use.terms.subscriber_id: lease_id for lease_id, use in taken.items()}
    at = START + 30 * HOUR

    def book(chance: Random) -> QuotaBook:
        quotas = QuotaBook()
        for event in chance.sample(said, len(said)):
            quotas.apply(event)
        for lease_id in chance.sample([*taken], len(taken)):
            quotas.take(lease_id, taken[lease_id])
        for lease_id in chance.sample([*ends.values()], len(ends)):
            quotas.release(lease_id, at)
        return quotas

    one, other = book(Random(1)), book(Random(2))
    shares = one.shares(CAPACITY, at=at + HOUR)

    assert other.shares(CAPACITY, at=at + HOUR) == shares
    assert len({share.node for share in shares}) == len(shares) >= len(UNITS) - 1
    restored = restored_quotas(state_of_quotas(one))
    assert restored is not None
    assert restored.shares(CAPACITY, at=at + HOUR) == shares
    assert one.fork().shares(CAPACITY, at=at + HOUR) == shares
    together = one.standings(CAPACITY, at=at + HOUR)
    assert [share.node for share in shares] == sorted(together.units, key=together.key)
