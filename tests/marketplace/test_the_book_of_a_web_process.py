"""The order book that quotes and pages are made from follows the log, whatever happens to it."""

from __future__ import annotations

from typing import Any

from ledger.eventstore.memory import MemoryStore
from marketplace.queries.books import book_of
from tests.marketplace.trading import MARKET, Market


def offers(store: MemoryStore) -> list[int]:
    with book_of(store, MARKET) as book:
        return sorted(listed.floor for listed in book.offers.values())


def test_it_is_up_to_date_whenever_it_is_asked() -> None:
    market: Any = Market()

    seen = []
    for at in (1, 2):
        market.offer(str(at), at=at)
        seen.append(len(offers(market.store)))

    assert seen == [1, 2]


def test_it_forgets_what_was_rolled_back() -> None:
    market: Any = Market()
    market.offer("a", at=1)
    assert len(offers(market.store)) == 1

    elsewhere = Market()
    elsewhere.offer("b", at=2)
    elsewhere.offer("c", at=3)
    # The same store, as after a transaction that failed and others that came in its place.
    market.store.__dict__.update(elsewhere.store.__dict__)

    assert offers(market.store) == [2_000_000_000, 3_000_000_000]


def test_each_store_has_its_own() -> None:
    one: Any = Market()
    other: Any = Market()
    one.offer("a")

    assert (len(offers(one.store)), len(offers(other.store))) == (1, 0)
