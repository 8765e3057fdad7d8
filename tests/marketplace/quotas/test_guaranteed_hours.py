"""Guaranteed GPU-hours per period, and who may lease or borrow what: as the engine keeps them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from listings.domain.permit_events import ListingAllowed
from listings.domain.permits import ListingPermits
from marketplace.domain.facts.policy_events import (
    GuaranteePeriodSet,
    QuotaSet,
    UseAllowed,
    UseKind,
)
from marketplace.domain.quotas.policies_in_force import Policies
from tests.marketplace.support.governed import Governed, unit_of
from tests.marketplace.support.market import MARKET, OWNER

DAY = 86_400


class Hours(Governed):
    """Red and blue in one cohort, red with guaranteed GPU-hours."""

    def hours(self, word: str, nominal: int | None, gpu_hours: int | None) -> None:
        self.policy(
            QuotaSet(
                market=MARKET,
                node=str(unit_of(word)),
                gpu_class="H100",
                nominal=nominal,
                borrowing=None,
                lending=None,
                at=self.now,
                gpu_hours=gpu_hours,
            )
        )

    def allow(self, who: str | None, gpu_class: str, what: UseKind, allowed: bool) -> None:
        self.policy(
            UseAllowed(
                market=MARKET, who=who, gpu_class=gpu_class, what=what, allowed=allowed, at=self.now
            )
        )

    def price(self, bid: object) -> float:
        return self.granted()[str(bid)].price.nanos_per_gpu_hour / 1_000_000_000


@pytest.fixture
def market() -> Hours:
    """Eight GPUs whose floor is 1; a bid that came first sets the price of what comes later."""
    market = Hours()
    market.govern(red=(4, None), blue=(4, None))
    return market


def test_within_the_hours_it_pays_the_transfer_price_and_beyond_the_market_s(
    market: Hours,
) -> None:
    market.hours("red", 4, 6)
    first = market.ask("red", "first", 2, hours=2, at=3)
    then = market.ask("red", "then", 2, hours=2, at=3)
    market.run()

    market.offer("rack", gpus=8, at=1)
    market.run()

    assert market.price(first) == 1, "4 of 6 GPU-hours: at the floor"
    assert market.price(then) == 3, "4 + 4 > 6: at its own price, as it waited"


def test_the_hours_begin_anew_in_each_period(market: Hours) -> None:
    market.policy(
        GuaranteePeriodSet(
            market=MARKET, seconds=DAY, starts_at=datetime(2026, 1, 1, tzinfo=UTC), at=market.now
        )
    )
    market.hours("red", 4, 4)
    spent = market.ask("red", "spent", 2, hours=2, at=3)
    market.run()
    market.offer("rack", gpus=8, at=1)
    market.run()
    market.wait(hours=24)
    anew = market.ask("red", "anew", 2, hours=2, at=3)
    market.run()

    assert market.price(spent) == market.price(anew) == 1


def test_unset_is_not_none(market: Hours) -> None:
    """Without hours all of the nominal quota is guaranteed; with 0 none of it is."""
    market.hours("red", 4, 0)
    red = market.ask("red", "red", 2, hours=2, at=3)
    blue = market.ask("blue", "blue", 2, hours=2, at=3)
    market.run()

    market.offer("rack", gpus=8, at=1)
    market.run()

    assert (market.price(red), market.price(blue)) == (3, 1)


def test_hours_alone_guarantee_whatever_gpus_there_are(market: Hours) -> None:
    market.hours("red", None, 10)
    red = market.ask("red", "red", 2, hours=2, at=3)
    market.run()

    market.offer("rack", gpus=8, at=1)
    market.run()

    assert market.price(red) == 1


def test_who_may_not_lease_a_model_gets_another_one_it_may(market: Hours) -> None:
    market.offer("rack", gpus=8, model="H100-80GB", at=1)
    market.offer("old", gpus=8, model="A100-80GB", at="1.50")
    market.allow(str(unit_of("red")), "H100", "lease", False)

    any_of = market.ask("red", "either", 2)
    market.run()

    assert market.granted()[str(any_of)].gpu_model == "A100-80GB"


def test_who_may_lease_nothing_like_it_is_told_so(market: Hours) -> None:
    market.offer("rack", gpus=8)
    market.allow(None, "any", "lease", False)
    market.allow("lab", "A100", "lease", True)

    bid = market.ask("red", "never", 2)
    market.run()

    assert str(bid) not in market.granted()
    assert market.told(bid) == "not-allowed"


def test_who_may_not_borrow_keeps_to_its_own(market: Hours) -> None:
    market.offer("rack", gpus=8)
    market.allow(str(unit_of("red")), "any", "borrow", False)

    own = market.ask("red", "own", 4, hours=30)
    more = market.ask("red", "more", 1)
    market.run()

    assert str(own) in market.granted()
    assert market.told(more) == "quota"


def test_the_nearer_word_on_the_nearer_class_counts() -> None:
    permits = ListingPermits()
    for tenant_id, gpu_class, allowed in (
        (None, "any", False),
        (None, "A100", True),
        (OWNER, "any", True),
        (OWNER, "B200", False),
    ):
        permits = ListingPermits.evolve(
            permits,
            ListingAllowed(
                market=MARKET,
                tenant_id=tenant_id,
                gpu_class=gpu_class,
                allowed=allowed,
                at=datetime(2026, 1, 1, tzinfo=UTC),
            ),
        )
    other = unit_of("other")

    assert permits.may_list(OWNER, "H100-80GB")
    assert not permits.may_list(OWNER, "B200-180GB")
    assert permits.may_list(other, "A100-80GB")  # type: ignore[arg-type]  # an id of anybody
    assert not permits.may_list(other, "H100-80GB")  # type: ignore[arg-type]


def test_periods_lie_end_to_end_before_and_after_their_start() -> None:
    policies = Policies(period_seconds=DAY, period_starts=datetime(2026, 1, 10, 6, tzinfo=UTC))

    early = policies.period_at(datetime(2026, 1, 1, tzinfo=UTC))

    assert early == (datetime(2025, 12, 31, 6, tzinfo=UTC), datetime(2026, 1, 1, 6, tzinfo=UTC))
    assert policies.period_at(early[1])[0] == early[1]
