"""The room on one host, and whom it serves: what `placement` says, faster.

On most hosts a few things tell GPUs apart: whose price and terms they have, what they are, when
they are free, and which are linked. So `kernels.fill_host` goes through the bids that wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

import numpy as np

from ledger.domain.making import maker
from marketplace.domain.facts.instants import Millis, whole_second
from marketplace.domain.index.bid_queue import Selection
from marketplace.domain.index.free_levels import seen
from marketplace.domain.kernels.fill_host import (
    CLEANING,
    FIRST,
    FULL,
    LAST,
    LEASE_MIN,
    LEVELS_MAX,
    LOOK,
    MORE,
    NOBODY,
    PRICE,
    TERMS,
    cut,
    serve,
)
from marketplace.domain.kernels.layout import Bools, Ints
from marketplace.domain.kernels.next_bid import lay_out
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.listed_offer import Listed, Spans
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import Placement

_placement = maker(Placement)
GPUS_START, SPANS_START, PARTS_START = 16, 32, 64
OFFERS_MAX, SPECS_MAX = 8, 32
"""Offers of one host, and what their GPUs are, up to which they are looked at here."""
AT_ONCE = 64
"""Bids that are placed before the first of them is handed on."""


class Desk:
    """Arrays that `serve` works on, kept from one host to the next: making them anew costs more.

    Written through views of memory: number by number that is cheaper than NumPy.
    """

    def __init__(self) -> None:
        self.stretches: Ints = np.zeros((PARTS_START, 2), np.int64)
        self.terms: Ints = np.zeros((1, TERMS), np.int64)
        self._make_room(GPUS_START, SPANS_START)

    def _make_room(self, gpus: int, spans: int) -> None:
        self.gpus, self.most = gpus, spans
        self.spans: Ints = np.zeros((gpus, spans, 2), np.int64)
        self.counts: Ints = np.zeros(gpus, np.int64)
        self.links: Ints = np.zeros(gpus, np.int64)
        self.specs: Ints = np.zeros(gpus, np.int64)
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


def are_plain(ranked: Sequence[Listed]) -> bool:
    """Tell if offers of one host, in order of rank, have nothing but what is looked at here."""
    for listed in ranked:
        if "" in listed.groups.values() or listed.terms.reserved_for is not None or listed.paused:
            return False
    if len(ranked) == 1:
        return len(ranked[0].kind.specs) <= SPECS_MAX
    gpus = [uuid for listed in ranked for uuid in listed.groups]
    return (
        len(ranked) <= OFFERS_MAX
        and sum([len(listed.kind.specs) for listed in ranked]) <= SPECS_MAX
        and all(a.floor < b.floor for a, b in pairwise(ranked))
        and len(set(gpus)) == len(gpus)
        and not any(listed.parted for listed in ranked)
    )


class OneHost:
    """When the GPUs of a host are free, and who waits for them, while room is only taken."""

    def __init__(
        self,
        ranked: Sequence[Listed],
        served: Selection,
        calendar: Calendar,
        desk: Desk,
        *,
        now: int,
        waits: Bools,
        fits: Ints,
    ) -> None:
        """Look at a host.

        Args:
            ranked: its offers, cheapest first; see `are_plain`.
            served: the bids that wait and pay for any of them.
            waits: by slot, those of them that may be placed there.
            fits: by shape, which specs of the offers do, a bit for each.
        """
        self.served, self._desk, self._waits, self._fits = served, desk, waits, fits
        self._since = since = whole_second(now)
        self._floor = ranked[0].floor
        of_spans: dict[int, Spans] = {}
        free, named = list[Spans](), list[tuple[Listed, str]]()
        desk.terms = np.zeros((len(ranked), TERMS), np.int64)
        terms, bits, bit = seen(desk.terms), list[int](), 1
        for at, listed in enumerate(ranked):
            until = now if listed.terms.weekly is None else served.furthest
            all_free = listed.all_free(calendar, since=now, until=until)
            all_free.sort()
            for uuid, spans in all_free:
                coming = of_spans.get(id(spans))  # mostly many GPUs have the very same
                if coming is None:
                    coming = of_spans[id(spans)] = _coming(spans, since)
                named.append((listed, uuid))
                free.append(coming)
            terms[at, PRICE], terms[at, LEASE_MIN] = listed.floor, listed.lease_min
            terms[at, CLEANING] = listed.cleaning
            terms[at, FIRST], terms[at, LAST] = len(named) - len(all_free), len(named)
            if len(listed.kind.specs) == 1:
                bits += [bit] * len(all_free)
            else:
                of_gpu = dict(zip(listed.groups, listed.specs, strict=True))
                bits += [bit << of_gpu[uuid] for uuid, _ in all_free]
            bit <<= len(listed.kind.specs)
        self._named = named
        self._places: dict[tuple[int, ...], tuple[tuple[tuple[Listed, str], ...], int]] = {}
        self._placed: list[tuple[OpenBid, Placement]] = []
        desk.for_host(free)
        desk.specs[: len(bits)] = bits
        self._links, self._sizes = desk.links[: len(free)], desk.sizes[:1]
        groups = {one for listed in ranked for one in listed.groups.values() if one is not None}
        if groups:
            places = {None: 0} | {group: place for place, group in enumerate(sorted(groups), 1)}
            self._links[:] = [places[listed.groups[uuid]] for listed, uuid in named]
            self._sizes = desk.sizes[: len(places)]

    def bids(self) -> Iterator[OpenBid]:
        """Place the bids that find room, in order; yield those that are to be looked at.

        For such a one a place has to be looked for, and to be taken here.
        """
        desk, bids, served, gpus = self._desk, self.served.bids, self.served, len(self._named)
        places, placed = self._places, self._placed.append
        stretches = desk.lay_out(served, self._floor)
        code = MORE
        while code != NOBODY:
            code, count = serve(
                served.columns.order,
                served.columns.asked,
                stretches,
                self._fits,
                self._waits,
                self._since,
                desk.terms,
                desk.specs,
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
                which = tuple(chosen[: bid.gpus])
                placed((bid, _placement(start, *(places.get(which) or self._place(which)))))
            if code == LOOK:
                odd = bids[int(desk.answers[count, 0])]
                assert odd is not None
                yield odd
            elif code == FULL:
                desk.with_more_spans()

    def _place(self, which: tuple[int, ...]) -> tuple[tuple[tuple[Listed, str], ...], int]:
        """Return some GPUs and the highest of their floors: the same to all who get these."""
        at = tuple([self._named[gpu] for gpu in which])
        place = self._places[which] = (at, max([listed.floor for listed, _ in at]))
        return place

    def placed(self) -> list[tuple[OpenBid, Placement]]:
        """Return the bids that were placed since this was last asked, in order."""
        placed, self._placed[:] = self._placed.copy(), ()
        return placed

    def take(self, uuids: Collection[str], starts: int, ends: int) -> None:
        """Give a span of some GPUs to a bid that was not placed here."""
        desk = self._desk
        for gpu, (listed, uuid) in enumerate(self._named):
            if uuid in uuids:
                gap = listed.cleaning
                cut(desk.spans, desk.counts, gpu, starts - gap, ends + gap)


def _coming(spans: Spans, since: int) -> Spans:
    """Return what of some spans is to come."""
    if spans and spans[0][0] >= since:
        return spans
    for at, (opens, closes) in enumerate(spans):
        if closes > since:
            return ((Millis(max(opens, since)), closes), *spans[at + 1 :])
    return ()
