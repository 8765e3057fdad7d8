"""One service class of a round: its bids, the supply they meet, and who may have what of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ledger.domain.ids import BidId
from marketplace.domain.book import Book
from marketplace.domain.calendar import Calendar
from marketplace.domain.cleaning import Cleaning, cleaned_edges, cleaning_of
from marketplace.domain.demand import OpenBid, Shape
from marketplace.domain.grid import grid_of
from marketplace.domain.moments import whole_second
from marketplace.domain.optimum.problem import Ints
from marketplace.domain.pools import Pool, pools_of
from marketplace.domain.quota_gate import Gate
from marketplace.domain.round_quotas import Bounds, bounds_of, edges_of
from marketplace.domain.sizes import sizes_of


@dataclass(frozen=True, slots=True)
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
    cleaning: Cleaning = field(default_factory=Cleaning)
    spared: Collection[BidId] = ()
    """Bids that the search leaves to the sweep: their own GPUs were not asked for them yet."""


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
    grid = grid_of(now, until + longest, [*edges, *_edges(sized)])
    bounds = Bounds() if gate is None else bounds_of(gate.quotas, bids, pools, grid)
    part = Part(bids, sized, pools, fits, grid, bounds, now, spared=spared)
    if not longest:
        return part
    usable = {
        bid.bid_id: [number for number in fits[bid.shape] if lets(part, bid, number)]
        for bid in bids
        if bid.bid_id not in bounds.groups
    }
    return replace(part, cleaning=cleaning_of(pools, usable))


def _edges(bids: Sequence[OpenBid]) -> Iterable[int]:
    for bid in bids:
        yield from (bid.earliest, bid.earliest + bid.duration, bid.latest_start, bid.deadline)


def lets(part: Part, bid: OpenBid, number: int) -> bool:
    """Tell if a bid may have GPUs of a pool, which fits its shape, at its limit."""
    return (
        _open(part.pools[number], bid)
        and (bid.bid_id, number) not in part.bounds.barred
        and bid.bid_id not in part.spared
    )


def _open(pool: Pool, bid: OpenBid) -> bool:
    listed = pool.listed
    return (
        listed.floor <= bid.limit
        and listed.lease_min <= bid.duration
        and listed.open_to(bid.bid_id)
        and bid.takes(listed)
        and listed.terms.tenant_id != bid.terms.tenant_id
    )


class Usable:
    """Which pools bids may use at their limit, among those large enough for them; asked often.

    The same as `lets` for each pool, and then whether there is room for all GPUs of a bid in one
    place: anywhere, on one host, in one NVLink group.
    """

    def __init__(self, part: Part) -> None:
        self._part = part
        offers = [pool.listed for pool in part.pools]
        self._floors = np.array([listed.floor for listed in offers], np.int64)
        self._least = np.array([listed.lease_min for listed in offers], np.int64)
        self._sizes = np.array([len(pool.uuids) for pool in part.pools], np.int64)
        self._owners: dict[object, int] = {}
        self._owner = _codes((listed.terms.tenant_id for listed in offers), self._owners)
        self._host = _codes((listed.terms.host_id for listed in offers), {})
        self._group = _codes(((pool.listed.terms.host_id, pool.link) for pool in part.pools), {})
        self._kept = {n for n, each in enumerate(offers) if each.terms.reserved_for is not None}
        self._fits = {shape: np.array(each, np.int64) for shape, each in part.fits.items()}
        self._barred: dict[BidId, list[int]] = defaultdict(list)
        for bid_id, number in part.bounds.barred:
            self._barred[bid_id].append(number)

    def __call__(self, bid: OpenBid) -> Ints:
        """Return the numbers of the pools, rising."""
        fit = self._fits[bid.shape]
        own = self._owners.get(bid.terms.tenant_id, -1)
        may = (self._floors[fit] <= bid.limit) & (self._least[fit] <= bid.duration)
        found: Ints = fit[may & (self._owner[fit] != own)]
        if bid.bid_id in self._part.spared:
            return found[:0]
        if self._kept or bid.is_choosy or bid.bid_id in self._barred:
            number_of = found.tolist()
            found = np.array([n for n in number_of if lets(self._part, bid, n)], np.int64)
        if bid.gpus == 1 or not found.size:
            return found
        if bid.terms.placement == "any-hosts":
            return found if self._sizes[found].sum() >= bid.gpus else found[:0]
        places = (self._group if bid.terms.request.nvlink else self._host)[found]
        room = np.bincount(places, weights=self._sizes[found])
        enough: Ints = found[room[places] >= bid.gpus]
        return enough


def _codes(values: Iterable[object], known: dict[object, int]) -> Ints:
    """Number values in the order in which they come."""
    return np.array([known.setdefault(each, len(known)) for each in values], np.int64)
