"""The room on a host that has one offer, and whom it serves: what `placement` says, faster.

Most hosts have one offer with GPUs that are all alike. What tells those apart is then only when
they are free, and which of them are linked: so `kernels.fill_host` goes through the bids that wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from ledger.domain.making import maker
from marketplace.domain.facts.instants import Millis, whole_second
from marketplace.domain.index.bid_queue import Selection
from marketplace.domain.index.free_levels import seen
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
from marketplace.domain.kernels.layout import Bools, Ints
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

    def __init__(self) -> None:
        self.stretches: Ints = np.zeros((PARTS_START, 2), np.int64)
        self.terms: Ints = np.zeros(TERMS, np.int64)
        self._make_room(GPUS_START, SPANS_START)

    def _make_room(self, gpus: int, spans: int) -> None:
        self.gpus, self.most = gpus, spans
        self.spans: Ints = np.zeros((gpus, spans, 2), np.int64)
        self.counts: Ints = np.zeros(gpus, np.int64)
        self.links: Ints = np.zeros(gpus, np.int64)
        self.sizes: Ints = np.zeros(gpus + 1, np.int64)
        self.reach: Ints = np.zeros(2 + LEVELS_MAX + gpus, np.int64)
        self.found: Ints = np.zeros((gpus * spans, 6), np.int64)
        self.answers: Ints = np.zeros((AT_ONCE, 2 + gpus), np.int64)

    def for_host(self, free: Sequence[Spans]) -> None:
        """Write down when the GPUs of a host are free."""
        most, first = max([len(spans) for spans in free]), free[0]
        if len(free) > self.gpus or most + 2 > self.most:
            self._make_room(max(len(free), self.gpus), max(2 * most, self.most))
        if first and all(spans is first for spans in free):  # of a new host nothing is taken
            self.spans[: len(free), :most], self.counts[: len(free)] = first, most
            return
        opens_and_closes, counts = seen(self.spans), seen(self.counts)
        for gpu, spans in enumerate(free):
            counts[gpu] = len(spans)
            for at, (opens, closes) in enumerate(spans):
                opens_and_closes[gpu, at, 0], opens_and_closes[gpu, at, 1] = opens, closes

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


def is_uniform(listed: Listed) -> bool:
    """Tell if but two things tell the GPUs of an offer apart: when they are free, and links."""
    named_well = "" not in listed.groups.values()
    is_open = listed.terms.reserved_for is None and not listed.paused
    return is_open and named_well and len(listed.kind.specs) == 1


class OneHost:
    """When the GPUs of the only offer of a host are free, while room is only taken.

    until: nobody is to be placed there who has to be over later than this, in milliseconds. waits:
    by slot, the bids that may be placed there.
    """

    placed: Placement | None = None
    """Where the bid that was yielded last goes; None: that is to be looked for, and then taken."""

    def __init__(
        self,
        listed: Listed,
        calendar: Calendar,
        desk: Desk,
        *,
        now: int,
        until: int,
        waits: Bools,
    ) -> None:
        self.listed, self._desk, self._waits = listed, desk, waits
        self._since = since = whole_second(now)
        of_spans: dict[int, Spans] = {}
        free = listed.all_free(calendar, since=now, until=until)
        for _, spans in free:  # mostly many GPUs have the very same
            if id(spans) not in of_spans:
                of_spans[id(spans)] = _coming(spans, since)
        free.sort()
        self._uuids = [uuid for uuid, _ in free]
        desk.for_host([of_spans[id(spans)] for _, spans in free])
        self._links, self._sizes = desk.links[: len(free)], desk.sizes[:1]
        groups = listed.groups
        named = sorted({group for group in groups.values() if group is not None})
        if named:
            places = {None: 0} | {group: place for place, group in enumerate(named, 1)}
            self._links[:] = [places[groups[uuid]] for uuid in self._uuids]
            self._sizes = desk.sizes[: len(places)]

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
                self._waits,
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

    def take(self, uuids: Collection[str], starts: int, ends: int) -> None:
        """Give a span of some GPUs to a bid that was not placed here."""
        desk, gap = self._desk, self.listed.cleaning
        for gpu, uuid in enumerate(self._uuids):
            if uuid in uuids:
                cut(desk.spans, desk.counts, gpu, starts - gap, ends + gap)


def _coming(spans: Spans, since: int) -> Spans:
    """Return what of some spans is to come."""
    if spans and spans[0][0] >= since:
        return spans
    return tuple([(Millis(max(opens, since)), closes) for opens, closes in spans if closes > since])
