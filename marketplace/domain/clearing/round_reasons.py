"""Why bids that a round refused have no place."""

from __future__ import annotations

from collections.abc import Collection

from ledger.domain.ids import BidId
from marketplace.domain.book.book import Book
from marketplace.domain.index.offer_index import Catalogue
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement import sizes


class RoundReasons:
    """Works out the reason of one bid of those that are alike.

    calendar: with the grants of the round. freed: whether any of them cuts a lease. left: the
    offers with the room that the calendar leaves, where that is known. placeless: bids that were
    tried on it and have no place there.
    """

    def __init__(
        self,
        book: Book,
        calendar: Calendar,
        *,
        freed: bool,
        now: int,
        left: Catalogue | None = None,
        placeless: Collection[BidId] = (),
    ) -> None:
        self._book, self._calendar, self._now = book, calendar, now
        self._plain = book.quotas is None and not freed
        self._left, self._placeless = left, placeless
        self._reserved = {each.terms.reserved_for for each in book.offers.values()}
        self._known: dict[tuple[object, ...], str | None] = {}

    def __call__(self, bid: OpenBid) -> str | None:
        """Return the reason; None: there is a place, and the round did not come to the bid."""
        book, now = self._book, self._now
        at_home = bid.terms.tenant_id in book.owners
        if not self._plain or at_home or bid.bid_id in self._reserved:
            return book.explain(bid, now=now, calendar=self._calendar, priced=False).filed
        tenant = bid.terms.tenant_id if book.calendar.one_tenant else None
        alike = (bid.likeness(now), bid.limit, bid.terms.seeks, tenant)
        if alike not in self._known:
            self._known[alike] = self._of_all_alike(bid)
        return self._known[alike]

    def _of_all_alike(self, bid: OpenBid) -> str | None:
        if self._left is None:
            self._left = self._book.catalogue.under(self._calendar)
        if bid.bid_id not in self._placeless:
            within = self._book.within_reach(bid, now=self._now, left=self._left)
            if sizes.fit(bid, within, self._calendar, now=self._now) is not None:
                return None
        return self._book.reason(bid, now=self._now, calendar=self._calendar, left=self._left)
