"""The order book that quotes and pages are made from follows the log, whatever happens to it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from ledger.eventstore.memory import MemoryStore
from marketplace.queries.books import book_of
from tests.contracts.event_stores.given import BY, notes
from tests.marketplace.support.market import MARKET, Market


def offers(store: MemoryStore) -> list[int]:
    with book_of(store, MARKET) as book:
        return sorted(listed.floor for listed in book.offers.values())


def contents(store: MemoryStore) -> dict[str, Any]:
    """Return what is in a store, to be put back into it."""
    return {
        name: deepcopy(held)
        for name, held in store.__dict__.items()
        if isinstance(held, list | dict | set)
    }


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


@pytest.mark.parametrize("known", [0, 1])
def test_it_reads_facts_where_other_events_were_rolled_back(known: int) -> None:
    market: Any = Market()
    for at in range(1, known + 1):
        market.offer(f"known-{at}", at=at)
    before = contents(market.store)
    market.store.append("notes", notes(5), expected=0, by=BY)
    assert len(offers(market.store)) == known

    market.store.__dict__.update(before)
    market.offer("new", at=9)

    assert len(offers(market.store)) == known + 1


def test_each_store_has_its_own() -> None:
    one: Any = Market()
    other: Any = Market()
    one.offer("a")

    assert (len(offers(one.store)), len(offers(other.store))) == (1, 0)
