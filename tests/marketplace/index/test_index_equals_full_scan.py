"""The book's columns only ever save time: a book that looks at everything decides the same."""

from __future__ import annotations

from contextlib import nullcontext
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marketplace.domain.book.book import Book
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
    for bid in fast.book.bids.values():
        assert list(plain.book.entries(bid.shape)) == _seen_by(plain.book, fast.book, bid)


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
