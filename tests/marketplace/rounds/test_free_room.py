"""Who is tried once more after the search, and told why not, is looked up in what is left free."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from marketplace.domain.book.book import Book
from marketplace.domain.clearing.fills import lease_id_of
from marketplace.domain.decisions.decide import on_round
from marketplace.domain.facts.events import MarketEvent
from marketplace.domain.facts.instants import from_above
from marketplace.domain.index.offer_index import Catalogue
from marketplace.domain.orderbook.calendar import Taken
from tests.benchmarks.rounds import book_of
from tests.conftest import NOON

NOW = from_above(NOON + timedelta(minutes=7, seconds=31))


def cleared(book: Book) -> list[MarketEvent]:
    return on_round(book, now=NOW, round_id=UUID(int=3))


@pytest.mark.parametrize("seed", range(3))
def test_a_round_comes_to_the_same_as_if_all_hosts_were_looked_at(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = book_of(60, 4, seed=seed)
    looked_up = cleared(book)

    monkeypatch.setattr(Catalogue, "under", lambda self, calendar: self)

    assert cleared(book) == looked_up


def test_what_a_fork_leaves_is_what_its_hosts_have_free() -> None:
    book = book_of(10, 4, seed=1)
    before = {bid.bid_id: list(book.within_reach(bid, now=NOW)) for bid in book.patient()}
    fork = book.calendar.fork()
    listed = next(iter(book.offers.values()))
    [*_, (_, closes)] = listed.windows(NOW, NOW + 1)
    for number, uuid in enumerate(listed.groups):
        bid = book.patient()[number]
        for starts, ends in listed.free(uuid, fork, since=NOW, until=closes):
            fork.take(uuid, Taken(starts, ends, lease_id_of(UUID(int=4), bid)))

    left = book.catalogue.under(fork)

    for bid in book.patient():
        found = list(book.within_reach(bid, now=NOW, left=left))
        assert [each for each in before[bid.bid_id] if each.listed is not listed] == found
        assert list(book.within_reach(bid, now=NOW)) == before[bid.bid_id]
