"""An offer that cannot serve a bid alone is explained with the other offers of its market."""

from __future__ import annotations

import random

import pytest

from ledger.domain.ids import OfferId
from marketplace.explain.joint_offers import Together
from tests.marketplace.support.market import Market, named, rate
from tests.marketplace.support.unsold import changes, reasons, unsold


def leased(market: Market, bid: str, offer: str) -> bool:
    """Tell if a bid was granted GPUs of an offer."""
    granted = market.grant(bid)
    offers = [] if granted is None else [share.offer_id for share in granted.shares]
    return OfferId(named(f"offer {offer}")) in offers


def test_a_gang_is_told_to_be_served_with_others() -> None:
    market = Market()
    market.offer("a", gpus=2, at=1)
    market.offer("b", gpus=1, at=1)
    market.offer("c", gpus=1, at=1)
    market.bid("gang", gpus=4, at=2, gang=True, patience="patient")

    found = unsold(market)

    assert reasons(found) == {None: 1}
    assert found.bids[0].together == Together(mine=2, offers=2, gpus=2)
    assert (found.in_time, found.together, found.floor_needed) == (1, 1, rate(2))
    market.wait(minutes=5)
    market.run()
    assert leased(market, "gang", "a")


def test_a_floor_that_keeps_a_gang_away_is_told_and_lower_it_is_used() -> None:
    market = Market()
    market.offer("a", gpus=2, at=5)
    market.offer("b", gpus=2, at=1)
    market.bid("gang", gpus=4, at=2, gang=True)
    market.run()

    found = unsold(market)

    assert reasons(found) == {"limit": 1}
    change = changes(found)["floor"]
    assert (change.floor, change.bids, change.gpus, change.together) == (rate(2), 1, 4, 1)
    market.change_offer("a", "reprice", at=2)
    market.run()
    assert leased(market, "gang", "a")


def test_where_others_serve_it_for_less_the_floor_has_to_be_among_the_cheapest() -> None:
    market = Market()
    market.offer("a", gpus=2, at=3)
    market.offer("b", gpus=2, at=2)
    market.offer("c", gpus=2, at=2)
    market.bid("gang", gpus=4, at=4, gang=True, patience="patient")

    found = unsold(market)

    assert reasons(found) == {"elsewhere": 1}
    assert found.floor_needed is not None and found.floor_needed <= rate(2)
    assert changes(found)["floor"].floor == found.floor_needed


def test_what_others_ask_may_be_too_much() -> None:
    market = Market()
    market.offer("a", gpus=2, at=1)
    market.offer("b", gpus=2, at=9)
    market.bid("gang", gpus=4, at=2, gang=True)
    market.run()

    found = unsold(market)

    assert reasons(found) == {"limit-together": 1}
    assert (found.floor_needed, found.changes) == (None, ())


def test_on_one_host_it_has_too_few_with_or_without_others() -> None:
    market = Market()
    market.offer("a", gpus=2, at=1)
    market.offer("b", gpus=2, at=1)
    market.bid("big", gpus=4, at=2)
    market.run()

    assert reasons(unsold(market)) == {"size": 1}


@pytest.mark.parametrize("seed", range(12))
def test_the_floor_that_is_told_is_the_one_at_which_it_is_leased(seed: int) -> None:
    """Whatever gangs wait among whatever offers: at that floor the market takes it, really."""
    dice = random.Random(seed)
    market = Market()
    market.offer("a", gpus=dice.randint(1, 3), at=9)
    for number in range(dice.randint(1, 3)):
        market.offer(f"other {number}", gpus=dice.randint(1, 2), at=dice.randint(1, 4))
    market.bid("gang", gpus=dice.randint(3, 6), at=dice.randint(1, 5), gang=True)
    market.run()

    found = unsold(market)

    if found.floor_needed is None:
        market.change_offer("a", "reprice", at="0.01")
        market.run()
        assert not leased(market, "gang", "a")
    else:
        market.change_offer("a", "reprice", at=found.floor_needed.nanos_per_gpu_hour / 10**9)
        market.run()
        assert leased(market, "gang", "a")
