"""A bid says which notice and which fee it accepts; the engine leases it nothing on less."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from ledger.domain.ids import TenantId
from marketplace.domain.bids.query_language import ValueUnreadable, read_query, write_query
from marketplace.domain.decisions.decide import on_round
from marketplace.domain.facts.events import LeaseGranted, Patience, RoundCleared
from marketplace.domain.facts.instants import from_above
from marketplace.domain.verification.verify_round import faults
from marketplace.queries.books import explain_bid
from marketplace.replay.round import replay_round
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import MARKET, OWNER, Market, named
from tests.marketplace.support.rounds import ROUND, book_of

MINUTE = timedelta(minutes=1)


def two_owners() -> Market:
    """Return a market where the cheap host gives five minutes' notice, the dear one an hour.

    Both pay a tenth of what is lost. The cheap one kills work a quarter of a minute after the
    signal to stop, the dear one five minutes after it.
    """
    market = Market()
    market.offer("short", gpus=2, at=1, notice=5 * MINUTE)
    market.offer("long", gpus=2, at=2, notice=60 * MINUTE, grace=5 * MINUTE)
    return market


@pytest.mark.parametrize("patience", ["immediate", "patient"])
@pytest.mark.parametrize(
    ("query", "host"),
    [
        ("", "short"),
        ("notice>=5m", "short"),
        ("notice>=6m", "long"),
        ("notice>=1h reclaim>=10%", "long"),
        ("notice>=61m", "notice"),
        ("reclaim>=11%", "reclaim"),
        ("grace>=15s", "short"),
        ("grace>=16s", "long"),
        ("notice>=1h grace>=5m", "long"),
        ("grace>=301s", "grace"),
    ],
)
def test_it_goes_where_enough_is_promised(query: str, host: str, patience: Patience) -> None:
    """host: that it goes to; where none promises enough, the reason."""
    market = two_owners()
    market.bid("x", at=5, request=read_query(query), patience=patience)
    market.run()

    granted = market.grant("x")
    if host in ("notice", "reclaim", "grace"):
        assert granted is None
        found = explain_bid(market.store, market=MARKET, bid_id=named("bid x"), now=market.now)
        assert found is not None and (found.reason, found.filed) == (host, "host")
        return
    assert granted is not None
    assert {share.host_id for share in granted.shares} == {named(f"host {host}")}
    audit(market.events())


def test_new_supply_on_better_terms_serves_a_bid_that_waits() -> None:
    market = two_owners()
    market.bid("x", at=5, request=read_query("notice>=2h"))
    market.run()
    market.offer("longer", gpus=1, at=3, notice=120 * MINUTE)
    market.run()
    granted = market.grant("x")
    assert granted is not None and granted.shares[0].notice_seconds == 7_200


ASKED = "notice>=30m reclaim>=20% grace>=60s"


def four_owners() -> Market:
    """Return a market of ten GPUs: four lack the notice, three the fee, two the grace, one nothing.

    Those that lack the notice lack all else too, and so on.
    """
    market = Market()
    market.offer("poor", gpus=4)
    market.offer("noticed", gpus=3, notice=60 * MINUTE)
    market.offer("paid", gpus=2, notice=60 * MINUTE)
    market.offer("good", gpus=1, notice=30 * MINUTE, grace=MINUTE)
    for word in ("paid", "good"):
        market.change_terms(word, reclaim_fee_ppm=200_000)
    return market


@pytest.mark.parametrize(
    ("gpus", "reason"), [(1, None), (2, "grace"), (4, "reclaim"), (7, "notice"), (11, "listed")]
)
def test_a_funnel_tells_notice_fee_and_grace_apart(gpus: int, reason: str | None) -> None:
    market = four_owners()
    market.bid("x", gpus=gpus, gang=True, at=5, request=read_query(ASKED))

    found = explain_bid(market.store, market=MARKET, bid_id=named("bid x"), now=market.now)

    assert found is not None and found.reason == reason
    steps = {stage.constraint: (stage.left, stage.asked) for stage in found.funnel}
    assert steps["host"] == (10, "")
    assert steps["notice"] == (6, "notice>=30m")
    assert steps["reclaim"] == (3, "reclaim>=20%")
    assert steps["grace"] == (1, "grace>=1m")
    assert steps["reliability"] == (1, "")


@pytest.mark.parametrize("patience", ["immediate", "patient"])
def test_what_is_decided_names_them_as_one_as_it_always_did(patience: Patience) -> None:
    """Rounds of before told `host`, and one that is cleared again must tell the same."""
    market = four_owners()
    owner = TenantId(named("tenant owner"))
    market.offer("own", gpus=1, owner=owner)
    words = {"x": None, "y": owner}
    for word, tenant in words.items():
        request = read_query(ASKED)
        market.bid(word, gpus=4, at=5, request=request, tenant=tenant, patience=patience)
    market.run()

    told = [each.event for each in market.decisions() if isinstance(each.event, RoundCleared)]
    reasons = {each.bid_id: each.reason for event in told for each in event.unmatched}
    assert reasons == {named("bid x"): "host", named("bid y"): "host"}
    again = {
        replay_round(market.store, market=MARKET, round_id=event.round_id).outcome for event in told
    }
    assert again == {"identical"}


def test_of_ones_own_gpus_nothing_is_asked() -> None:
    market = two_owners()
    market.bid("x", at=5, request=read_query("notice>=7d"), tenant=TenantId(OWNER))
    market.run()
    granted = market.grant("x")
    assert granted is not None and granted.own


def test_the_check_of_a_round_finds_less_than_was_asked_for() -> None:
    market = two_owners()
    market.bid("x", at=5, request=read_query("notice>=5m"), patience="patient")
    book = book_of(market)
    told, granted = on_round(book, now=from_above(market.now), round_id=ROUND)
    assert isinstance(told, RoundCleared) and isinstance(granted, LeaseGranted)
    assert faults(book, told, [granted]) == []

    bid = book.bids[granted.bid_id]
    for asked in ("notice>=6m", "reclaim>=11%", "grace>=16s"):
        terms = replace(bid.terms, request=read_query(asked))
        book.bids[granted.bid_id] = replace(bid, terms=terms)
        assert any("promises less" in each.said for each in faults(book, told, [granted]))

    book.bids[granted.bid_id] = bid
    longer = replace(granted, shares=tuple(replace(s, grace_seconds=60) for s in granted.shares))
    assert any("other terms" in each.said for each in faults(book, told, [longer]))


@pytest.mark.parametrize(
    "text",
    [
        "notice>=30m",
        "notice>=90s",
        "notice>=2h reclaim>=20% grace>=90s",
        "grace>=15m",
        "starts<=1d",
        "grace>=1m starts<=90s availability>=0.9999",
    ],
)
def test_what_is_read_is_written(text: str) -> None:
    assert write_query(read_query(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "notice>=0m",
        "notice>=8d",
        "notice>=5",
        "reclaim>=0%",
        "reclaim>=101%",
        "grace>=0s",
        "grace>=16m",
        "grace>=901s",
        "grace>=60",
        "starts<=0s",
        "starts<=86401s",
        "starts<=60",
        "availability>=0",
        "availability>=1.1",
        "availability>=99%",
    ],
)
def test_what_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ValueUnreadable):
        read_query(text)
