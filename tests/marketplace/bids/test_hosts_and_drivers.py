"""Query words that look at the host: driver, size of the NVLink group, host, owner."""

from __future__ import annotations

import pytest

from marketplace.domain.bids.query_language import read_query
from marketplace.domain.book.book import Book
from marketplace.domain.facts.instants import from_above
from tests.conftest import NOON
from tests.marketplace.support.market import OWNER, Market, named


@pytest.fixture
def market() -> Market:
    """Return a market with two hosts: `pair` has two GPUs on one NVLink, `four` has four."""
    market = Market()
    market.offer("pair", gpus=2, nvlink=2, at=1)
    market.offer("four", gpus=4, nvlink=4, at=2)
    return market


def host_of(market: Market, query: str, **more: object) -> str | None:
    """Return the host on which a bid with this query is placed, or None."""
    market.bid("x", request=read_query(query), at=5, **more)  # type: ignore[arg-type]  # of bid()
    market.run()
    granted = market.grant("x")
    names = {named(f"host {name}"): name for name in ("pair", "four")}
    return None if granted is None else names[granted.shares[0].host_id]


@pytest.mark.parametrize(
    ("query", "host"),
    [
        ("", "pair"),
        ("nvlink", "pair"),
        ("nvlink>=2", "pair"),
        ("nvlink>=3", "four"),
        ("nvlink>=5", None),
        ("driver>=570", "pair"),
        ("driver>=570.86", "pair"),
        ("driver>=570.87", None),
        ("driver>=9999", None),
        (f"host={named('host four')}", "four"),
        (f"host={named('host four')},{named('host pair')}", "pair"),
        (f"not-host={named('host pair')}", "four"),
        (f"not-host={named('host pair')},{named('host four')}", None),
    ],
)
@pytest.mark.parametrize("patience", ["immediate", "patient"])
def test_a_bid_goes_only_where_its_words_let_it(
    market: Market, query: str, host: str | None, patience: str
) -> None:
    assert host_of(market, query, patience=patience) == host


def test_a_bid_for_its_own_gpus_takes_no_others(market: Market) -> None:
    strange = host_of(market, "tenant=own")
    market.bid("y", request=read_query("tenant=own"), tenant=OWNER, at=5)
    market.run()

    assert strange is None
    assert market.grant("y") is not None


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (f"not-host={named('host pair')},{named('host four')}", "host"),
        ("tenant=own", "host"),
        ("driver>=571", "driver"),
        ("nvlink>=5", "nvlink"),
    ],
)
def test_the_reason_names_the_word(market: Market, query: str, reason: str) -> None:
    market.bid("x", request=read_query(query), at=5)
    book = Book("main")
    for recorded in market.events():
        book.apply(recorded.event, recorded.position)
    [bid] = book.bids.values()
    now = from_above(NOON)

    assert book.explain(bid, now=now).reason == reason
    assert book.reason(bid, now=now, calendar=book.calendar) == reason
