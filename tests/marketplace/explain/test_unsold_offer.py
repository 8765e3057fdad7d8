"""An offer says which bids looked at it, what stood in the way, and what would change it: truly."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from ledger.domain.ids import BidId
from ledger.domain.money import Rate
from marketplace.domain.facts.events import GpuRequest
from marketplace.explain.bid_advice import advise
from marketplace.explain.unsold_offer import explain_offer
from marketplace.queries.books import book_of, explain_bid
from marketplace.queries.market import Level
from tests.conftest import NOON
from tests.marketplace.support.governed import Governed
from tests.marketplace.support.market import MARKET, OWNER, Market, named, rate
from tests.marketplace.support.unsold import changes, reasons, unsold

HOUR = timedelta(hours=1)
REQUESTS = (GpuRequest(), GpuRequest(models=("T4",)), GpuRequest(region="us"))


def test_it_says_who_could_take_it_and_at_which_floor() -> None:
    market = Market()
    market.offer("a", gpus=2, at=5, windows=[(NOON, NOON + 4 * HOUR)])
    market.bid("low", gpus=2, hours=1, at=2)
    market.bid("high", gpus=1, hours=1, at=3)
    market.bid("other", at=9, request=GpuRequest(models=("T4",)))
    market.bid("long", at=9, hours=6)
    market.bid("big", at=9, gpus=3)
    market.run()

    found = unsold(market)

    assert (found.waiting, found.looked, found.fitting, found.in_time) == (5, 5, 4, 2)
    assert found.limits == (
        Level(rate(3).nanos_per_gpu_hour, 1),
        Level(rate(2).nanos_per_gpu_hour, 2),
    )
    assert (found.floor, found.floor_needed) == (rate(5), rate(3))
    assert reasons(found) == {"limit": 2, "gpu-model": 1, "windows": 1, "size": 1}
    assert not market.grants()
    market.change_offer("a", "reprice", at=3)
    market.run()
    assert market.grant("high") is not None


def test_each_bid_is_told_without_a_name_and_with_what_was_left() -> None:
    market = Market()
    market.offer("a", gpus=2, at=5)
    market.bid("low", gpus=2, hours=3, at=2)
    market.bid("big", gpus=3, at=9)
    market.run()

    big, low = unsold(market).bids

    assert (big.limit, big.gpus, big.reason, big.left) == (rate(9), 3, "size", 2)
    assert (low.limit, low.gpus, low.length, low.reason, low.left) == (
        rate(2), 2, 3 * HOUR, "limit", 2,
    )  # fmt: skip


def test_one_that_nobody_could_use_needs_no_other_floor() -> None:
    market = Market()
    market.offer("a", gpus=1, at=5)
    market.bid("other", at=9, request=GpuRequest(models=("T4",)))
    market.run()

    found = unsold(market)

    assert (found.fitting, found.floor_needed, found.changes) == (0, None, ())


def test_one_that_is_gone_is_not_in_the_book() -> None:
    market = Market()
    market.offer("a")
    market.change_offer("a", "withdraw")

    offer_id = named("offer a")
    assert explain_offer(market.store, market=MARKET, offer_id=offer_id, now=market.now) is None


def test_asking_about_an_offer_leaves_the_market_book_as_it_was() -> None:
    market = Market()
    for number, word in enumerate(("other", "a")):
        market.offer(word, gpus=1, at=5, model=("T4", "H100-80GB")[number])
    market.bid("low", at=2, request=GpuRequest(models=("H100-80GB",)))
    market.run()
    unsold(market)

    for word in ("a", "other"):
        market.change_offer(word, "withdraw")

    with book_of(market.store, MARKET) as book:
        assert not book.offers


def test_bids_of_the_owner_do_not_count() -> None:
    market = Market()
    market.offer("a", gpus=1, at=5)
    market.bid("mine", gpus=2, at=9, tenant=OWNER)
    market.run()

    assert unsold(market).waiting == 0


def test_a_paused_offer_is_told_who_would_take_it() -> None:
    market = Market()
    market.offer("a", gpus=1, at=1)
    market.change_offer("a", "pause")
    market.bid("x", at=2)
    market.run()

    found = unsold(market)

    assert reasons(found) == {"paused": 1}
    assert (found.fitting, found.in_time) == (1, 1)
    assert (changes(found)["resume"].bids, changes(found)["resume"].limit) == (1, rate(2))
    market.change_offer("a", "resume")
    market.run()
    assert market.grant("x") is not None


def test_a_floor_is_not_promised_to_a_bid_that_its_quota_holds_back() -> None:
    market = Governed()
    market.govern(red=(0, 0), blue=(8, 0))
    market.offer("a", gpus=4, at=5)
    market.ask("red", "red", 1, at=4)
    market.ask("blue", "blue", 1, at=2)
    market.run()

    found = unsold(market)

    assert found.floor_needed == rate(2), "red pays more, and may not"
    market.change_offer("a", "reprice", at=4)
    market.run()
    assert not market.grants()
    assert reasons(unsold(market)) == {"quota": 1, "limit": 1}
    market.change_offer("a", "reprice", at=2)
    market.run()
    assert set(market.grants()) == {named("bid blue")}


def test_the_shortest_lease_is_shortened_as_little_as_helps() -> None:
    market = Market()
    market.offer("a", gpus=1, at=1, lease_min=timedelta(hours=6))
    market.bid("two", hours=2, at=2)
    market.bid("four", hours=4, at=2)
    market.run()

    change = changes(unsold(market))["lease-minimum"]

    assert change.duration == 4 * HOUR
    assert change.bids == 1
    again = Market(now=market.now)
    again.offer("a", gpus=1, at=1, lease_min=4 * HOUR)
    again.bid("two", hours=2, at=2)
    again.bid("four", hours=4, at=2)
    again.run()
    assert set(again.grants()) == {named("bid four")}


def test_a_kind_of_workload_that_is_not_allowed_is_told() -> None:
    market = Market()
    market.offer("a", gpus=1, at=1, kinds=("rendering",))
    market.bid("x", at=2, kind="training")
    market.run()

    found = unsold(market)

    assert reasons(found) == {"workload-kind": 1}
    assert changes(found)["workload-kind"].bids == 1


def test_a_window_that_would_have_served_is_told_and_serves() -> None:
    market = Market()
    market.offer("a", gpus=1, at=1, windows=[(NOON, NOON + HOUR)])
    market.bid("x", hours=3, at=2, start=NOON + 2 * HOUR, deadline=NOON + 8 * HOUR)
    market.run()

    found = unsold(market)

    change = changes(found)["window"]
    assert reasons(found) == {"windows": 1}
    assert (change.starts_at, change.duration) == (NOON + 2 * HOUR, 3 * HOUR)
    assert change.starts_at is not None and change.duration is not None
    market.offer(
        "b", host="a", at=1, windows=[(change.starts_at, change.starts_at + change.duration)]
    )
    market.run()
    assert market.grant("x") is not None


@pytest.mark.parametrize("seed", range(40))
def test_the_floor_needed_is_what_the_engine_needs(seed: int) -> None:
    """At that floor it grants something of the offer, and at a nano-unit more it does not."""
    found = unsold(_drawn(seed))
    needed = found.floor_needed

    for more, expected in ((0, True), (1, False)):
        if needed is None or needed.nanos_per_gpu_hour >= found.floor.nanos_per_gpu_hour:
            continue
        market = _drawn(seed)
        market.change_offer("a", "reprice", (needed.nanos_per_gpu_hour + more) / 10**9)
        market.run()
        assert bool(market.grants()) is expected
    if needed is None:
        market = _drawn(seed)
        market.change_offer("a", "reprice", 0)
        market.run()
        assert not market.grants()


def _drawn(seed: int) -> Governed:
    """Return a market with one dear offer and some bids, under quotas in half of the cases."""
    dice = random.Random(seed)
    market = Governed()
    if seed % 2:
        market.govern(red=(dice.choice((0, 1, 3)), 0), blue=(dice.choice((0, 2)), 1))
    hours = dice.randint(1, 8)
    market.offer("a", gpus=dice.randint(1, 4), at=50, windows=[(NOON, NOON + hours * HOUR)])
    for number in range(dice.randint(1, 6)):
        market.asking = dice.choice(("red", "blue"))
        market.bid(
            f"{number}",
            gpus=dice.randint(1, 5),
            hours=dice.randint(1, 9),
            at=dice.randint(1, 40),
            request=dice.choice(REQUESTS),
            deadline=NOON + dice.randint(10, 12) * HOUR,
        )
    market.asking = ""
    market.run()
    assert not market.grants()
    return market


def test_a_bid_that_its_quota_holds_back_is_told_how_much_more_would_do() -> None:
    market = Governed()
    market.govern(red=(1, 0), blue=(8, None))
    market.offer("a", gpus=8, at=1)
    market.ask("red", "red", 3)
    market.run()

    found = advise(market.store, market=MARKET, bid_id=named("bid red"), now=market.now)

    told = {each.what: each for each in found or ()}
    assert (told["quota"].gpus, told["quota"].gpu_class) == (2, "H100")
    assert told["gpus"].gpus == 1, "or to ask for what its quota has"
    market.quota("red", 2, 0)
    market.run()
    assert BidId(named("bid red")) not in market.grants(), "one less does not do"
    market.quota("red", 3, 0)
    market.run()
    assert BidId(named("bid red")) in market.grants()


def test_what_a_unit_has_borrowed_counts_in_how_much_more_would_do() -> None:
    market = Governed()
    market.govern(red=(1, None), blue=(7, None))
    market.offer("a", gpus=8, at=1)
    market.ask("red", "has", 4, hours=100)
    market.run()
    market.quota("red", 1, 0)
    market.ask("red", "red", 2)
    market.run()

    [change] = [
        each
        for each in advise(market.store, market=MARKET, bid_id=named("bid red"), now=market.now)
        or ()
        if each.what == "quota"
    ]

    assert change.gpus == 5, "four are leased, two wanted, and one is its own"
    market.quota("red", 1 + 5, 0)
    market.run()
    assert named("bid red") in market.grants()


def test_no_price_is_told_where_quota_stands_in_the_way() -> None:
    market = Governed()
    market.govern(red=(0, 0), blue=(8, 0))
    market.offer("a", gpus=8, at=3)
    market.ask("red", "within", 1, at=4)
    market.ask("red", "below", 1, at=2)
    market.ask("blue", "blue", 1, at=2)
    market.run()

    def needed(word: str) -> Rate | None:
        bid_id = named(f"bid {word}")
        told = explain_bid(market.store, market=MARKET, bid_id=bid_id, now=market.now)
        assert told is not None
        return told.price_needed

    assert needed("within") is None
    assert needed("below") is None
    assert needed("blue") == rate(3)


def test_a_higher_limit_is_not_advised_where_quota_stands_in_the_way_too() -> None:
    market = Governed()
    market.govern(red=(0, 0), blue=(8, 0))
    market.offer("a", gpus=8, at=3)
    market.ask("red", "red", 1)
    market.run()

    assert advise(market.store, market=MARKET, bid_id=named("bid red"), now=market.now) == []
