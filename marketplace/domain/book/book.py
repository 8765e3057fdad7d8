"""The market as the engine knows it: supply, open bids and who holds what, folded from the log.

`apply` takes every fact in log order and says what it may have made possible (a `Trigger`).
Between two facts nothing becomes possible by itself: time only takes away, because every window
up to the farthest deadline a bid may have is known when the bid is placed (DEADLINE_AHEAD_MAX).
So a bid that could not be placed need not be looked at again until the supply grows, and folding
the same facts again gives the same book.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from heapq import heappop, heappush
from typing import Any

from ledger.domain.event import Event
from ledger.domain.ids import BidId, HostId
from listings.domain.events import OfferExpired, OfferPublished, OfferWithdrawn
from marketplace.domain.book.agents import RULES as AGENT_RULES
from marketplace.domain.book.agents import Agents, part_tenants
from marketplace.domain.book.held_leases import RULES as LEASE_RULES
from marketplace.domain.book.held_leases import Holdings
from marketplace.domain.book.offer_changes import RULES as OFFER_RULES
from marketplace.domain.book.promises import RULES as PROMISE_RULES
from marketplace.domain.book.promises import Promises
from marketplace.domain.book.quarantine import RULES as HEALTH_RULES
from marketplace.domain.book.quarantine import Quarantine, withhold
from marketplace.domain.book.quota_following import KINDS, explained, follow, set_policy
from marketplace.domain.book.returns import Returns
from marketplace.domain.book.suspension import Aside, noted
from marketplace.domain.book.unmatched_reason import reason_of
from marketplace.domain.facts.events import (
    BidAmended,
    BidCancelled,
    BidExpired,
    BidFilled,
    BidHandedOn,
    BidMoveAsked,
    BidPlaced,
    GrantRefused,
    LeaseGranted,
    ReturnDue,
    RoundCleared,
)
from marketplace.domain.facts.instants import whole_second
from marketplace.domain.index.bid_queue import Queue, Selection
from marketplace.domain.index.host_matcher import Desk, OneHost, are_plain
from marketplace.domain.index.offer_index import SHAPES_MAX, Catalogue
from marketplace.domain.index.own_supply import Owners
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.listed_offer import Entry, Listed
from marketplace.domain.orderbook.open_bid import OpenBid, Shape
from marketplace.domain.orderbook.triggers import BidCame, MoveAsked, SupplyGrew, Trigger
from marketplace.domain.placement.eligibility import Explanation, Screened, explain, screen
from marketplace.domain.quotas.minimum_runtime import NONE_SET
from marketplace.domain.quotas.quota_book import QuotaBook

SCREENED_MAX = 2_000
"""Funnels kept by shape: made for explanations, dropped with every new offer."""


class Book:
    """One market. Changed by `apply` alone; `calendar` is for reading and forking."""

    def __init__(self, market: str) -> None:
        self.market = market
        self.bids: dict[BidId, OpenBid] = {}
        self.calendar = Calendar()
        self.catalogue = Catalogue(self.calendar)
        self.offers = self.catalogue.offers
        self.quarantine, self.agents, self.promises = Quarantine(), Agents(), Promises()
        self.leases = Holdings(self.calendar, self.catalogue, self.quarantine.silent)
        self.held, self.resales = self.leases.held, self.leases.resales
        self.queue = Queue(lambda bid: self.catalogue.kinds.shape(bid.shape))
        self.owners = Owners(self.catalogue, lambda bid: self.catalogue.kinds.shape(bid.shape))
        self.quotas: QuotaBook | None = None
        self.least_runs = NONE_SET
        self.granted_bids: dict[BidId, OpenBid] = {}
        """Bids whose grants are not taken up yet, as they are by now: one that is refused waits
        again on the terms as last amended."""
        self.coming: dict[BidId, OpenBid] = {}
        """Bids that another market is asked to hand on to this one, as they are by now."""
        self.told: dict[BidId, str] = {}
        """The reason each waiting bid was last given."""
        self.aside: dict[BidId, Aside] = {}
        """Bids that are left out of rounds for a while."""
        self.read_to = 0
        """Store position of the last fact that is not the engine's own."""
        self._dying: list[tuple[int, int, BidId]] = []
        self._screened: dict[Shape, Screened] = {}
        self._shapes_max = SHAPES_MAX
        self.returns, self._desk = Returns(), Desk()
        self.round_at: datetime | None = None
        """When the last round that decided anything was cleared."""

    def apply(self, event: Event, position: int) -> Trigger | None:
        """Take in one fact; return what it may have made possible."""
        rule = RULES.get(type(event))
        trigger = None if rule is None else rule(self, event, position)
        return trigger if self.quotas is None else follow(self, event, trigger)

    def decided(self, events: Sequence[Event], position: int) -> None:
        """Take in what was decided on one fact: as `apply` of one after the other."""
        if len(events) == 1:  # as mostly: of a bid that nothing serves
            self.apply(events[0], position)
            return
        grants = [each for each in events if isinstance(each, LeaseGranted)]
        others = len(events) - len(grants)
        together = len(grants) > 1 and self.quotas is None and grants[0] is events[others]
        for event in events[:others] if together else events:
            self.apply(event, position)
        if together:
            self._granted_each(grants)

    # --- reading ---------------------------------------------------------------------------

    def entries(self, shape: Shape) -> Sequence[Entry]:
        """Return the offers that fit a shape and are not paused, cheapest first."""
        return self.catalogue.entries(shape)

    def entries_on(self, shape: Shape, hosts: Collection[HostId]) -> Sequence[Entry]:
        """Return the part of `entries` that is on these hosts."""
        return self.catalogue.entries_on(shape, hosts)

    def within_reach(
        self, bid: OpenBid, *, now: int, left: Catalogue | None = None
    ) -> Iterable[Entry]:
        """Return those of `entries` that may serve a bid in some size, in the same order.

        left: the offers with the room that a fork of the calendar leaves.
        """
        found = self._may_serve(bid, left or self.catalogue, now)
        return list(found) if bid.has_ranges else found

    def _may_serve(self, bid: OpenBid, catalogue: Catalogue, now: int) -> Iterable[Entry]:
        earliest = max(bid.earliest, whole_second(now))
        return catalogue.candidates(
            bid.least, earliest=earliest, limit=bid.reach, longest=bid.duration
        )

    def patient(self) -> list[OpenBid]:
        """Return the bids that wait for a round, in the order of the round."""
        waiting = (bid for bid in self.bids.values() if bid.terms.patience == "patient")
        return sorted(waiting, key=lambda bid: bid.round_order)

    def resting(self, hosts: Collection[HostId] | None = None) -> list[OpenBid]:
        """Return the immediate bids that wait, best price first, then first come.

        hosts: only those that something on these hosts fits, at their price.
        """
        served = None if hosts is None else self.queue.served(self.catalogue.floors(hosts))
        return self.queue.all() if served is None else served.in_order()

    def served_by(
        self,
        hosts: Collection[HostId],
        calendar: Calendar,
        *,
        now: int,
        freed: Collection[HostId] | None = None,
    ) -> tuple[int, Iterator[OpenBid]]:
        """Return how many bids `resting` would, and those of them for which there may be room.

        calendar: in which the caller takes room for one bid before it asks for the next.
        freed: the hosts with more room, where on the others it is quotas that leave more.
        """
        served = self.queue.served(self.catalogue.floors(hosts))
        if freed is None:
            return len(served), self._with_room(served, hosts, calendar, now)
        near = self.queue.served(self.catalogue.floors(freed))
        placed = self.queue.perhaps_placed(
            served.floors, self._with_room(near, freed, calendar, now)
        )
        return len(served), iter(placed)

    def _with_room(
        self, served: Selection, hosts: Collection[HostId], calendar: Calendar, now: int
    ) -> Iterator[OpenBid]:
        return served.with_room(
            lambda: self.catalogue.free(hosts, calendar, served, now=now),
            lambda: calendar.changes,
            now,
        )

    def only_host(
        self, hosts: Collection[HostId], calendar: Calendar, *, now: int
    ) -> OneHost | None:
        """Return the room of the only host there is; None: there are others, or more to look at."""
        if len(hosts) != 1:
            return None
        ranked = [each for host in hosts for each in self.catalogue.on(host) if not each.paused]
        ranked.sort(key=lambda each: each.rank)
        if not ranked or ranked[0].one_tenant or not are_plain(ranked):
            return None
        served = self.queue.served(self.catalogue.floors(hosts))
        waits = self.queue.waits_but(self.owners.bids_of(ranked[0].terms.tenant_id))
        fits = self.catalogue.kinds.fitting_specs([each.number for each in ranked])
        return OneHost(ranked, served, calendar, self._desk, now=now, waits=waits, fits=fits)

    def glance(self, bid: OpenBid, *, now: int) -> str | None:
        """Return what `reason` does, where no host can have room for a bid; None: one may have."""
        if self.quotas is not None or bid.terms.tenant_id in self.owners:
            return None
        if self._may_serve(bid, self.catalogue, now) != ():
            return None
        return reason_of(bid.as_tried(now).least, self.catalogue, self.calendar, now=now)

    def reason(
        self, bid: OpenBid, *, now: int, calendar: Calendar, left: Catalogue | None = None
    ) -> str | None:
        """Return why a bid that cannot be placed cannot: what `explain` would file.

        left: the offers with the room that the calendar, a fork, leaves.
        """
        if bid.terms.tenant_id in self.owners:
            return self.explain(bid, now=now, calendar=calendar).filed
        return reason_of(bid.as_tried(now).least, left or self.catalogue, calendar, now=now)

    def explain(
        self, bid: OpenBid, *, now: int, calendar: Calendar | None = None, priced: bool = True
    ) -> Explanation:
        """Walk the funnel of any bid. priced: whether the price it needs is looked for."""
        bid = bid.as_tried(now)
        screened = self._screened.get(bid.shape)
        if screened is None:
            if len(self._screened) >= SCREENED_MAX:
                self._screened.clear()
            screened = self._screened[bid.shape] = screen(bid.shape, self.offers.values())
        calendar, own = calendar or self.calendar, bid.terms.tenant_id in self.owners
        found = explain(
            bid, screened, self.entries(bid.shape), calendar, now=now, own=own, priced=priced
        )
        return explained(self, bid, found, calendar, now=now, counted=priced)

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
        """Drop spans and uses that are over, to bound memory."""
        self.calendar.forget_before(millis)
        if self.quotas is not None:
            self.quotas.forget_before(millis)

    # --- supply ----------------------------------------------------------------------------

    def _published(self, event: OfferPublished, position: int) -> Trigger | None:
        if event.market != self.market:
            return None
        listed = Listed(event, position, event.floor.nanos_per_gpu_hour)
        self.calendar.drop_kept([gpu.uuid for gpu in event.gpus])
        self.take_in(listed)
        return SupplyGrew(frozenset({event.host_id}))

    def _gone(self, event: OfferWithdrawn | OfferExpired, position: int) -> Trigger | None:
        listed = self.offers.get(event.offer_id)
        if listed is not None:
            self.take_out(listed)
            self.promises.said.pop(event.offer_id, None)
        return None

    def take_out(self, listed: Listed) -> None:
        """Forget an offer."""
        self._screened.clear()
        self.catalogue.remove(listed)
        self.owners.gone(listed)
        self._withhold(listed)

    def take_in(self, listed: Listed) -> None:
        """Take in an offer, with all that is known of it."""
        self._screened.clear()
        host_id = listed.terms.host_id
        listed.record = self.leases.records[host_id]
        listed.on_host(self.agents.says(host_id), self.promises.level(listed.offer_id))
        self.catalogue.add(listed)
        self.owners.offered(listed)
        if listed.one_tenant:
            part_tenants(self, host_id)
        self._withhold(listed)

    def _withhold(self, listed: Listed) -> None:
        if listed.terms.host_id in self.quarantine:
            withhold(self, listed.terms.host_id)

    # --- demand ----------------------------------------------------------------------------

    def _placed(self, event: BidPlaced, position: int) -> Trigger | None:
        if event.market != self.market:
            return None
        return self.wait(OpenBid.of(event, since=position))

    def _amended(self, event: BidAmended, position: int) -> Trigger | None:
        coming = self.coming.get(event.bid_id)
        if coming is not None:
            self.coming[event.bid_id] = coming.amended(event, since=position)
        granted = self.granted_bids.get(event.bid_id)
        if granted is not None:
            self.granted_bids[event.bid_id] = granted.amended(event, since=position)
        bid = self.bids.pop(event.bid_id, None)
        if bid is None:
            return None
        self._unqueue(bid)
        return self.wait(bid.amended(event, since=position))

    def _due(self, event: ReturnDue, position: int) -> Trigger | None:
        """Let the rest of paused work take what begins later, too, and have others paused."""
        bid = self.bids.get(event.bid_id) if event.market == self.market else None
        if bid is None or bid.due:
            return None
        self._unqueue(bid)
        return self.wait(replace(bid, due=True))

    def _asked_for(self, event: BidMoveAsked, position: int) -> Trigger | None:
        if event.to == self.market:
            placed = OpenBid.of(event.placed, since=position)
            amended = BidAmended(
                bid_id=event.bid_id, limit=event.limit, deadline=event.deadline, at=event.at
            )
            self.coming[event.bid_id] = placed.amended(amended, since=position)
        is_here = event.market == self.market and event.bid_id in self.bids
        return MoveAsked(event) if is_here else None

    def _handed_on(self, event: BidHandedOn, position: int) -> Trigger | None:
        """Let a bid go, or let it wait here, at the end of the queue and as old as it is."""
        if event.market == self.market:
            self._ended(event, position)
        coming = self.coming.pop(event.bid_id, None) if event.to == self.market else None
        return None if coming is None else self.wait(replace(coming, since=position))

    def _filled(self, event: BidFilled, position: int) -> Trigger | None:
        """Take in that a grant was taken up: what it leaves of leases it cuts can be leased."""
        self._ended(event, position)
        cut = self.leases.taken_up(event.lease_id)
        hosts = frozenset(share.host_id for held in cut for share in held.granted.shares)
        return SupplyGrew(hosts) if hosts else None

    def _refused(self, event: GrantRefused, position: int) -> Trigger | None:
        """Take in that a grant came to nothing: its capacity is free, its bid waits again."""
        bid = self.granted_bids.pop(event.bid_id, None)
        if event.market != self.market:
            return None
        given = self.leases.refused(event.lease_id)
        if bid is not None and event.reason != "bid-over":
            self.wait(replace(bid, since=max(bid.since, position)))
        if given is None:
            return None
        hosts = frozenset(share.host_id for share in given.granted.shares)
        return SupplyGrew(hosts, again=event.bid_id)

    def _ended(
        self, event: BidCancelled | BidExpired | BidFilled | BidHandedOn, position: int
    ) -> None:
        self.granted_bids.pop(event.bid_id, None)
        if not isinstance(event, BidHandedOn):
            self.coming.pop(event.bid_id, None)
        bid = self.bids.pop(event.bid_id, None)
        if bid is not None:
            self._unqueue(bid)
            self.told.pop(event.bid_id, None)

    def wait(self, bid: OpenBid) -> Trigger | None:
        """Let a bid wait, from its place in the queue on."""
        bid_id, waits = bid.terms.bid_id, bid.waits
        self.bids[bid_id] = bid
        if waits:
            self.owners.wait(bid)
        heappush(self._dying, (bid.last_chance, bid_id.int, bid_id))
        self.returns.note(bid)
        if bid.terms.patience == "patient":
            return None
        self._drop_shapes_without_bids()
        if waits:
            self.queue.add(bid)
        return BidCame(bid_id)

    def _unqueue(self, bid: OpenBid) -> None:
        self.queue.remove_each((bid,))
        self.owners.leave_each((bid,))

    def _drop_shapes_without_bids(self) -> None:
        if self.catalogue.kinds.shapes > self._shapes_max:
            self.catalogue.forget_shapes()
            self.queue.renumber()
            self.owners.renumber()
            self._shapes_max = max(SHAPES_MAX, 2 * self.catalogue.kinds.shapes)

    # --- the engine's own decisions, and what became of leases --------------------------------

    def _cleared(self, event: RoundCleared, position: int) -> None:
        if event.market != self.market:
            return
        if event.lane == "round":
            self.round_at = event.at
            self.aside = noted(self.aside, self.bids, event)
        for unmatched in event.unmatched:
            if unmatched.bid_id in self.bids:
                self.told[unmatched.bid_id] = unmatched.reason

    def _granted(self, event: LeaseGranted, position: int) -> None:
        if event.market == self.market:
            self._granted_each([event])

    def _granted_each(self, grants: Sequence[LeaseGranted]) -> None:
        bids = [self.bids.pop(event.bid_id, None) for event in grants]
        known = [bid for bid in bids if bid is not None]
        self.queue.remove_each(known)
        self.owners.leave_each(known)
        for bid in known:
            bid_id = bid.terms.bid_id
            self.told.pop(bid_id, None)
            self.granted_bids[bid_id] = bid
        terms = [None if bid is None else bid.as_granted for bid in bids]
        self.leases.granted(zip(grants, terms, strict=True))

    def _of_lease(self, event: Event, position: int) -> Trigger | None:
        return self.leases.apply(event, position)


RULES: dict[type[Event], Callable[[Book, Any, int], Trigger | None]] = {
    OfferPublished: Book._published,
    **dict.fromkeys((OfferWithdrawn, OfferExpired), Book._gone),
    BidPlaced: Book._placed,
    BidAmended: Book._amended,
    BidCancelled: Book._ended,
    BidExpired: Book._ended,
    BidFilled: Book._filled,
    GrantRefused: Book._refused,
    BidMoveAsked: Book._asked_for,
    ReturnDue: Book._due,
    BidHandedOn: Book._handed_on,
    RoundCleared: Book._cleared,
    LeaseGranted: Book._granted,
    **OFFER_RULES,
    **HEALTH_RULES,
    **AGENT_RULES,
    **PROMISE_RULES,
    **dict.fromkeys(LEASE_RULES, Book._of_lease),
    **dict.fromkeys(KINDS, set_policy),
}

READS = frozenset(kind.name for kind in RULES)
"""Stored names of the facts that a book is folded from; all others may be left out."""
