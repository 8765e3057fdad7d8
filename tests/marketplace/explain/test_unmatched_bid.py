"""A bid that ended unmatched says why, as the market was at the last moment it could have begun."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from ledger.domain.ids import BidId
from ledger.eventstore.postgres import PostgresStore
from marketplace.domain.facts.bid_events import BidCancelled, BidExpired
from marketplace.explain import ended_bid as ended
from marketplace.explain.ended_bid import Ended, explain_ended
from marketplace.snapshots.postgres import PostgresSnapshots
from tests.marketplace.support.market import MARKET, Market, OpenStore, named, rate

HOUR = timedelta(hours=1)


def told(market: Market, word: str) -> Ended | None:
    return explain_ended(market.store, market=MARKET, bid_id=named(f"bid {word}"))


def expire(market: Market, word: str) -> None:
    bid_id = BidId(named(f"bid {word}"))
    market.put(f"bid-{bid_id}", BidExpired(bid_id=bid_id, at=market.now))


def test_it_says_what_price_would_have_won() -> None:
    market = Market()
    market.offer("a", gpus=2, at=3)
    placed = market.now
    market.bid("low", gpus=1, hours=2, at=2, deadline=placed + 5 * HOUR)
    market.run()
    market.wait(hours=4)
    expire(market, "low")
    market.change_offer("a", "reprice", at=1)
    market.run()

    found = told(market, "low")

    assert found is not None
    assert found.explanation.reason == "limit"
    assert found.explanation.price_needed == rate(3), "not what it costs now"
    assert found.at == placed + 3 * HOUR, "the last moment at which it could have begun"


def test_it_says_that_others_held_the_gpus_then() -> None:
    market = Market()
    market.offer("a", gpus=1, at=1)
    market.bid("first", gpus=1, hours=9, at=3)
    market.bid("second", gpus=1, hours=1, at=2, deadline=market.now + 2 * HOUR)
    market.run()
    market.wait(hours=2)
    expire(market, "second")
    market.wait(hours=1)
    market.close("first")

    found = told(market, "second")

    assert found is not None and found.explanation.reason == "taken"


def test_one_that_was_withdrawn_is_explained_as_of_then() -> None:
    market = Market()
    market.offer("a", gpus=1, at=5)
    market.bid("low", gpus=1, hours=1, at=2)
    market.run()
    market.wait(minutes=10)
    bid_id = BidId(named("bid low"))
    market.put(f"bid-{bid_id}", BidCancelled(bid_id=bid_id, at=market.now))

    found = told(market, "low")

    assert found is not None and (found.at, found.explanation.reason) == (market.now, "limit")


def test_one_that_waits_or_was_granted_or_is_unknown_is_not_told() -> None:
    market = Market()
    market.offer("a", gpus=1, at=1)
    market.bid("granted", gpus=1, at=2)
    market.bid("waits", gpus=1, at=2)
    market.run()

    assert [told(market, word) for word in ("granted", "waits", "nobody")] == [None] * 3


def test_it_is_the_same_from_a_snapshot(db: None) -> None:
    market = Market(PostgresStore())
    market.keep(PostgresSnapshots(), facts=2)
    for number in range(6):
        market.offer(f"o {number}", gpus=1, at=3)
        market.bid(f"b {number}", gpus=1, hours=1, at=2, deadline=market.now + 2 * HOUR)
        market.run()
        market.wait(hours=2)
        expire(market, f"b {number}")
        market.run()

    ended._kept.clear()
    found = [told(market, f"b {number}") for number in range(6)]
    plain = Market(OpenStore())
    for each in market.store.read_all().events:
        plain.put(each.stream, each.event)

    assert all(each is not None and each.explanation.reason == "limit" for each in found)
    assert found == [told(plain, f"b {number}") for number in range(6)]
    assert explain_ended(market.store, market=MARKET, bid_id=uuid4()) is None
