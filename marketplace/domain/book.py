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

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush
from typing import Any

from ledger.domain.event import Event
from ledger.domain.ids import BidId, HostId, LeaseId, TenantId
from listings.domain.events import (
    OfferExpired,
    OfferPaused,
    OfferPublished,
    OfferRepriced,
    OfferResumed,
    OfferWithdrawn,
)
from marketplace.domain.calendar import Calendar, Taken
from marketplace.domain.catalogue import SHAPES_MAX, Catalogue
from marketplace.domain.demand import OpenBid, Shape
from marketplace.domain.eligibility import Explanation, Screened, explain, screen
from marketplace.domain.events import (
    BidAmended,
    BidCancelled,
    BidExpired,
    BidFilled,
    BidPlaced,
    Cut,
    ExtensionDeclined,
    ExtensionGranted,
    ExtensionRequested,
    LeaseClosed,
    LeaseGranted,
    LeaseShortened,
    ReclaimRequested,
    ResaleEnded,
    ResaleOpened,
    RoundCleared,
)
from marketplace.domain.moments import Millis, from_above, from_below, whole_second
from marketplace.domain.queue import Queue
from marketplace.domain.quota_book import QuotaBook
from marketplace.domain.quota_following import KINDS, explained, follow, set_policy
from marketplace.domain.reasons import reason_of
from marketplace.domain.supply import Entry, Listed
from marketplace.domain.triggers import BidCame, ExtensionAsked, ResaleCame, SupplyGrew, Trigger

SCREENED_MAX = 2_000
"""Funnels kept by shape: made for explanations, dropped with every new offer."""


@dataclass(slots=True)
class Held:
    """A lease in the book."""

    granted: LeaseGranted
    ends: Millis
    bid: BidPlaced | None = None
    """What it was granted for; None where the bid was gone by then."""
    reclaimed_by: TenantId | None = None
    reclaimed_at: int = 0
    """Store position of the reclaim."""


class Book:
    """One market. Changed by `apply` alone; `calendar` is for reading and forking."""

    def __init__(self, market: str) -> None:
        self.market = market
        self.bids: dict[BidId, OpenBid] = {}
        self.held: dict[LeaseId, Held] = {}
        self.calendar = Calendar()
        self.catalogue = Catalogue(self.calendar)
        self.offers = self.catalogue.offers
        self.queue = Queue(lambda bid: self.catalogue.kinds.shape(bid.shape))
        self.resales: dict[LeaseId, tuple[int, ResaleOpened]] = {}
        """Leases of which the rest is for sale, and since which store position."""
        self.quotas: QuotaBook | None = None
        self.told: dict[BidId, str] = {}
        """The reason each waiting bid was last given."""
        self.read_to = 0
        """Store position of the last fact that is not the engine's own."""
        self._dying: list[tuple[int, str, BidId]] = []
        self._screened: dict[Shape, Screened] = {}
        self._shapes_max = SHAPES_MAX
        self.round_at: datetime | None = None
        """When the last round that decided anything was cleared."""

    def apply(self, event: Event, position: int) -> Trigger | None:
        """Take in one fact; return what it may have made possible."""
        rule = RULES.get(type(event))
        trigger = None if rule is None else rule(self, event, position)
        return trigger if self.quotas is None else follow(self, event, trigger)

    # --- reading ---------------------------------------------------------------------------

    def entries(self, shape: Shape) -> Sequence[Entry]:
        """Return the offers that fit a shape and are not paused, cheapest first."""
        return self.catalogue.entries(shape)

    def entries_on(self, shape: Shape, hosts: Collection[HostId]) -> Sequence[Entry]:
        """Return the part of `entries` that is on these hosts."""
        return self.catalogue.entries_on(shape, hosts)

    def within_reach(self, bid: OpenBid, *, now: int) -> Iterable[Entry]:
        """Return those of `entries` that may serve a bid in some size, in the same order."""
        earliest = max(bid.earliest, whole_second(now))
        found = self.catalogue.candidates(bid.least, earliest=earliest, limit=bid.reach)
        return list(found) if bid.has_ranges else found

    def patient(self) -> list[OpenBid]:
        """Return the bids that wait for a round, in the order of the round."""
        waiting = (bid for bid in self.bids.values() if bid.terms.patience == "patient")
        return sorted(waiting, key=lambda bid: bid.round_order)

    def resting(self, hosts: Collection[HostId] | None = None) -> list[OpenBid]:
        """Return the immediate bids that wait, best price first, then first come.

        hosts: only those that something on these hosts fits, at their price.
        """
        if hosts is None:
            return self.queue.all()
        return self.queue.served(self.catalogue.floors(hosts)).in_order()

    def served_by(
        self, hosts: Collection[HostId], calendar: Calendar, *, now: int
    ) -> tuple[int, Iterator[OpenBid]]:
        """Return how many bids `resting` would, and those of them for which there may be room.

        calendar: in which the caller takes room for one bid before it asks for the next.
        """
        served = self.queue.served(self.catalogue.floors(hosts))
        bids = served.with_room(
            lambda: [self.catalogue.levels(host_id, calendar) for host_id in hosts],
            lambda: calendar.changes,
            now,
        )
        return len(served), bids

    def reason(self, bid: OpenBid, *, now: int, calendar: Calendar) -> str:
        """Return why a bid that cannot be placed cannot: what `explain` would say."""
        return reason_of(bid.least, self.catalogue, calendar, now=now)

    def explain(self, bid: OpenBid, *, now: int, calendar: Calendar | None = None) -> Explanation:
        """Walk the funnel of a bid, which need not be in the book.

        calendar: in place of the book's own.
        """
        screened = self._screened.get(bid.shape)
        if screened is None:
            if len(self._screened) >= SCREENED_MAX:
                self._screened.clear()
            screened = self._screened[bid.shape] = screen(bid.shape, self.offers.values())
        calendar = calendar or self.calendar
        found = explain(bid, screened, self.entries(bid.shape), calendar, now=now)
        return explained(self, bid, found, calendar, now=now)

    def dead(self, now: int) -> list[BidId]:
        """Return the bids that can no longer be met, and forget that they were due."""
        found: dict[BidId, None] = {}  # an amended bid may be there several times
        while self._dying and self._dying[0][0] < now:
            due, _, bid_id = heappop(self._dying)
            bid = self.bids.get(bid_id)
            if bid is not None and bid.last_chance == due:
                found[bid_id] = None
        return list(found)

    def forget_before(self, millis: int) -> None:
        """Drop spans that are over, to bound memory."""
        self.calendar.forget_before(millis)

    # --- supply ----------------------------------------------------------------------------

    def _published(self, event: OfferPublished, position: int) -> Trigger | None:
        if event.market != self.market:
            return None
        listed = Listed(event, position, event.floor.nanos_per_gpu_hour)
        for gpu in event.gpus:
            self.calendar.drop(gpu.uuid, None)
        self._screened.clear()
        self.catalogue.add(listed)
        return SupplyGrew(frozenset({event.host_id}))

    def _repriced(self, event: OfferRepriced, position: int) -> Trigger | None:
        listed = self.offers.get(event.offer_id)
        if listed is None:
            return None
        cheaper = event.floor.nanos_per_gpu_hour < listed.floor
        listed.floor, listed.since = event.floor.nanos_per_gpu_hour, position
        self.catalogue.changed(listed)
        return SupplyGrew(frozenset({listed.terms.host_id})) if cheaper else None

    def _paused(self, event: OfferPaused, position: int) -> Trigger | None:
        listed = self.offers.get(event.offer_id)
        if listed is not None:
            listed.paused = True
            self.catalogue.changed(listed)
        return None

    def _resumed(self, event: OfferResumed, position: int) -> Trigger | None:
        listed = self.offers.get(event.offer_id)
        if listed is None:
            return None
        listed.paused, listed.since = False, position
        self.catalogue.changed(listed)
        return SupplyGrew(frozenset({listed.terms.host_id}))

    def _gone(self, event: OfferWithdrawn | OfferExpired, position: int) -> Trigger | None:
        listed = self.offers.get(event.offer_id)
        if listed is not None:
            self._screened.clear()
            self.catalogue.remove(listed)
        return None

    # --- demand ----------------------------------------------------------------------------

    def _placed(self, event: BidPlaced, position: int) -> Trigger | None:
        if event.market != self.market:
            return None
        return self.wait(OpenBid.of(event, since=position))

    def _amended(self, event: BidAmended, position: int) -> Trigger | None:
        bid = self.bids.get(event.bid_id)
        if bid is None:
            return None
        self._unqueue(bid)
        return self.wait(bid.amended(event, since=position))

    def _ended(self, event: BidCancelled | BidExpired | BidFilled, position: int) -> None:
        bid = self.bids.get(event.bid_id)
        if bid is not None:
            self._unqueue(bid)
            self.told.pop(event.bid_id, None)

    def wait(self, bid: OpenBid) -> Trigger | None:
        """Let a bid wait, from its place in the queue on."""
        self.bids[bid.bid_id] = bid
        heappush(self._dying, (bid.last_chance, str(bid.bid_id), bid.bid_id))
        if bid.terms.patience == "patient":
            return None
        self._drop_shapes_without_bids()
        if bid.waits:
            self.queue.add(bid)
        return BidCame(bid.bid_id)

    def _unqueue(self, bid: OpenBid) -> None:
        del self.bids[bid.bid_id]
        self.queue.remove(bid)

    def _drop_shapes_without_bids(self) -> None:
        if self.catalogue.kinds.shapes > self._shapes_max:
            self.catalogue.forget_shapes()
            self.queue.renumber()
            self._shapes_max = max(SHAPES_MAX, 2 * self.catalogue.kinds.shapes)

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
        for cut in event.cuts:
            self._cut(cut)
        starts, ends = from_below(event.window.starts_at), from_above(event.window.ends_at)
        self.held[event.lease_id] = Held(event, ends, None if bid is None else bid.terms)
        for share in event.shares:
            self.catalogue.touch(share.host_id)
            for uuid in share.gpu_uuids:
                self.calendar.take(uuid, Taken(starts, ends, event.lease_id))

    def _cut(self, cut: Cut) -> None:
        self.resales.pop(cut.lease_id, None)
        if (held := self.held.get(cut.lease_id)) is not None:
            starts = from_below(held.granted.window.starts_at)
            self._ends_at(held, max(starts, from_above(cut.ends_at)))

    def _ends_at(self, held: Held, ends: Millis) -> None:
        held.ends, lease_id = ends, held.granted.lease_id
        starts = from_below(held.granted.window.starts_at)
        for share in held.granted.shares:
            self.catalogue.touch(share.host_id)
            for uuid in share.gpu_uuids:
                self.calendar.drop(uuid, lease_id)
                if starts < ends:
                    self.calendar.take(uuid, Taken(starts, ends, lease_id))

    def _shortened(self, event: LeaseShortened, position: int) -> Trigger | None:
        """What a sale left over is its owner's again, for whoever waits."""
        if event.lease_id not in self.held:
            return None
        shares = self.held[event.lease_id].granted.shares
        return SupplyGrew(frozenset(share.host_id for share in shares))

    def _resale_opened(self, event: ResaleOpened, position: int) -> Trigger | None:
        held = self.held.get(event.lease_id)
        if held is None or held.reclaimed_by is not None:
            return None
        self.resales[event.lease_id] = (position, event)
        return ResaleCame(event.lease_id)

    def _resale_ended(self, event: ResaleEnded, position: int) -> None:
        self.resales.pop(event.lease_id, None)

    def _extension_asked(self, event: ExtensionRequested, position: int) -> Trigger | None:
        return ExtensionAsked(event.lease_id, event) if event.lease_id in self.held else None

    def _extended(self, event: ExtensionGranted, position: int) -> None:
        held = self.held.get(event.lease_id)
        if held is not None:
            self._ends_at(held, from_above(event.ends_at))

    def _declined(self, event: ExtensionDeclined, position: int) -> None:
        """Change nothing: it is read for its `through`, by which an engine folds."""

    def _reclaimed(self, event: ReclaimRequested, position: int) -> None:
        self.resales.pop(event.lease_id, None)
        held = self.held.get(event.lease_id)
        if held is not None:
            held.reclaimed_by, held.reclaimed_at = event.owner_id, position

    def _closed(self, event: LeaseClosed, position: int) -> Trigger | None:
        self.resales.pop(event.lease_id, None)
        held = self.held.pop(event.lease_id, None)
        if held is None:
            return None
        free_from = from_above(event.at)
        freed = set[HostId]()
        for share in held.granted.shares:
            self.catalogue.touch(share.host_id)
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
        offers = self.catalogue.on(host_id)
        return any(listed.published > position and uuid in listed.groups for listed in offers)

    def _give_back(self, uuid: str, span: Taken, free_from: Millis, *, kept: bool) -> None:
        until = min(span.ends, free_from)
        if span.starts < until:
            self.calendar.take(uuid, span._replace(ends=until))
        since = max(span.starts, free_from)
        if kept and since < span.ends:
            self.calendar.take(uuid, Taken(since, span.ends, None))


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
    ResaleOpened: Book._resale_opened,
    ResaleEnded: Book._resale_ended,
    LeaseShortened: Book._shortened,
    **dict.fromkeys(KINDS, set_policy),
}

READS = frozenset(kind.name for kind in RULES)
"""Stored names of the facts that a book is folded from; all others may be left out."""
