"""A log taken in from its start: what was bid, offered and leased, and what of it in a stretch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from ledger.domain.ids import BidId, LeaseId, OfferId
from ledger.eventstore.port import Recorded
from listings.domain.events import (
    OfferExpired,
    OfferPaused,
    OfferPublished,
    OfferRepriced,
    OfferResumed,
    OfferWithdrawn,
)
from marketplace.domain.book.snapshot import BookState
from marketplace.domain.facts.events import (
    BidAmended,
    BidHandedOn,
    BidMoveAsked,
    BidPlaced,
    Cut,
    ExtensionGranted,
    LeaseClosed,
    LeaseGranted,
)
from marketplace.domain.facts.instants import ONE_MILLI, from_above, moment
from marketplace.domain.facts.policy_events import GovernanceEvent
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.domain.quotas.snapshot import restored_quotas


@dataclass(slots=True)
class BidTold:
    """A bid. limit: as it was last set. inside: it came in the stretch."""

    placed: BidPlaced
    limit: int
    inside: bool


@dataclass(slots=True)
class LeaseTold:
    """A lease. bid: None where it was placed long before. inside: granted in the stretch."""

    granted: LeaseGranted
    bid: BidTold | None
    floors: int
    """Sum over its GPUs, per GPU-hour."""
    ends: datetime
    inside: bool

    @property
    def gpus(self) -> int:
        """Return how many GPUs it is of."""
        return sum(len(share.gpu_uuids) for share in self.granted.shares)

    @property
    def millis(self) -> int:
        """Return how long it lasts, as far as is known."""
        return max(0, (self.ends - self.granted.window.starts_at) // ONE_MILLI)

    @property
    def wait(self) -> int:
        """Return the seconds from when it was wanted to its start."""
        assert self.bid is not None
        placed = self.bid.placed
        wanted = max(placed.earliest_start, placed.at)
        return max(0, (self.granted.window.starts_at - wanted) // timedelta(seconds=1))


@dataclass(slots=True)
class OfferTold:
    """An offer. live: when it was on the market."""

    published: OfferPublished
    floor: int
    live: list[tuple[datetime, datetime | None]] = field(default_factory=list)


class Tally:
    """Takes in a log from its start; the stretch begins after a position.

    start: the book with which the log begins; None: it begins with the first event.
    """

    def __init__(self, market: str, after: int, start: BookState | None = None) -> None:
        self._market, self._after = market, after
        self.bids: dict[BidId, BidTold] = {}
        self.leases: dict[LeaseId, LeaseTold] = {}
        self.offers: dict[OfferId, OfferTold] = {}
        self.interrupted = 0
        self.policies: Policies | None = None
        """The policies of the market, as they are at the end."""
        self._coming: dict[BidId, BidTold] = {}
        """Bids of other markets that are asked to come to this one."""
        if start is not None:
            self._begin(start)

    def _begin(self, start: BookState) -> None:
        quotas = restored_quotas(start.quotas)
        self.policies = None if quotas is None else quotas.policies
        for offer in start.offers:
            # When it was paused does not count: that was before the stretch.
            until = offer.terms.at if offer.paused else None
            self.offers[offer.terms.offer_id] = OfferTold(
                offer.terms, offer.floor, [(offer.terms.at, until)]
            )
        for bid in start.bids:
            self.bids[bid.terms.bid_id] = BidTold(bid.terms, bid.rate, inside=False)
        for bid in start.coming:
            self._coming[bid.terms.bid_id] = BidTold(bid.terms, bid.rate, inside=False)
        for held in start.held:
            ends = held.granted.window.ends_at
            if from_above(ends) != held.ends:
                ends = moment(held.ends)
            self.leases[held.granted.lease_id] = LeaseTold(
                held.granted, None, floors=0, ends=ends, inside=False
            )

    @classmethod
    def of(
        cls, log: Iterable[Recorded], market: str, after: int, start: BookState | None = None
    ) -> Tally:
        """Return the tally of a log; `log` starts with what was before the stretch."""
        tally = cls(market, after, start)
        for recorded in log:
            tally.see(recorded)
        return tally

    @property
    def made(self) -> list[LeaseTold]:
        """Return the leases granted in the stretch."""
        return [lease for lease in self.leases.values() if lease.inside]

    def see(self, recorded: Recorded) -> None:
        """Take in one record."""
        inside = recorded.position > self._after
        match recorded.event:
            case OfferPublished() as published if published.market == self._market:
                floor = published.floor.nanos_per_gpu_hour
                live: list[tuple[datetime, datetime | None]] = [(published.at, None)]
                self.offers[published.offer_id] = OfferTold(published, floor, live)
            case OfferRepriced() as event if event.offer_id in self.offers:
                self.offers[event.offer_id].floor = event.floor.nanos_per_gpu_hour
            case OfferPaused() | OfferWithdrawn() | OfferExpired() as event:
                self._end(event.offer_id, event.at)
            case OfferResumed() as event if event.offer_id in self.offers:
                self.offers[event.offer_id].live.append((event.at, None))
            case BidPlaced() as placed if placed.market == self._market:
                limit = placed.limit.nanos_per_gpu_hour
                self.bids[placed.bid_id] = BidTold(placed, limit, inside)
            case BidAmended() as event:
                self._amend(event)
            case BidMoveAsked() | BidHandedOn() as event:
                self._move(event, inside)
            case LeaseGranted() as granted if granted.market == self._market:
                for cut in granted.cuts:
                    self._cut(cut, inside)
                self.leases[granted.lease_id] = self._lease(granted, inside)
            case ExtensionGranted() as extended if extended.lease_id in self.leases:
                self.leases[extended.lease_id].ends = extended.ends_at
            case LeaseClosed() as closed if closed.lease_id in self.leases:
                lease = self.leases[closed.lease_id]
                lease.ends = min(lease.ends, closed.at)
            case event if isinstance(event, GovernanceEvent) and event.market == self._market:
                self.policies = Policies.evolve(self.policies, event)
            case _:
                pass

    def _move(self, event: BidMoveAsked | BidHandedOn, inside: bool) -> None:
        if event.to != self._market:
            return
        if isinstance(event, BidMoveAsked):
            limit = event.limit.nanos_per_gpu_hour
            self._coming[event.bid_id] = BidTold(event.placed, limit, inside)
        elif (came := self._coming.pop(event.bid_id, None)) is not None:
            self.bids[event.bid_id] = replace(came, inside=inside)

    def _amend(self, event: BidAmended) -> None:
        for waiting in (self.bids, self._coming):
            if event.bid_id in waiting:
                waiting[event.bid_id].limit = event.limit.nanos_per_gpu_hour

    def _cut(self, cut: Cut, inside: bool) -> None:
        self.interrupted += inside and cut.because == "interrupted"
        lease = self.leases.get(cut.lease_id)
        if lease is not None:
            lease.ends = min(lease.ends, cut.ends_at)

    def _end(self, offer_id: OfferId, at: datetime) -> None:
        offer = self.offers.get(offer_id)
        if offer is not None and offer.live[-1][1] is None:
            offer.live[-1] = (offer.live[-1][0], at)

    def _lease(self, granted: LeaseGranted, inside: bool) -> LeaseTold:
        floors = sum(
            self.offers[share.offer_id].floor * len(share.gpu_uuids)
            for share in granted.shares
            if share.offer_id in self.offers
        )
        bid = self.bids.get(granted.bid_id)
        return LeaseTold(granted, bid, floors, granted.window.ends_at, inside)
