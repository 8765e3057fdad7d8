"""The market as the engine knows it: supply, open bids and who holds what, folded from the log.

`apply` takes every fact in log order and says what it may have made possible (a `Trigger`).
Between two facts nothing becomes possible by itself: time only takes away, because every window
up to the farthest deadline a bid may have is known when the bid is placed (DEADLINE_AHEAD_MAX).
So a bid that could not be placed need not be looked at again until the supply grows, and folding
the same facts again gives the same book.

An owner who took a lease's capacity back keeps those GPUs until the lease would have ended, or
until they are published in a new offer: nobody reclaims in order to be leased again at once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush, merge
from typing import Any

from ledger.domain.event import Event
from ledger.domain.ids import BidId, HostId, LeaseId, OfferId, TenantId
from listings.domain.events import (
    OfferExpired,
    OfferPaused,
    OfferPublished,
    OfferRepriced,
    OfferResumed,
    OfferWithdrawn,
)
from marketplace.domain.calendar import Calendar, Taken
from marketplace.domain.demand import OpenBid, Shape
from marketplace.domain.eligibility import Explanation, Screened, explain, fitting, screen
from marketplace.domain.events import (
    BidAmended,
    BidCancelled,
    BidExpired,
    BidFilled,
    BidPlaced,
    ExtensionDeclined,
    ExtensionGranted,
    ExtensionRequested,
    LeaseClosed,
    LeaseGranted,
    ReclaimRequested,
    RoundCleared,
)
from marketplace.domain.moments import Millis, from_above, from_below
from marketplace.domain.supply import Entry, Listed
from marketplace.domain.triggers import BidCame, ExtensionAsked, SupplyGrew, Trigger

SHAPES_MAX = 2_000
"""Indexes kept; a shape that is asked for again after it was dropped costs one pass over offers."""


@dataclass(slots=True)
class Held:
    """A lease in the book."""

    granted: LeaseGranted
    ends: Millis
    reclaimed_by: TenantId | None = None
    reclaimed_at: int = 0
    """Store position of the reclaim."""


class Book:
    """One market. Changed by `apply` alone; `calendar` is for reading and forking."""

    def __init__(self, market: str) -> None:
        self.market = market
        self.offers: dict[OfferId, Listed] = {}
        self.bids: dict[BidId, OpenBid] = {}
        self.held: dict[LeaseId, Held] = {}
        self.calendar = Calendar()
        self.told: dict[BidId, str] = {}
        """The reason each waiting bid was last given."""
        self.read_to = 0
        """Store position of the last fact that is not the engine's own."""
        self._by_host: dict[HostId, dict[OfferId, Listed]] = defaultdict(dict)
        self._entries: dict[Shape, list[Entry]] = {}
        self._resting: dict[Shape, list[tuple[int, int, str, OpenBid]]] = {}
        self._dying: list[tuple[int, str, BidId]] = []
        self._screened: dict[Shape, Screened] = {}
        self.round_at: datetime | None = None
        """When the last round that decided anything was cleared."""

    def apply(self, event: Event, position: int) -> Trigger | None:
        """Take in one fact; return what it may have made possible."""
        rule = RULES.get(type(event))
        return None if rule is None else rule(self, event, position)

    # --- reading ---------------------------------------------------------------------------

    def entries(self, shape: Shape) -> Sequence[Entry]:
        """Return the offers that fit a shape and are not paused, cheapest first."""
        entries = self._entries.get(shape)
        if entries is None:
            if len(self._entries) >= SHAPES_MAX:
                self._forget_shapes()
            entries = self._entries[shape] = sorted(
                entry
                for listed in self.offers.values()
                if not listed.paused and (entry := _entry(listed, shape)) is not None
            )
        return entries

    def entries_on(self, shape: Shape, hosts: Collection[HostId]) -> Sequence[Entry]:
        """Return the part of `entries` that is on these hosts."""
        return sorted(
            entry
            for host_id in hosts
            for listed in self._by_host.get(host_id, {}).values()
            if not listed.paused and (entry := _entry(listed, shape)) is not None
        )

    def _forget_shapes(self) -> None:
        self._entries = {
            shape: entries for shape, entries in self._entries.items() if shape in self._resting
        }
        for listed in self.offers.values():
            listed.fits = {
                shape: fit for shape, fit in listed.fits.items() if shape in self._entries
            }

    def patient(self) -> list[OpenBid]:
        """Return the bids that wait for a round, in the order of the round."""
        waiting = (bid for bid in self.bids.values() if bid.terms.patience == "patient")
        return sorted(waiting, key=lambda bid: bid.round_order)

    def resting(self, hosts: Collection[HostId] | None = None) -> Iterator[OpenBid]:
        """Yield the immediate bids that wait, best price first, then first come.

        hosts: only those that something on these hosts fits, at their price.
        """
        queues = []
        for shape, queue in self._resting.items():
            floor = 0 if hosts is None else self._lowest_floor(shape, hosts)
            if floor is not None:
                end = bisect_left(queue, -floor + 1, key=lambda item: item[0])
                queues.append(queue[:end])
        for _, _, _, bid in merge(*queues, key=lambda item: item[:3]):
            yield bid

    def _lowest_floor(self, shape: Shape, hosts: Collection[HostId]) -> int | None:
        return min((entry.floor for entry in self.entries_on(shape, hosts)), default=None)

    def explain(self, bid: OpenBid, *, now: int, calendar: Calendar | None = None) -> Explanation:
        """Walk the funnel of a bid, which need not be in the book.

        calendar: in place of the book's own.
        """
        screened = self._screened.get(bid.shape)
        if screened is None:
            if len(self._screened) >= SHAPES_MAX:
                self._screened.clear()
            screened = self._screened[bid.shape] = screen(bid.shape, self.offers.values())
        return explain(bid, screened, self.entries(bid.shape), calendar or self.calendar, now=now)

    def dead(self, now: int) -> list[BidId]:
        """Return the bids that can no longer be met, and forget that they were due."""
        found = []
        while self._dying and self._dying[0][0] < now:
            _, _, bid_id = heappop(self._dying)
            bid = self.bids.get(bid_id)
            if bid is not None and bid.latest_start < now:
                found.append(bid_id)
        return found

    def forget_before(self, millis: int) -> None:
        """Drop spans that are over, to bound memory."""
        self.calendar.forget_before(millis)

    # --- supply ----------------------------------------------------------------------------

    def _published(self, event: OfferPublished, position: int) -> Trigger | None:
        if event.market != self.market:
            return None
        listed = Listed(event, position, event.floor.nanos_per_gpu_hour)
        self.offers[event.offer_id] = listed
        self._by_host[event.host_id][event.offer_id] = listed
        for gpu in event.gpus:
            self.calendar.drop(gpu.uuid, None)
        self._screened.clear()
        self._enlist(listed)
        return SupplyGrew(frozenset({event.host_id}))

    def _repriced(self, event: OfferRepriced, position: int) -> Trigger | None:
        listed = self.offers.get(event.offer_id)
        if listed is None:
            return None
        cheaper = event.floor.nanos_per_gpu_hour < listed.floor
        self._delist(listed)
        listed.floor, listed.since = event.floor.nanos_per_gpu_hour, position
        self._enlist(listed)
        return SupplyGrew(frozenset({listed.terms.host_id})) if cheaper else None

    def _paused(self, event: OfferPaused, position: int) -> Trigger | None:
        listed = self.offers.get(event.offer_id)
        if listed is not None:
            self._delist(listed)
            listed.paused = True
        return None

    def _resumed(self, event: OfferResumed, position: int) -> Trigger | None:
        listed = self.offers.get(event.offer_id)
        if listed is None:
            return None
        self._delist(listed)
        listed.paused, listed.since = False, position
        self._enlist(listed)
        return SupplyGrew(frozenset({listed.terms.host_id}))

    def _gone(self, event: OfferWithdrawn | OfferExpired, position: int) -> Trigger | None:
        listed = self.offers.pop(event.offer_id, None)
        if listed is not None:
            self._screened.clear()
            self._delist(listed)
            del self._by_host[listed.terms.host_id][listed.offer_id]
        return None

    def _enlist(self, listed: Listed) -> None:
        if not listed.paused:
            for shape, entries in self._entries.items():
                entry = _entry(listed, shape)
                if entry is not None:
                    insort(entries, entry)

    def _delist(self, listed: Listed) -> None:
        if listed.paused:
            return
        for entries in self._entries.values():
            place = bisect_left(entries, listed.rank, key=lambda entry: entry[:3])
            if place < len(entries) and entries[place].listed is listed:
                del entries[place]

    # --- demand ----------------------------------------------------------------------------

    def _placed(self, event: BidPlaced, position: int) -> Trigger | None:
        if event.market != self.market:
            return None
        return self._queue(OpenBid.of(event, since=position))

    def _amended(self, event: BidAmended, position: int) -> Trigger | None:
        bid = self.bids.get(event.bid_id)
        if bid is None:
            return None
        self._unqueue(bid)
        return self._queue(bid.amended(event, since=position))

    def _ended(self, event: BidCancelled | BidExpired | BidFilled, position: int) -> None:
        bid = self.bids.get(event.bid_id)
        if bid is not None:
            self._unqueue(bid)
            self.told.pop(event.bid_id, None)

    def _queue(self, bid: OpenBid) -> Trigger | None:
        self.bids[bid.bid_id] = bid
        heappush(self._dying, (bid.latest_start, str(bid.bid_id), bid.bid_id))
        if bid.terms.patience == "patient":
            return None
        insort(
            self._resting.setdefault(bid.shape, []),
            (*bid.price_time, bid),
            key=lambda item: item[:3],
        )
        return BidCame(bid.bid_id)

    def _unqueue(self, bid: OpenBid) -> None:
        del self.bids[bid.bid_id]
        queue = self._resting.get(bid.shape, [])
        place = bisect_left(queue, bid.price_time, key=lambda item: item[:3])
        if place < len(queue) and queue[place][3] is bid:
            del queue[place]
            if not queue:
                del self._resting[bid.shape]

    # --- the engine's own decisions, and what became of leases --------------------------------

    def _cleared(self, event: RoundCleared, position: int) -> None:
        if event.lane == "round":
            self.round_at = event.at
        for unmatched in event.unmatched:
            if unmatched.bid_id in self.bids:
                self.told[unmatched.bid_id] = unmatched.reason

    def _granted(self, event: LeaseGranted, position: int) -> None:
        bid = self.bids.get(event.bid_id)
        if bid is not None:
            self._unqueue(bid)
            self.told.pop(event.bid_id, None)
        starts, ends = from_below(event.window.starts_at), from_above(event.window.ends_at)
        self.held[event.lease_id] = Held(event, ends)
        for share in event.shares:
            for uuid in share.gpu_uuids:
                self.calendar.take(uuid, Taken(starts, ends, event.lease_id))

    def _extension_asked(self, event: ExtensionRequested, position: int) -> Trigger | None:
        return ExtensionAsked(event.lease_id, event) if event.lease_id in self.held else None

    def _extended(self, event: ExtensionGranted, position: int) -> None:
        held = self.held.get(event.lease_id)
        if held is None:
            return
        held.ends = from_above(event.ends_at)
        starts = from_below(held.granted.window.starts_at)
        for uuid in _uuids(held.granted):
            self.calendar.drop(uuid, event.lease_id)
            self.calendar.take(uuid, Taken(starts, held.ends, event.lease_id))

    def _declined(self, event: ExtensionDeclined, position: int) -> None:
        """Change nothing: it is read for its `through`, by which an engine folds."""

    def _reclaimed(self, event: ReclaimRequested, position: int) -> None:
        held = self.held.get(event.lease_id)
        if held is not None:
            held.reclaimed_by, held.reclaimed_at = event.owner_id, position

    def _closed(self, event: LeaseClosed, position: int) -> Trigger | None:
        held = self.held.pop(event.lease_id, None)
        if held is None:
            return None
        free_from = from_above(event.at)
        freed = set[HostId]()
        for share in held.granted.shares:
            for uuid in share.gpu_uuids:
                kept = share.owner_id == held.reclaimed_by and not self._listed_since(
                    uuid, share.host_id, held.reclaimed_at
                )
                for span in self.calendar.drop(uuid, event.lease_id):
                    self._give_back(uuid, span, free_from, kept=kept)
                if not kept:
                    freed.add(share.host_id)
        return SupplyGrew(frozenset(freed)) if freed else None

    def _listed_since(self, uuid: str, host_id: HostId, position: int) -> bool:
        offers = self._by_host.get(host_id, {}).values()
        return any(listed.published > position and uuid in listed.groups for listed in offers)

    def _give_back(self, uuid: str, span: Taken, free_from: Millis, *, kept: bool) -> None:
        until = min(span.ends, free_from)
        if span.starts < until:
            self.calendar.take(uuid, span._replace(ends=until))
        since = max(span.starts, free_from)
        if kept and since < span.ends:
            self.calendar.take(uuid, Taken(since, span.ends, None))


def _entry(listed: Listed, shape: Shape) -> Entry | None:
    fit = listed.fits.get(shape)
    if fit is None:
        fit = listed.fits[shape] = fitting(shape, listed.terms)
    return Entry(*listed.rank, listed, *fit) if fit[0] else None


def _uuids(granted: LeaseGranted) -> Iterator[str]:
    for share in granted.shares:
        yield from share.gpu_uuids


RULES: dict[type[Event], Callable[[Book, Any, int], Trigger | None]] = {
    OfferPublished: Book._published,
    OfferRepriced: Book._repriced,
    OfferPaused: Book._paused,
    OfferResumed: Book._resumed,
    OfferWithdrawn: Book._gone,
    OfferExpired: Book._gone,
    BidPlaced: Book._placed,
    BidAmended: Book._amended,
    BidCancelled: Book._ended,
    BidExpired: Book._ended,
    BidFilled: Book._ended,
    RoundCleared: Book._cleared,
    LeaseGranted: Book._granted,
    ExtensionGranted: Book._extended,
    ExtensionDeclined: Book._declined,
    ExtensionRequested: Book._extension_asked,
    ReclaimRequested: Book._reclaimed,
    LeaseClosed: Book._closed,
}

READS = frozenset(kind.name for kind in RULES)
"""Stored names of the facts that a book is folded from; all others may be left out."""
