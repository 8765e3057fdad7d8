"""A bid goes only to hosts whose agents keep work apart as it asks, and can do what it needs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from listings.domain.events import Division
from marketplace.domain.bids import abilities
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.book.snapshot import restored, state_of
from marketplace.domain.facts.events import Patience, RoundCleared, Workload
from marketplace.domain.verification.verify_round import faults
from marketplace.queries.books import book_of, explain_bid
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, Market

BRIEF = [(NOON, NOON + timedelta(minutes=90))]
PATIENCE = pytest.mark.parametrize("patience", ["immediate", "patient"])


SECRET = Workload(kind="other", checkpoint_seconds=60)


@pytest.fixture(autouse=True)
def some_work_needs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what stands for a secret here need that ability."""
    monkeypatch.setattr(abilities, "NEEDS", (("checkpoint_seconds", "secrets"),))


def hosts_of(market: Market, word: str) -> set[str]:
    granted = market.grant(word)
    gpus = () if granted is None else [u for each in granted.shares for u in each.gpu_uuids]
    return {uuid.split(":")[0] for uuid in gpus}


@PATIENCE
def test_a_bid_goes_to_the_level_that_it_asks_for_or_a_stronger_one(patience: Patience) -> None:
    market = Market()
    for at, (host, level) in enumerate(
        {"silent": "", "weak": "account", "odd": "unheard-of", "good": "full"}.items(), 1
    ):
        market.offer(host, at=at, windows=BRIEF)
        market.agent(host, level)
    request = read_query("sandbox>=process")
    market.bid("b", at=9, request=request, patience=patience)
    waits = market.bid("waits", at=9, request=request, patience=patience)

    market.run()

    assert hosts_of(market, "b") == {"good"}
    told = explain_bid(market.store, market=MARKET, bid_id=waits, now=market.now)
    assert told is not None and told.reason == "taken"
    assert [stage.left for stage in told.funnel if stage.constraint == "sandbox"] == [1]


@PATIENCE
def test_a_bid_waits_for_what_no_host_gives_and_says_so(patience: Patience) -> None:
    market = Market()
    market.offer("a", windows=BRIEF)
    market.agent("a", "process", "files")
    asks = market.bid("asks", at=9, request=read_query("sandbox>=full"), patience=patience)
    needs = market.bid("needs", at=9, work=SECRET, patience=patience)

    market.run()

    assert market.grants() == {}
    for bid_id, reason in ((asks, "sandbox"), (needs, "abilities")):
        told = explain_bid(market.store, market=MARKET, bid_id=bid_id, now=market.now)
        assert told is not None and told.reason == reason


@PATIENCE
def test_work_goes_only_where_it_connects_as_its_bid_asks(patience: Patience) -> None:
    market = Market()
    for at, (host, word) in enumerate(
        {"silent": "", "list": "network-allow-list", "out": "network-open", "in": "network-none"}
        .items(), 1,
    ):  # fmt: skip
        market.offer(host, at=at, windows=BRIEF)
        market.agent(host, "process", *filter(None, [word]))
    bids = {
        f"{word}{number}": market.bid(
            f"{word}{number}", at=9, request=read_query(f"network={word}"), patience=patience
        )
        for number in (1, 2)
        for word in ("open", "none")
    }

    market.run()

    assert hosts_of(market, "open1") | hosts_of(market, "open2") == {"out"}
    assert hosts_of(market, "none1") | hosts_of(market, "none2") == {"in"}
    waiting = [bid_id for word, bid_id in bids.items() if market.grant(word) is None]
    assert len(waiting) == 2
    for bid_id in waiting:
        told = explain_bid(market.store, market=MARKET, bid_id=bid_id, now=market.now)
        assert told is not None and told.reason == "taken"
        assert [stage.left for stage in told.funnel if stage.constraint == "network"] == [1]


def test_a_share_by_mps_is_no_place_without_a_way_out() -> None:
    market = Market()
    market.offer("a", windows=BRIEF, isolation="mps", division=Division("mps", 2))
    market.agent("a", "process", "network-none")
    asked = replace(read_query("network=none"), isolation="mps")
    waits = market.bid("b", at=9, request=asked)

    market.run()

    told = explain_bid(market.store, market=MARKET, bid_id=waits, now=market.now)
    assert told is not None and told.reason == "network"


def test_a_round_that_placed_a_bid_on_another_network_is_not_appended() -> None:
    market = Market()
    market.offer("a", windows=BRIEF)
    market.agent("a", "full", "network-none")
    market.bid("b", at=9, request=read_query("network=none"), patience="patient")
    with book_of(market.store, MARKET) as book:
        before = restored(state_of(book))
    market.run()
    granted = market.grant("b")
    assert granted is not None
    (cleared,) = [e.event for e in market.decisions() if isinstance(e.event, RoundCleared)]

    assert faults(before, cleared, [granted]) == []
    before.agents.said.clear()

    said = {fault.said for fault in faults(before, cleared, [granted])}
    assert any("does not give work the network none" in each for each in said)


@PATIENCE
def test_it_is_served_once_an_agent_says_that_it_can(patience: Patience) -> None:
    market = Market()
    market.offer("a", gpus=2, windows=BRIEF)
    market.bid("asks", at=9, request=read_query("sandbox>=full"), patience=patience)
    market.bid("needs", at=9, work=SECRET, patience=patience)
    market.run()
    assert market.grants() == {}

    market.wait(minutes=2)
    market.agent("a", "full", "files", "secrets", "word-of-a-newer-agent")
    market.run()

    assert hosts_of(market, "asks") == hosts_of(market, "needs") == {"a"}


@PATIENCE
def test_a_host_that_runs_images_only_is_given_no_other_work(
    monkeypatch: pytest.MonkeyPatch, patience: Patience
) -> None:
    monkeypatch.setattr(abilities, "NEEDS", (("image", "podman"),))
    market = Market()
    market.offer("a", gpus=2, windows=BRIEF)
    market.agent("a", "container", "podman", "images-only")
    image = Workload(kind="other", image=f"train@sha256:{'0' * 64}")
    market.bid("contained", at=9, work=image, patience=patience)
    market.bid("bare", at=9, patience=patience)

    market.run()

    assert hosts_of(market, "contained") == {"a"}
    assert market.grant("bare") is None


def test_a_host_whose_agent_says_less_gets_no_new_bids_and_keeps_its_leases() -> None:
    market = Market()
    market.offer("a", gpus=2, windows=BRIEF)
    market.agent("a", "full", "secrets")
    market.bid("first", at=9, work=SECRET)
    market.run()

    market.agent("a", "full")
    market.bid("second", at=9, work=SECRET)
    market.bid("plain", at=9)
    market.run()

    assert hosts_of(market, "first") == hosts_of(market, "plain") == {"a"}
    assert market.grant("second") is None


def test_what_was_said_before_the_offer_holds_for_it_and_in_a_snapshot() -> None:
    market = Market()
    market.agent("a", "full")
    market.offer("a", windows=BRIEF)

    with book_of(market.store, MARKET) as book:
        again = restored(state_of(book))

    (listed,) = again.offers.values()
    assert listed.kind.sandbox == "full"


def test_a_round_that_placed_a_bid_below_its_level_is_not_appended() -> None:
    market = Market()
    market.offer("a", windows=BRIEF)
    market.agent("a", "full")
    market.bid("b", at=9, request=read_query("sandbox>=full"), patience="patient")
    with book_of(market.store, MARKET) as book:
        before = restored(state_of(book))
    market.run()
    granted = market.grant("b")
    assert granted is not None
    (cleared,) = [e.event for e in market.decisions() if isinstance(e.event, RoundCleared)]

    assert faults(before, cleared, [granted]) == []
    before.agents.said.clear()

    said = {fault.said for fault in faults(before, cleared, [granted])}
    assert any("keeps work apart less than full" in each for each in said)
