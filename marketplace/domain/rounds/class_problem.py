"""One service class of a round: its bids, the supply they meet, and who may have what of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ledger.domain.ids import BidId
from marketplace.domain.admission.gate import Gate
from marketplace.domain.book.book import Book
from marketplace.domain.facts.instants import whole_second
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.open_bid import OpenBid, Shape
from marketplace.domain.rounds.cleaning_gaps import Cleaning, cleaned_edges, cleaning_of
from marketplace.domain.rounds.pools import Pool, pools_of
from marketplace.domain.rounds.quota_constraints import Bounds, bounds_of, edges_of
from marketplace.domain.rounds.size_variants import sizes_of
from marketplace.domain.rounds.time_grid import grid_of
from marketplace.domain.solver.builder import Entry
from marketplace.domain.solver.problem import Ints


@dataclass(frozen=True)
class Part:
    """The bids of one service class, and what the round knows of the supply they met."""

    bids: Sequence[OpenBid]
    sized: Sequence[OpenBid]
    """The bids in the sizes in which they are searched."""
    pools: Sequence[Pool]
    fits: Mapping[Shape, Sequence[int]]
    grid: Sequence[int]
    bounds: Bounds
    at: int
    calendar: Calendar
    cleaning: Cleaning = field(default_factory=Cleaning)
    spared: Collection[BidId] = ()
    """Bids that the search leaves to the sweep: their own GPUs were not asked for them yet."""

    def meets_others(self, bid: OpenBid, number: int) -> bool:
        """Tell if a pool is on a host of another tenant's at some time at which a bid may run.

        Such a host cannot keep the two apart. What is left of it beside is found by the sweep.
        """
        host_id = self.pools[number].listed.terms.host_id
        return self.calendar.meets_others(
            host_id, bid.terms.tenant_id, max(bid.earliest, self.at), bid.deadline
        )

    @cached_property
    def usable(self) -> Usable:
        """Return what tells which pools a bid may use."""
        return Usable(self)


def part_of(
    book: Book,
    bids: Sequence[OpenBid],
    calendar: Calendar,
    gate: Gate | None,
    now: int,
    spared: Collection[BidId] = (),
) -> Part:
    """Return what some bids meet in a calendar."""
    since, until = whole_second(now), max(bid.deadline for bid in bids)
    shapes = dict.fromkeys(bid.shape for bid in bids)
    pools, fits = pools_of(book, shapes, calendar, since=since, until=until)
    edges: list[int] = list(
        dict.fromkeys(edge for pool in pools for span in pool.spans for edge in span)
    )
    edges += cleaned_edges(pools)
    if gate is not None:
        edges += edges_of(gate.quotas, since=since, until=until)
    longest = max((pool.listed.cleaning for pool in pools), default=0)
    sized = sizes_of(bids)
    grid = grid_of(now, until + longest, [*edges, *_edges(sized)], bids=len(sized))
    bounds = Bounds() if gate is None else bounds_of(gate.quotas, bids, pools, grid)
    part = Part(bids, sized, pools, fits, grid, bounds, now, calendar, spared=spared)
    if not longest:
        return part
    within = part.usable.within_limit
    usable = {bid.bid_id: within(bid) for bid in bids if bid.bid_id not in bounds.groups}
    return replace(part, cleaning=cleaning_of(pools, usable))


def _edges(bids: Sequence[OpenBid]) -> Iterable[int]:
    for bid in bids:
        yield from (bid.earliest, bid.earliest + bid.duration, bid.latest_start, bid.deadline)


class Usable:
    """Which pools bids may use, by number and rising; asked for every bid of a round.

    Those that fit its shape, whose offers take it and it them, and which no limit for one bid bars.
    """

    def __init__(self, part: Part) -> None:
        self._part = part
        offers = [pool.listed for pool in part.pools]
        self._floors = np.array([listed.floor for listed in offers], np.int64)
        self._least = np.array([listed.lease_min for listed in offers], np.int64)
        self._longest_least = int(self._least.max(initial=0))
        self._sizes = np.array([len(pool.uuids) for pool in part.pools], np.int64)
        self._owners: dict[object, int] = {}
        self._owner = _codes((listed.terms.tenant_id for listed in offers), self._owners)
        self._host = _codes((listed.terms.host_id for listed in offers), {})
        self._group = _codes(((pool.listed.terms.host_id, pool.link) for pool in part.pools), {})
        self._kept = {n for n, each in enumerate(offers) if each.terms.reserved_for is not None}
        self._one_tenant = any(listed.one_tenant for listed in offers)
        self._fits = {shape: np.array(each, np.int64) for shape, each in part.fits.items()}
        self._barred: dict[BidId, list[int]] = defaultdict(list)
        for bid_id, number in part.bounds.barred:
            self._barred[bid_id].append(number)
        self._large_enough: dict[int, tuple[OpenBid, Ints]] = {}

    def __call__(self, bid: OpenBid) -> Ints:
        """Return those within its limit, if they have room for all its GPUs in one place.

        One place is anywhere, one host, or one NVLink group. It is worked out once for each bid.
        """
        known = self._large_enough.get(id(bid))
        if known is None:
            known = self._large_enough[id(bid)] = (bid, self._of(bid))
        return known[1]

    def _of(self, bid: OpenBid) -> Ints:
        found = self.within_limit(bid)
        if bid.gpus == 1 or not found.size:
            return found
        if bid.terms.placement == "any-hosts":
            return found if self._sizes[found].sum() >= bid.gpus else found[:0]
        places = (self._group if bid.terms.request.nvlink else self._host)[found]
        room = np.bincount(places, weights=self._sizes[found])
        enough: Ints = found[room[places] >= bid.gpus]
        return enough

    def within_limit(self, bid: OpenBid) -> Ints:
        """Return those whose floors are within its limit."""
        found = self.at_any_price(bid)
        dear: Ints = found[self._floors[found] <= bid.limit]
        return dear

    def at_any_price(self, bid: OpenBid) -> Ints:
        """Return all of them. Mostly bids of one shape get the same array."""
        fit = self._fits[bid.shape]
        if self._part.spared and bid.bid_id in self._part.spared:
            return fit[:0]
        own = self._owners.get(bid.terms.tenant_id, -1)
        if own >= 0 or bid.duration < self._longest_least:
            fit = fit[(self._least[fit] <= bid.duration) & (self._owner[fit] != own)]
        barred = self._barred.get(bid.bid_id, ()) if self._barred else ()
        if self._one_tenant:
            others = self._part.meets_others
            fit = np.array([n for n in fit.tolist() if not others(bid, n)], np.int64)
        if self._kept or bid.is_choosy or barred:
            offers = [(number, self._part.pools[number].listed) for number in fit.tolist()]
            found = [
                number
                for number, listed in offers
                if number not in barred and listed.open_to(bid.bid_id) and bid.takes(listed)
            ]
            return np.array(found, np.int64)
        return fit


class Entries:
    """The pools that bids may use, with their floors, for the search: one tuple for bids alike.

    Also those above a bid's limit, which the search leaves out itself: so bids that differ in
    their limits only share what the search works out for their kind.
    """

    def __init__(self, part: Part) -> None:
        self._usable = part.usable
        self._each = [Entry(n, pool.listed.floor) for n, pool in enumerate(part.pools)]
        self._known: dict[bytes, tuple[Entry, ...]] = {}

    def __call__(self, bid: OpenBid) -> tuple[Entry, ...]:
        """Return the entries of a bid."""
        numbers = self._usable.at_any_price(bid)
        key = numbers.tobytes()
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = tuple([self._each[n] for n in numbers.tolist()])
        return found


def _codes(values: Iterable[object], known: dict[object, int]) -> Ints:
    """Number values in the order in which they come."""
    return np.array([known.setdefault(each, len(known)) for each in values], np.int64)
