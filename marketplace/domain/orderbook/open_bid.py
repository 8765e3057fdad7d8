"""A bid as it stands in the book."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple, Protocol

from ledger.domain.ids import BidId, HostId
from ledger.domain.making import made_quickly, maker
from ledger.domain.money import MILLIS_PER_HOUR
from listings.domain.events import OfferPublished
from listings.domain.gpus import names_share
from marketplace.domain.bids.abilities import needs_of
from marketplace.domain.bids.pausing import ROOM_WITHIN, SOON, is_return, return_due_at
from marketplace.domain.facts.events import BidAmended, BidPlaced, GpuRequest, KeptOff
from marketplace.domain.facts.instants import Millis, from_above, from_below, moment, whole_second
from marketplace.domain.facts.values import TAKES_SHARES, ReclaimTerm
from marketplace.domain.orderbook.host_reliability import Record, meets

NEVER = 1 << 62
CLASS_RANK = {"reserved": 0, "on-demand": 1, "interruptible": 2}


class Offered(Protocol):
    """An offer in the book, as far as a bid chooses by it."""

    @property
    def terms(self) -> OfferPublished:
        """Return what its owner said."""
        ...

    @property
    def record(self) -> Record:
        """Return how its host has proved."""
        ...


class Shape(NamedTuple):
    """What decides which offers fit; bids of one shape share an index.

    gang: it takes shares of GPUs, but asks for several GPUs, which shares of one card are not.
    needs: what the host's agent must be able to do for its work.
    """

    request: GpuRequest
    kind: str
    currency: str
    gang: bool = False
    needs: tuple[str, ...] = ()


@made_quickly
@dataclass(frozen=True, slots=True, eq=False)
class OpenBid:
    """A bid that waits, in one of the sizes it makes do with: the largest, unless it is `sized`.

    since: store position at which it was placed or last amended. limit: most it pays at this
    size, within its budget; reach: the most at any of its sizes, by which it queues. Times in
    milliseconds; rate, limit and reach in nano-units per GPU-hour.
    """

    terms: BidPlaced
    shape: Shape
    since: int
    rate: int
    limit: int
    reach: int
    earliest: Millis
    deadline: Millis
    gpus: int
    duration: int
    gpus_min: int
    duration_min: int
    lapses: int
    """The last moment at which it may be granted anything."""
    due: bool = False
    """It is the rest of paused work, and cannot wait longer."""

    @classmethod
    def of(cls, placed: BidPlaced, *, since: int) -> OpenBid:
        """Return a bid as it was placed."""
        seconds_min = placed.duration_min_seconds or placed.duration_seconds
        whole = (placed.gpus, placed.duration_seconds * 1000)
        least = (placed.gpus_min or placed.gpus, seconds_min * 1000)
        rate = placed.limit.nanos_per_gpu_hour
        return _open_bid(
            terms=placed,
            shape=_shape(placed),
            since=since,
            rate=rate,
            limit=_within(placed, rate, *whole),
            reach=_within(placed, rate, *least),
            earliest=from_below(placed.earliest_start),
            deadline=from_below(placed.deadline),
            gpus=whole[0],
            duration=whole[1],
            gpus_min=least[0],
            duration_min=least[1],
            lapses=NEVER if placed.good_until is None else from_below(placed.good_until),
        )

    def amended(self, event: BidAmended, *, since: int) -> OpenBid:
        """Return the bid with a new limit, deadline and number of GPUs, at the end of the queue."""
        rate = event.limit.nanos_per_gpu_hour
        whole = OpenBid.of(event.taken_over(self.terms), since=since)
        return replace(
            whole,
            rate=rate,
            limit=_within(whole.terms, rate, whole.gpus, whole.duration),
            reach=_within(whole.terms, rate, whole.gpus_min, whole.duration_min),
            deadline=from_below(event.deadline),
            due=self.due,
        )

    def sized(self, gpus: int, duration: int) -> OpenBid:
        """Return the same bid for so many GPUs and so long."""
        if (gpus, duration) == (self.gpus, self.duration):
            return self
        limit = _within(self.terms, self.rate, gpus, duration)
        return replace(self, gpus=gpus, duration=duration, limit=limit)

    @property
    def least(self) -> OpenBid:
        """Return the bid in the smallest size it makes do with."""
        return self.sized(self.gpus_min, self.duration_min)

    @property
    def has_ranges(self) -> bool:
        """Tell if it makes do with less than its size."""
        return self.gpus_min < self.gpus or self.duration_min < self.duration

    def likeness(self, now: int) -> tuple[object, ...]:
        """Return what it has in common with bids that differ in what they pay, and whose they are.

        Those with ranges pay the same, too: what they may spend on each GPU depends on their size.
        """
        sizes = (self.gpus, self.duration, self.gpus_min, self.duration_min)
        earliest = max(self.earliest, now)
        whole = self.limit if self.has_ranges else None
        where = (self.terms.placement, self.keeps_off)
        return (self.shape, sizes, *where, earliest, self.deadline, whole)

    @property
    def keeps_off(self) -> tuple[KeptOff, ...]:
        """Return the hosts on which its work failed not long ago."""
        continues = self.terms.continues
        return () if continues is None else continues.keeps_off

    def earliest_on(self, host_id: HostId, since: int) -> int:
        """Return when it may begin on a host at the earliest, that being no sooner than `since`."""
        until = (each.until for each in self.keeps_off if each.host_id == host_id)
        return max([since, *(whole_second(from_above(each)) for each in until)])

    @property
    def is_choosy(self) -> bool:
        """Tell if it asks for hosts, owners or what these promise: `takes` has to be asked."""
        asked = self.shape.request
        return (
            asked.own
            or bool(asked.hosts)
            or bool(asked.not_hosts)
            or asked.reliability_min_ppm is not None
            or asked.notice_seconds_min is not None
            or asked.reclaim_fee_ppm_min is not None
            or asked.grace_seconds_min is not None
        )

    @property
    def seeks_soonest(self) -> bool:
        """Tell if it would rather start sooner than pay less, within its limit."""
        return self.terms.seeks == "soonest"

    def takes(self, listed: Offered) -> bool:
        """Tell if the bid takes the host and the owner of an offer, and finds it reliable."""
        return self.chooses(listed.terms) and self.trusts(listed.record)

    def trusts(self, record: Record) -> bool:
        """Tell if a host is as reliable as the bid asks."""
        return meets(self.shape.request.reliability_min_ppm, record)

    def chooses(self, offer: OfferPublished) -> bool:
        """Tell if the bid leaves out neither the host, the owner nor the terms of an offer."""
        return self.lacks(offer) is None and self.chooses_host(offer)

    def chooses_host(self, offer: OfferPublished) -> bool:
        """Tell if the bid leaves out neither the host nor the owner of an offer."""
        asked = self.shape.request
        return (
            (not asked.own or offer.tenant_id == self.terms.tenant_id)
            and (not asked.hosts or offer.host_id in asked.hosts)
            and offer.host_id not in asked.not_hosts
        )

    def lacks(self, offer: OfferPublished) -> ReclaimTerm | None:
        """Return what an offer promises too little of; of one's own nothing is asked."""
        own = offer.tenant_id == self.terms.tenant_id
        return None if own else self.shape.request.lacks(offer)

    @property
    def returns(self) -> bool:
        """Tell if it is the rest of work that may be paused."""
        return self.terms.pausable and is_return(self.terms)

    @property
    def waits_for_room(self) -> bool:
        """Tell if it takes what can be had at once, and reserves nothing that somebody holds."""
        return self.returns and not self.due

    def soon(self, now: int, within: timedelta = SOON) -> OpenBid:
        """Return it as it is if it has to begin soon."""
        starts = max(self.earliest, whole_second(now)) + within // timedelta(milliseconds=1)
        return replace(self, deadline=min(self.deadline, Millis(starts + self.duration)))

    def as_tried(self, now: int) -> OpenBid:
        """Return what a place is looked for: of paused work that waits, what begins at once."""
        return self.soon(now, ROOM_WITHIN) if self.waits_for_room else self

    @property
    def due_at(self) -> int:
        """Return when the rest of paused work cannot wait longer."""
        return from_above(return_due_at(self.terms, moment(self.deadline)))

    @property
    def as_granted(self) -> BidPlaced:
        """Return its terms as a lease of it needs them: where its work may be paused, with the
        deadline as last amended."""
        if not self.terms.pausable:
            return self.terms
        return replace(self.terms, deadline=moment(self.deadline))

    @property
    def queued(self) -> int:
        """Return its place among bids of equal limit: paused work comes before all others."""
        return self.since - NEVER if self.returns else self.since

    @property
    def waits(self) -> bool:
        """Tell if it stays in the book when it is not met as it comes."""
        return self.terms.good_till not in ("immediate-or-cancel", "fill-or-kill")

    @property
    def bid_id(self) -> BidId:
        """Return the bid's id."""
        return self.terms.bid_id

    @property
    def latest_start(self) -> int:
        """Return the last moment at which it can still be met in this size."""
        return self.deadline - self.duration

    @property
    def last_chance(self) -> int:
        """Return the moment after which it is over: never later than it can be met."""
        if not self.waits:
            return 0
        return min(self.deadline - self.duration_min, self.lapses)

    @property
    def price_time(self) -> tuple[int, int, str]:
        """Return the place in the queue of the instant lane: highest limit, then first come."""
        return (-self.reach, self.queued, str(self.terms.bid_id))

    @property
    def round_order(self) -> tuple[int, int, int, str]:
        """Return the place in a round: service class, then limit, then age."""
        return (CLASS_RANK[self.terms.service_class], *self.price_time)


_open_bid = maker(OpenBid)


def _shape(placed: BidPlaced) -> Shape:
    asked = placed.request
    gang = placed.gpus > 1 and (
        asked.isolation in TAKES_SHARES or any(map(names_share, asked.models))
    )
    work = placed.workload
    return Shape(placed.request, work.kind, placed.limit.currency, gang, needs_of(work))


def _within(placed: BidPlaced, rate: int, gpus: int, duration: int) -> int:
    """Return the highest rate up to `rate` at which that size costs no more than the budget."""
    if placed.budget is None:
        return rate
    # A charge is rounded down: what costs less than one nano-unit more is still within.
    return min(rate, ((placed.budget.nanos + 1) * MILLIS_PER_HOUR - 1) // (gpus * duration))
