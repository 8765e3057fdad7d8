"""Shares of a card: for those who take shares, one to a lease, never beside the whole card."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ledger.domain.money import Rate
from listings.domain.events import Division
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.facts.events import LeaseClosed, Patience, ReclaimRequested
from marketplace.queries.quotes import models_listed, window_quotes
from tests.conftest import NOON
from tests.marketplace.support.market import OWNER, Market, named, rate

QUARTERS = Division("mps", 4)
SLICES = Division("timeslice", 2)
LANES = pytest.mark.parametrize("patience", ["immediate", "patient"])


def uuids(market: Market) -> dict[str, tuple[str, ...]]:
    return {
        word: tuple(uuid for share in granted.shares for uuid in share.gpu_uuids)
        for word in ("x", "y", "z")
        if (granted := market.grant(word)) is not None
    }


@LANES
@pytest.mark.parametrize(
    ("query", "host"),
    [
        ("gpu=H100", "whole"),
        ("", "whole"),
        ("memory>=10GiB", "whole"),
        ("gpu=H100 isolation=mps", "quarters"),
        ("gpu=H100 isolation=timeslice", "slices"),
        ("gpu=H100-80GB-mps.25.20gb isolation=mps", "quarters"),
        ("gpu=H100 isolation=mps share>=26%", "whole"),
        ("gpu=H100 isolation=timeslice share>=26%", "slices"),
        ("gpu=H100 isolation=mps memory>=30GiB", "whole"),
        ("gpu=H100 isolation=cooperative share>=51%", "whole"),
        ("gpu=H100 isolation=mps nvlink", None),
        ("gpu=H100-80GB-mps.25.20gb", "quarters"),
        ("gpu=H100,H100-80GB-mps.25.20gb", "quarters"),
        ("gpu=H100,L4-mps.25.6gb", "whole"),
        ("gpu=H100-80GB-mps.25.20gb isolation=mig", None),
    ],
)
def test_a_bid_gets_a_share_only_when_it_takes_shares(
    query: str, host: str | None, patience: Patience
) -> None:
    market = Market()
    market.offer("quarters", division=QUARTERS, at=0.5)
    market.offer("slices", division=SLICES, at=0.25)
    market.offer("whole", at=1)
    market.bid("x", at=5, request=read_query(query), patience=patience)

    market.run()

    granted = market.grant("x")
    found = None if granted is None else granted.shares[0].host_id
    assert found == (None if host is None else named(f"host {host}"))


@LANES
def test_the_shares_of_a_card_are_leased_one_by_one(patience: Patience) -> None:
    market = Market()
    market.offer("slices", division=SLICES)
    soon = NOON + timedelta(hours=1)
    for word in ("x", "y", "z"):
        request = read_query("isolation=timeslice")
        market.bid(word, at=5, request=request, patience=patience, deadline=soon)

    market.run()

    taken = [uuid for each in uuids(market).values() for uuid in each]
    assert sorted(taken) == [
        f"slices:0/timeslice-{number}of2/50pct-{81_559 // 2}mib" for number in (1, 2)
    ]


@LANES
@pytest.mark.parametrize("least", [None, 1])
@pytest.mark.parametrize("query", ["isolation=cooperative", "gpu=H100,H100-80GB-mps.25.20gb"])
def test_several_gpus_are_never_shares(patience: Patience, least: int | None, query: str) -> None:
    market = Market()
    market.offer("quarters", gpus=2, division=QUARTERS)
    request = read_query(query)
    market.bid("x", at=5, gpus=2, gpus_min=least, request=request, patience=patience)

    market.run()

    assert market.grant("x") is None
    market.offer("whole", gpus=2, at=3)
    market.wait(minutes=2)
    market.run()
    assert uuids(market)["x"] == ("whole:0", "whole:1")


@LANES
@pytest.mark.parametrize("first", [None, QUARTERS])
def test_a_card_listed_in_another_form_waits_for_the_leases_of_the_first(
    first: Division | None, patience: Patience
) -> None:
    market = Market()
    query = "isolation=mps" if first else ""
    market.offer("first", host="card", division=first)
    market.bid("x", at=5, hours=2, request=read_query(query))
    market.run()
    market.change_offer("first", "withdraw")
    second = SLICES if first else QUARTERS
    market.offer("second", host="card", division=second)
    market.bid("y", at=5, request=read_query("isolation=timeslice"), patience=patience)

    market.wait(minutes=2)
    market.run()

    granted, before = market.grant("y"), market.grant("x")
    assert granted is not None
    assert before is not None
    assert granted.window.starts_at >= before.window.ends_at


def test_a_share_has_a_price_and_depth_of_its_own() -> None:
    market = Market()
    market.offer("quarters", division=QUARTERS, at=0.5)
    market.offer("whole", at=2)

    def price(model: str, gpus: int) -> set[Rate | None]:
        found = window_quotes(
            market.store, market=market.name, gpu_model=model, currency="USD", now=market.now
        )
        return {each.price for each in found if each.gpus == gpus}

    share = "H100-80GB-mps.25.20gb"
    assert models_listed(market.store, market=market.name) == [share, "H100-80GB"]
    assert price(share, 1) == {rate(0.5)}
    assert price(share, 8) == {None}
    assert price("H100-80GB", 1) == {rate(2)}


def test_the_whole_card_waits_for_its_shares() -> None:
    market = Market()
    market.offer("first", host="card", division=QUARTERS)
    market.bid("x", at=5, hours=2, request=read_query("isolation=mps"))
    market.run()
    market.change_offer("first", "withdraw")
    market.offer("second", host="card")
    market.bid("y", at=5)
    market.run()

    granted, before = market.grant("y"), market.grant("x")
    assert granted is not None
    assert before is not None
    assert granted.window.starts_at == before.window.ends_at


def test_what_an_owner_took_back_whole_is_leased_in_shares_once_listed_so() -> None:
    market = Market()
    market.offer("first", host="card")
    market.bid("x", at=5, hours=20)
    market.run()
    before = market.grant("x")
    assert before is not None
    lease_id = before.lease_id
    market.put(
        f"lease-{lease_id}",
        ReclaimRequested(
            lease_id=lease_id,
            owner_id=OWNER,
            stop_at=market.now + timedelta(minutes=5),
            at=market.now,
        ),
    )
    market.change_offer("first", "withdraw")
    market.offer("second", host="card", division=QUARTERS)
    market.wait(minutes=5)
    market.put(
        f"lease-{lease_id}",
        LeaseClosed(
            lease_id=lease_id,
            market=market.name,
            reason=201,
            failed=False,
            compensation=None,
            compensation_from=None,
            at=market.now,
        ),
    )
    market.bid("y", at=5, request=read_query("isolation=mps"))

    market.run()

    granted = market.grant("y")
    assert granted is not None
    assert granted.window.starts_at == market.now
