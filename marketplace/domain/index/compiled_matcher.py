"""The room of one host, as `fill_host` works on it: bids come from there already placed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from ledger.domain.making import maker
from marketplace.domain.index.bid_queue import Selection
from marketplace.domain.index.free_levels import seen
from marketplace.domain.index.host_matcher import OneHost
from marketplace.domain.index.offer_index import Catalogue
from marketplace.domain.kernels.fill_host import (
    CLEANING,
    FULL,
    LEASE_MIN,
    LEVELS_MAX,
    LOOK,
    MORE,
    NOBODY,
    NOW,
    TERMS,
    cut,
    lay_out,
    serve,
)
from marketplace.domain.kernels.layout import Ints
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.listed_offer import Listed, Spans
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import Placement

_placement = maker(Placement)
GPUS_START, SPANS_START, PARTS_START = 16, 32, 64
AT_ONCE = 64
"""Bids that are placed before the first of them is handed on."""


class Desk:
    """Arrays that `serve` works on, kept from one host to the next: making them anew costs more.

    Written through views of memory: number by number that is cheaper than NumPy.
    """

    def __init__(self, gpus: int = GPUS_START, spans: int = SPANS_START) -> None:
        self.gpus, self.most = gpus, spans
        self.spans: Ints = np.zeros((gpus, spans, 2), np.int64)
        self.counts: Ints = np.zeros(gpus, np.int64)
        self.links: Ints = np.zeros(gpus, np.int64)
        self.sizes: Ints = np.zeros(gpus + 1, np.int64)
        self.stretches: Ints = np.zeros((PARTS_START, 2), np.int64)
        self.terms: Ints = np.zeros(TERMS, np.int64)
        self.reach: Ints = np.zeros(2 + LEVELS_MAX + gpus, np.int64)
        self.found: Ints = np.zeros((gpus * spans, 6), np.int64)
        self.answers: Ints = np.zeros((AT_ONCE, 2 + gpus), np.int64)

    def for_host(self, free: Sequence[Spans]) -> Desk:
        """Return a desk on which there is room for a host, with when its GPUs are free."""
        most, first = max([len(spans) for spans in free]), free[0]
        if len(free) > self.gpus or most + 2 > self.most:
            return Desk(max(len(free), self.gpus), max(2 * most, self.most)).for_host(free)
        if first and all(spans is first for spans in free):  # of a new host nothing is taken
            self.spans[: len(free), :most], self.counts[: len(free)] = first, most
            return self
        opens_and_closes, counts = seen(self.spans), seen(self.counts)
        for gpu, spans in enumerate(free):
            counts[gpu] = len(spans)
            for at, (opens, closes) in enumerate(spans):
                opens_and_closes[gpu, at, 0], opens_and_closes[gpu, at, 1] = opens, closes
        return self

    def with_more_spans(self) -> None:
        """Make room for twice as many spans of each GPU."""
        self.spans = np.concatenate([self.spans, np.zeros_like(self.spans)], axis=1)
        self.most *= 2
        self.found = np.zeros((self.gpus * self.most, 6), np.int64)

    def lay_out(self, served: Selection, floor: int) -> Ints:
        """Return the first and last rows of each part of a selection."""
        most = 2 * len(served.numbers)
        if most > len(self.stretches):
            self.stretches = np.zeros((2 * most, 2), np.int64)
        columns = served.columns
        count = lay_out(columns.order, columns.bounds, served.numbers, floor, self.stretches)
        return self.stretches[:count]


class FastHost(OneHost):
    """As `OneHost`, for an offer whose GPUs are all alike, with no bid of its owner waiting."""

    def __init__(
        self,
        listed: Listed,
        catalogue: Catalogue,
        calendar: Calendar,
        *,
        now: int,
        until: int,
        desk: Desk | None = None,
    ) -> None:
        self._desk = desk or Desk()
        super().__init__(listed, catalogue, calendar, now=now, until=until)

    def _look(self, calendar: Calendar) -> None:
        found = self._free(calendar)
        self._uuids = [uuid for uuid, _ in found]
        self._desk = self._desk.for_host([spans for _, spans in found])
        self._links, self._sizes = self._desk.links[: len(found)], self._desk.sizes[:1]
        if self._linked:
            named = sorted({group for group in self.listed.groups.values() if group is not None})
            places = {None: 0} | {group: place for place, group in enumerate(named, 1)}
            self._links[:] = [places[self.listed.groups[uuid]] for uuid in self._uuids]
            self._sizes = self._desk.sizes[: len(places)]

    def bids(self, served: Selection) -> Iterator[OpenBid]:
        """Yield the bids that find room, in order, and `placed`; and those to be looked at."""
        desk, listed, uuids, bids = self._desk, self.listed, self._uuids, served.bids
        one, gpus = served.floors.one, len(uuids)
        assert one is not None, "a host with one offer"
        stretches = desk.lay_out(served, one.floor)
        named, floor = [(listed, uuid) for uuid in uuids], listed.floor
        terms = seen(desk.terms)
        terms[LEASE_MIN], terms[CLEANING] = listed.lease_min, listed.cleaning
        terms[NOW] = self._since
        code = MORE
        while code != NOBODY:
            code, count = serve(
                served.columns.order,
                served.columns.asked,
                stretches,
                one.fits,
                served.waits,
                desk.terms,
                desk.spans,
                desk.counts[:gpus],
                self._links,
                self._sizes,
                desk.reach,
                desk.found,
                desk.answers,
            )
            for slot, start, *chosen in desk.answers[:count, : 2 + gpus].tolist():
                bid = bids[slot]
                assert bid is not None
                at = tuple([named[gpu] for gpu in chosen[: bid.gpus]])
                self.placed = _placement(start, at, floor)
                yield bid
            self.placed = None
            if code == LOOK:
                odd = bids[int(desk.answers[count, 0])]
                assert odd is not None
                yield odd
            elif code == FULL:
                desk.with_more_spans()

    def serves(self, bid: OpenBid) -> bool:
        """Tell if `place` is to be asked for a bid: what it can serve it has placed."""
        return False

    def take(self, uuids: Collection[str], starts: int, ends: int) -> None:
        """Give a span of some GPUs to a bid that was not placed here."""
        desk, gap = self._desk, self.listed.cleaning
        for gpu, uuid in enumerate(self._uuids):
            if uuid in uuids:
                cut(desk.spans, desk.counts, gpu, starts - gap, ends + gap)
