"""Silent hosts and GPUs with a fault are leased to nobody until they have proved well again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from listings.domain.divisions import divide
from listings.domain.events import Division
from marketplace.domain.book.book import Book
from marketplace.domain.clearing.card_form import is_idle
from marketplace.domain.facts.events import (
    ExtensionDeclined,
    GpuRequest,
    LeaseGranted,
    Patience,
    RoundCleared,
)
from marketplace.domain.facts.instants import from_above
from marketplace.explain.unsold_offer import explain_offer
from marketplace.queries.books import book_of, explain_bid
from marketplace.queries.market import depth
from marketplace.queries.quotes import window_quotes
from marketplace.replay.round import replay_round
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, OWNER, Market, gpus_of

HOUR = timedelta(hours=1)
BRIEF = [(NOON, NOON + timedelta(minutes=90))]
"""A window in which a GPU serves one bid of an hour."""
PATIENCE = pytest.mark.parametrize("patience", ["immediate", "patient"])


def gpus_granted(market: Market, word: str) -> set[str]:
    granted = market.grant(word)
    return set() if granted is None else {u for each in granted.shares for u in each.gpu_uuids}


def told(market: Market) -> list[str]:
    """Return the reasons of the last round that told any."""
    for recorded in reversed(market.decisions()):
        if isinstance(recorded.event, RoundCleared) and recorded.event.unmatched:
            return [each.reason for each in recorded.event.unmatched]
    return []


@PATIENCE
def test_no_bid_gets_a_host_that_is_silent(patience: Patience) -> None:
    market = Market()
    market.offer("dead", gpus=2, at=1, windows=BRIEF)
    market.offer("alive", gpus=1, at=2, windows=BRIEF)
    market.health("dead", "silent")
    market.bid("b", at=5, patience=patience)
    market.bid("waits", gpus=2, at=5, patience=patience)

    market.run()

    assert gpus_granted(market, "b") == {"alive:0"}
    assert market.grant("waits") is None


@PATIENCE
def test_a_bid_that_only_a_silent_host_fits_is_told_so_and_served_when_it_returns(
    patience: Patience,
) -> None:
    market = Market()
    market.offer("a", gpus=2, windows=BRIEF)
    market.health("a", "silent")
    bid_id = market.bid("b", gpus=2, at=5, patience=patience)
    market.run()

    assert told(market) == ["health"]
    explained = explain_bid(market.store, market=MARKET, bid_id=bid_id, now=market.now)
    assert explained is not None
    assert explained.reason == "health"
    market.wait(minutes=2)
    market.health("a", "returned")
    market.run()
    assert gpus_granted(market, "b") == {"a:0", "a:1"}


@PATIENCE
def test_no_bid_gets_a_host_that_its_owner_keeps_back_until_it_is_resumed(
    patience: Patience,
) -> None:
    market = Market()
    market.offer("a", gpus=1, windows=BRIEF)
    market.health("a", "paused")
    market.bid("b", at=5, patience=patience)
    market.run()
    assert market.grant("b") is None
    assert told(market) == ["health"]

    market.wait(minutes=2)
    market.health("a", "resumed")
    market.run()

    assert gpus_granted(market, "b") == {"a:0"}


@PATIENCE
def test_a_silent_host_that_is_resumed_is_still_silent(patience: Patience) -> None:
    market = Market()
    market.offer("a", gpus=1, windows=BRIEF)
    market.health("a", "paused")
    market.health("a", "silent")
    market.health("a", "resumed")
    market.bid("b", at=5, patience=patience)

    market.run()

    assert market.grant("b") is None


@PATIENCE
def test_the_other_gpus_of_a_host_go_on_being_leased(patience: Patience) -> None:
    market = Market()
    market.offer("a", gpus=4, windows=BRIEF)
    market.health("a", "unfit", 1)
    market.bid("b", gpus=3, at=5, patience=patience)
    market.bid("one too many", at=5, patience=patience)

    market.run()

    assert gpus_granted(market, "b") == {"a:0", "a:2", "a:3"}
    assert market.grant("one too many") is None
    market.wait(minutes=2)
    market.health("a", "fit", 1)
    market.run()
    assert gpus_granted(market, "one too many") == {"a:1"}


def test_it_does_not_matter_whether_the_fault_or_the_offer_came_first() -> None:
    market = Market()
    market.health("a", "silent")
    market.health("c", "unfit", 0)
    market.offer("a", windows=BRIEF)
    market.offer("c", gpus=2, windows=BRIEF)
    market.bid("b", gpus=1, at=5)
    market.bid("later", gpus=1, at=5)

    market.run()

    assert gpus_granted(market, "b") == {"c:1"}
    assert market.grant("later") is None


def test_an_offer_published_anew_on_a_silent_host_is_not_leased() -> None:
    """Publishing gives back what an owner kept after a reclaim, and nothing else."""
    market = Market()
    market.offer("a", windows=BRIEF)
    market.health("a", "silent")
    market.change_offer("a", "withdraw")
    market.offer("again", host="a", windows=BRIEF)
    market.bid("b", at=5)

    market.run()

    assert market.grant("b") is None


@pytest.mark.parametrize("what", ["pause", "reprice"])
def test_what_an_owner_changes_meanwhile_holds_and_brings_nothing_back(what: str) -> None:
    market = Market()
    market.offer("a", at=2, windows=BRIEF)
    market.health("a", "silent")
    market.change_offer("a", what, at=1)
    market.change_offer("a", "resume")
    market.bid("b", at=5)
    market.run()
    assert market.grant("b") is None

    market.health("a", "returned")
    market.run()

    assert market.grant("b") is not None


def test_a_gpu_that_is_lost_on_a_silent_host_stays_away_when_the_host_returns() -> None:
    market = Market()
    market.offer("a", gpus=2, windows=BRIEF)
    market.health("a", "unfit", 0)
    market.health("a", "silent")
    market.health("a", "returned")
    market.bid("b", at=5)
    market.bid("c", at=5)

    market.run()

    assert [gpus_granted(market, word) for word in "bc"] == [{"a:1"}, set()]


def test_a_fault_of_a_card_withholds_its_shares_and_its_instances() -> None:
    market = Market()
    market.offer("a", gpus=2, division=Division("timeslice", count=2), windows=BRIEF)
    market.health("a", "unfit", 0)
    share = GpuRequest(
        models=(divide(gpus_of("a", 1, "H100-80GB")[0], Division("timeslice", count=2))[0].model,)
    )
    for word in ("b", "c", "d"):
        market.bid(word, at=5, request=share)

    market.run()

    found = [gpus_granted(market, word) for word in ("b", "c", "d")]
    assert {uuid.split("/")[0] for each in found for uuid in each} == {"a:1"}
    assert sorted(map(len, found)) == [0, 1, 1]


def test_own_gpus_that_are_lost_serve_their_owner_neither() -> None:
    market = Market()
    market.offer("a", windows=BRIEF)
    market.health("a", "unfit")
    market.bid("own", tenant=OWNER, at=5)

    market.run()

    assert market.grant("own") is None


def test_no_lease_is_extended_on_a_gpu_with_a_fault() -> None:
    market = Market()
    market.offer("a")
    market.bid("b", hours=1, at=5)
    market.run()
    assert market.grant("b") is not None
    market.health("a", "unfit")
    market.extend("b", NOON + 2 * HOUR)

    market.run()

    (declined,) = [e.event for e in market.decisions() if isinstance(e.event, ExtensionDeclined)]
    assert declined.reason == "health"


def test_nobody_is_interrupted_for_what_could_not_be_used() -> None:
    """The lease that could be cut is on the lost GPU: cutting it would help nobody."""
    market = Market()
    market.offer("a", notice=timedelta(minutes=1))
    market.bid("victim", hours=6, at=2, service_class="interruptible")
    market.run()
    assert market.grant("victim") is not None
    market.wait(hours=1)
    market.health("a", "unfit")
    market.bid("b", hours=1, at=50, deadline=market.now + 2 * HOUR)

    market.run()

    assert market.grant("b") is None


def test_previews_quotes_and_depth_know_what_cannot_be_had() -> None:
    market = Market()
    market.offer("a", gpus=2, windows=BRIEF)
    market.bid("b", gpus=2, hours=1, at=0.5)
    market.health("a", "silent")
    market.run()

    quotes = window_quotes(
        market.store, market=MARKET, gpu_model="H100-80GB", currency="USD", now=market.now
    )
    assert {quote.price for quote in quotes} == {None}
    (model,) = depth(market.store, market=MARKET, gpu_model=None, now=market.now)
    assert model.asks == []


def test_an_owner_is_told_that_nobody_takes_the_offer_because_of_its_health() -> None:
    market = Market()
    offer_id = market.offer("a", gpus=2, windows=BRIEF)
    market.health("a", "silent")
    market.bid("b", gpus=1, at=5)
    market.run()

    found = explain_offer(market.store, market=MARKET, offer_id=offer_id, now=market.now)

    assert found is not None
    assert [(each.reason, each.bids) for each in found.removed] == [("health", 1)]


def test_an_offer_by_demand_does_not_change_its_form_on_a_card_with_a_fault() -> None:
    market = Market()
    offer_id = market.offer("a", division=Division("timeslice", count=2), windows=BRIEF)
    market.run()

    def idle() -> bool:
        with book_of(market.store, MARKET) as book:
            return is_idle(book, book.offers[offer_id].terms, now=from_above(market.now))

    assert idle()
    market.health("a", "unfit")
    assert not idle()
    market.health("a", "fit")
    assert idle()


def test_a_lease_that_ends_on_a_silent_host_is_cleared_from_the_book() -> None:
    market = Market()
    market.offer("a", windows=BRIEF)
    market.bid("b", hours=1, at=5)
    market.run()
    market.health("a", "silent")
    market.close("b")
    market.bid("c", hours=1, at=5)
    market.run()
    assert market.grant("c") is None

    market.health("a", "returned")
    market.run()

    assert market.grant("c") is not None


def test_a_round_with_silent_hosts_replays_to_the_same_grants() -> None:
    market = Market()
    for host in "abcd":
        market.offer(host, gpus=2, windows=BRIEF)
    market.health("b", "silent")
    market.health("c", "unfit", 1)
    for word in range(6):
        market.bid(f"w{word}", at=3, patience="patient")
    market.run()

    cleared = [e.event for e in market.decisions() if isinstance(e.event, RoundCleared)]
    grants = [e.event for e in market.decisions() if isinstance(e.event, LeaseGranted)]
    assert len(grants) == 5
    replayed = replay_round(market.store, market=MARKET, round_id=cleared[-1].round_id)
    assert replayed.outcome == "identical"


def test_hosts_of_other_markets_and_unknown_ones_disturb_nothing() -> None:
    market = Market()
    market.health("nowhere", "silent")
    market.health("nowhere", "returned")
    market.health("nowhere", "fit", 7)
    market.offer("a", windows=BRIEF)
    market.bid("b", at=5)

    market.run()

    assert market.grant("b") is not None
    book = Book(MARKET)
    assert not book.calendar.withheld
