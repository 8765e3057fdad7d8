"""A book that looks at everything: the oracle of the index."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from ledger.domain.event import Event
from ledger.domain.ids import HostId
from marketplace.domain.book.book import Book
from marketplace.domain.index.host_matcher import OneHost
from marketplace.domain.index.offer_index import Catalogue
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.listed_offer import Entry, Listed
from marketplace.domain.orderbook.open_bid import OpenBid, Shape
from marketplace.domain.placement.eligibility import CONSTRAINTS, explain, screen


class PlainBook(Book):
    """A book that goes through all there is, every time, and keeps nothing for later."""

    def _plain_entries(self, shape: Shape) -> list[Entry]:
        return sorted(
            Entry(*listed.rank, listed, *_fit(listed, shape))
            for listed in self.offers.values()
            if not listed.paused and _fit(listed, shape)[0]
        )

    def entries(self, shape: Shape) -> Sequence[Entry]:
        return self._plain_entries(shape)

    def entries_on(self, shape: Shape, hosts: Collection[HostId]) -> Sequence[Entry]:
        return [e for e in self._plain_entries(shape) if e.listed.terms.host_id in hosts]

    def within_reach(
        self, bid: OpenBid, *, now: int, left: Catalogue | None = None
    ) -> Iterable[Entry]:
        return iter(self._plain_entries(bid.shape))

    def resting(self, hosts: Collection[HostId] | None = None) -> list[OpenBid]:
        waiting = [bid for bid in self.bids.values() if bid.terms.patience == "immediate"]
        if hosts is not None:
            waiting = [
                bid
                for bid in waiting
                if any(entry.floor <= bid.limit for entry in self.entries_on(bid.shape, hosts))
            ]
        return sorted(waiting, key=lambda bid: bid.price_time)

    def served_by(
        self,
        hosts: Collection[HostId],
        calendar: Calendar,
        *,
        now: int,
        freed: Collection[HostId] | None = None,
    ) -> tuple[int, Iterator[OpenBid]]:
        waiting = self.resting(hosts)
        return len(waiting), iter(waiting)

    def only_host(
        self, hosts: Collection[HostId], calendar: Calendar, *, now: int
    ) -> OneHost | None:
        return None

    def decided(self, events: Sequence[Event], position: int) -> None:
        for event in events:
            self.apply(event, position)

    def glance(self, bid: OpenBid, *, now: int) -> str | None:
        return None

    def reason(
        self, bid: OpenBid, *, now: int, calendar: Calendar, left: Catalogue | None = None
    ) -> str:
        screened = screen(bid.shape, self.offers.values())
        entries = self._plain_entries(bid.shape)
        own = bid.terms.tenant_id in self.owners
        explanation = explain(bid, screened, entries, calendar, now=now, own=own)
        assert explanation.filed is not None
        return explanation.filed


def _fit(listed: Listed, shape: Shape) -> tuple[tuple[str, ...], frozenset[str]]:
    gpus = [
        gpu
        for gpu, spec in zip(listed.terms.gpus, listed.specs, strict=True)
        if all(fits(shape, listed.kind.specs[spec], listed.kind) for _, fits in CONSTRAINTS)
    ]
    return tuple(gpu.uuid for gpu in gpus), frozenset(gpu.model for gpu in gpus)
