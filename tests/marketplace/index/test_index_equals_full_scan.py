"""The book's columns only ever save time: a book that looks at everything decides the same."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marketplace.domain.book.book import Book
from marketplace.domain.facts.events import LeaseGranted, MarketEvent
from marketplace.domain.orderbook.listed_offer import Entry
from marketplace.domain.orderbook.open_bid import OpenBid
from tests.kernels import as_python
from tests.marketplace.support.market import MARKET
from tests.marketplace.support.plain_book import PlainBook
from tests.marketplace.support.random_market import Crowd, Lane

ACTS = 60


@pytest.mark.parametrize("compiled", [True, False])
@given(st.randoms(use_true_random=True))
@settings(max_examples=40, deadline=None)
def test_the_same_grants_and_reasons_as_by_looking_at_everything(
    compiled: bool, random: Random
) -> None:
    crowd, fast, plain = Crowd(random), Lane(Book(MARKET)), Lane(PlainBook(MARKET))
    with nullcontext() if compiled else as_python():
        for _ in range(ACTS):
            for event, position in crowd.acts(fast.book):
                decided = fast.take_in(event, position, now=crowd.now)
                expected = plain.take_in(event, position, now=crowd.now)

                assert expected == decided
                keep_off_hosts(plain.book, decided)
    for bid in fast.book.bids.values():
        assert list(plain.book.entries(bid.shape)) == _seen_by(plain.book, fast.book, bid)


def keep_off_hosts(book: Book, decided: Iterable[MarketEvent]) -> None:
    """Check that no work begins on a host while it keeps off that."""
    for event in decided:
        held = book.held[event.lease_id] if isinstance(event, LeaseGranted) else None
        link = None if held is None or held.bid is None else held.bid.continues
        for kept in () if link is None else link.keeps_off:
            assert isinstance(event, LeaseGranted)
            on = {share.host_id for share in event.shares}
            assert kept.host_id not in on or event.window.starts_at >= kept.until


def _seen_by(plain: Book, fast: Book, bid: OpenBid) -> list[Entry]:
    """Return a book's index of a shape, with the offers of another book that they stand for."""
    return [
        entry._replace(listed=plain.offers[entry.listed.offer_id])
        for entry in fast.entries(bid.shape)
    ]


def test_shapes_without_bids_are_forgotten_and_nothing_changes() -> None:
    crowd, fast, plain = Crowd(Random(7)), Lane(Book(MARKET)), Lane(PlainBook(MARKET))
    fast.book._shapes_max = 5

    for _ in range(ACTS * 5):
        for event, position in crowd.acts(fast.book):
            decided = fast.take_in(event, position, now=crowd.now)

            assert plain.take_in(event, position, now=crowd.now) == decided
    assert fast.decided
