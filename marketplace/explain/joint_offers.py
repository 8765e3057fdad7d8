"""An offer together with the others of its market: for bids that it cannot serve alone.

They are explained on a book with all offers that could serve them, by the code that explains and
clears, and it is looked whether GPUs of this offer are among those found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from marketplace.domain.book.book import Book
from marketplace.domain.orderbook.listed_offer import Entry, Listed
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.eligibility import Explanation
from marketplace.domain.placement.placement import Placement

TOGETHER_MAX = 50
"""Bids that it is looked at with others for, the best first."""
OTHERS_MAX = 500
"""Other offers that are looked at with it, the cheapest first."""

ELSEWHERE = "elsewhere"
"""Other offers serve a bid without this one."""
PRICES = "limit-together"
"""With others it would do, but not at what all of them ask."""


@dataclass(frozen=True, slots=True)
class Together:
    """How an offer would serve a bid with others: with how many of its GPUs, and of how many."""

    mine: int
    offers: int
    gpus: int


class Joint:
    """The offers of a market that could serve some bids with one offer, that one apart."""

    def __init__(self, book: Book, listed: Listed, bids: Sequence[OpenBid]) -> None:
        self.bids = dict.fromkeys(bids[:TOGETHER_MAX])
        self._book, self._id = book, listed.terms.offer_id
        found: dict[str, Entry] = {}
        for shape in dict.fromkeys(bid.shape for bid in self.bids):
            for entry in book.entries(shape):
                if entry.listed is not listed:
                    found.setdefault(entry.offer, entry)
        self._others = [entry.listed for entry in sorted(found.values())[:OTHERS_MAX]]

    @property
    def floors(self) -> set[int]:
        """Return what the other offers ask."""
        return {other.floor for other in self._others}

    def with_it(self, changed: Listed) -> Callable[[OpenBid, int], Explanation]:
        """Return what explains a bid on the others and the offer, changed or as it is.

        changed: not one of the market's book.
        """
        joint = Book(self._book.market)
        for other in (*map(_copied, self._others), changed):
            records = self._book.leases.records
            joint.agents, joint.promises = self._book.agents, self._book.promises
            joint.leases.records[other.terms.host_id] = records[other.terms.host_id]
            joint.take_in(other)
        joint.quotas = self._book.quotas
        calendar = self._book.calendar
        return lambda bid, now: joint.explain(bid, now=now, calendar=calendar)

    def used(self, placement: Placement | None) -> Together | None:
        """Return how the offer is part of a placement; None: it is not."""
        gpus: Iterable[tuple[Listed, str]] = () if placement is None else placement.gpus
        offers = [listed.terms.offer_id for listed, _ in gpus]
        mine = offers.count(self._id)
        if not mine:
            return None
        return Together(mine, len(set(offers)) - 1, len(offers) - mine)


def _copied(listed: Listed) -> Listed:
    """Return an offer for another book: what is listed knows the book that it is in."""
    copied = Listed(listed.terms, listed.published, listed.floor)
    copied.since, copied.paused = listed.since, listed.paused
    return copied
