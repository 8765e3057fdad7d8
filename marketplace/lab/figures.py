"""What a stretch of a market's log came to: grants, use, worth, waits, fairness. From facts alone.

The same function measures what was recorded and what a run of the lab made of it, so that the two
can be put side by side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from ledger.domain.ids import BidId, LeaseId, OfferId, TenantId
from ledger.domain.money import MILLIS_PER_HOUR
from ledger.eventstore.port import Recorded
from listings.domain.events import (
    OfferExpired,
    OfferPaused,
    OfferPublished,
    OfferRepriced,
    OfferResumed,
    OfferWithdrawn,
)
from listings.domain.windows import windows_of
from marketplace.domain.events import (
    BidAmended,
    BidHandedOn,
    BidMoveAsked,
    BidPlaced,
    Cut,
    ExtensionGranted,
    LeaseClosed,
    LeaseGranted,
)
from marketplace.domain.moments import ONE_MILLI, from_above, moment
from marketplace.domain.states import BookState

PPM = 1_000_000


@dataclass(frozen=True, slots=True)
class Figures:
    """A stretch of the log in numbers. Money in nano-units, of one currency; ratios in ppm.

    gpu_millis: of leases granted in the stretch, whole. offered, used: GPU-time of local GPUs
    within the stretch, by whatever lease. welfare: what bidders would have paid at most less what
    owners ask at least; surplus, owners and fee share it together with the floors. wait: from when
    a lease was wanted to its start. jain: of the share of the GPU-time asked for that each tenant
    got; a million is perfectly even. interrupted: leases cut for others. None where there is
    nothing to take it of.
    """

    bids: int
    grants: int
    gpu_millis: int
    offered_millis: int
    used_millis: int
    utilisation_ppm: int | None
    welfare_nanos: int
    owners_nanos: int
    surplus_nanos: int
    fee_nanos: int
    wait_mean_seconds: int | None
    wait_p95_seconds: int | None
    jain_ppm: int | None
    burst_nanos: int
    interrupted: int = 0


@dataclass(slots=True)
class _Bid:
    placed: BidPlaced
    limit: int
    inside: bool


@dataclass(slots=True)
class _Lease:
    granted: LeaseGranted
    bid: _Bid | None
    floors: int
    """Sum over its GPUs, per GPU-hour."""
    ends: datetime
    inside: bool

    @property
    def gpus(self) -> int:
        return sum(len(share.gpu_uuids) for share in self.granted.shares)

    @property
    def millis(self) -> int:
        return max(0, (self.ends - self.granted.window.starts_at) // ONE_MILLI)


@dataclass(slots=True)
class _Offer:
    published: OfferPublished
    floor: int
    live: list[tuple[datetime, datetime | None]] = field(default_factory=list)


class _Tally:
    """Takes in a log from its start; the stretch begins after a position.

    start: the book with which the log begins; None: it begins with the first event.
    """

    def __init__(self, market: str, after: int, start: BookState | None = None) -> None:
        self._market, self._after = market, after
        self.bids: dict[BidId, _Bid] = {}
        self.leases: dict[LeaseId, _Lease] = {}
        self.offers: dict[OfferId, _Offer] = {}
        self.interrupted = 0
        self._coming: dict[BidId, _Bid] = {}
        """Bids of other markets that are asked to come to this one."""
        if start is not None:
            self._begin(start)

    def _begin(self, start: BookState) -> None:
        for offer in start.offers:
            # When it was paused does not count: that was before the stretch.
            until = offer.terms.at if offer.paused else None
            self.offers[offer.terms.offer_id] = _Offer(
                offer.terms, offer.floor, [(offer.terms.at, until)]
            )
        for bid in start.bids:
            self.bids[bid.terms.bid_id] = _Bid(bid.terms, bid.rate, inside=False)
        for bid in start.coming:
            self._coming[bid.terms.bid_id] = _Bid(bid.terms, bid.rate, inside=False)
        for held in start.held:
            ends = held.granted.window.ends_at
            if from_above(ends) != held.ends:
                ends = moment(held.ends)
            self.leases[held.granted.lease_id] = _Lease(
                held.granted, None, floors=0, ends=ends, inside=False
            )

    def see(self, recorded: Recorded) -> None:
        inside = recorded.position > self._after
        match recorded.event:
            case OfferPublished() as published if published.market == self._market:
                floor = published.floor.nanos_per_gpu_hour
                live: list[tuple[datetime, datetime | None]] = [(published.at, None)]
                self.offers[published.offer_id] = _Offer(published, floor, live)
            case OfferRepriced() as event if event.offer_id in self.offers:
                self.offers[event.offer_id].floor = event.floor.nanos_per_gpu_hour
            case OfferPaused() | OfferWithdrawn() | OfferExpired() as event:
                self._end(event.offer_id, event.at)
            case OfferResumed() as event if event.offer_id in self.offers:
                self.offers[event.offer_id].live.append((event.at, None))
            case BidPlaced() as placed if placed.market == self._market:
                limit = placed.limit.nanos_per_gpu_hour
                self.bids[placed.bid_id] = _Bid(placed, limit, inside)
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
            case _:
                pass

    def _move(self, event: BidMoveAsked | BidHandedOn, inside: bool) -> None:
        if event.to != self._market:
            return
        if isinstance(event, BidMoveAsked):
            limit = event.limit.nanos_per_gpu_hour
            self._coming[event.bid_id] = _Bid(event.placed, limit, inside)
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

    def _lease(self, granted: LeaseGranted, inside: bool) -> _Lease:
        floors = sum(
            self.offers[share.offer_id].floor * len(share.gpu_uuids)
            for share in granted.shares
            if share.offer_id in self.offers
        )
        bid = self.bids.get(granted.bid_id)
        return _Lease(granted, bid, floors, granted.window.ends_at, inside)


def figures_of(
    log: Iterable[Recorded],
    *,
    market: str,
    currency: str,
    after: int,
    since: datetime,
    until: datetime,
    fee_ppm: int,
    start: BookState | None = None,
) -> Figures:
    """Measure the stretch of a log after a position; `log` starts with what was before.

    start: the book with which the log begins; None: it begins with the first event.
    """
    tally = _Tally(market, after, start)
    for recorded in log:
        tally.see(recorded)
    made = [lease for lease in tally.leases.values() if lease.inside]
    offered = _offered(tally.offers.values(), since, until)
    used = sum(_within(lease, since, until) for lease in tally.leases.values())
    waits = sorted(_wait(lease) for lease in made if lease.bid is not None)
    return Figures(
        bids=sum(bid.inside for bid in tally.bids.values()),
        grants=len(made),
        gpu_millis=sum(lease.gpus * lease.millis for lease in made),
        offered_millis=offered,
        used_millis=used,
        utilisation_ppm=used * PPM // offered if offered else None,
        **_money([lease for lease in made if lease.granted.price.currency == currency], fee_ppm),
        wait_mean_seconds=sum(waits) // len(waits) if waits else None,
        wait_p95_seconds=waits[-(-len(waits) * 95 // 100) - 1] if waits else None,
        jain_ppm=_jain(tally, made),
        interrupted=tally.interrupted,
    )


def _money(made: Sequence[_Lease], fee_ppm: int) -> dict[str, int]:
    paid = fee = welfare = surplus = burst = 0
    for lease in (each for each in made if not each.granted.own):
        price = lease.granted.price.nanos_per_gpu_hour
        cost = price * lease.gpus * lease.millis // MILLIS_PER_HOUR
        paid += cost
        fee += cost * fee_ppm // PPM
        limit = price if lease.bid is None else lease.bid.limit
        welfare += (limit * lease.gpus - lease.floors) * lease.millis // MILLIS_PER_HOUR
        surplus += (limit - price) * lease.gpus * lease.millis // MILLIS_PER_HOUR
        if any(share.source == "burst" for share in lease.granted.shares):
            burst += cost
    return {
        "welfare_nanos": welfare,
        "owners_nanos": paid - fee,
        "surplus_nanos": surplus,
        "fee_nanos": fee,
        "burst_nanos": burst,
    }


def _wait(lease: _Lease) -> int:
    assert lease.bid is not None
    placed = lease.bid.placed
    wanted = max(placed.earliest_start, placed.at)
    return max(0, (lease.granted.window.starts_at - wanted) // timedelta(seconds=1))


def _within(lease: _Lease, since: datetime, until: datetime) -> int:
    """Return the GPU-time of its local GPUs that lies in the stretch."""
    starts, ends = max(lease.granted.window.starts_at, since), min(lease.ends, until)
    local = sum(len(each.gpu_uuids) for each in lease.granted.shares if each.source == "local")
    return local * max(0, (ends - starts) // ONE_MILLI)


def _offered(offers: Iterable[_Offer], since: datetime, until: datetime) -> int:
    """Return the GPU-time that was on offer, each GPU counted once at any instant."""
    spans: dict[str, list[tuple[datetime, datetime]]] = defaultdict(list)
    for offer in offers:
        if offer.published.source == "burst":
            continue
        windows = windows_of(offer.published, since=since, until=until)
        for live_from, live_until in offer.live:
            starts, ends = max(live_from, since), min(live_until or until, until)
            found = [
                (max(window.starts_at, starts), min(window.ends_at, ends)) for window in windows
            ]
            for gpu in offer.published.gpus:
                spans[gpu.uuid] += [span for span in found if span[0] < span[1]]
    return sum(_union(sorted(found)) for found in spans.values())


def _union(spans: Iterable[tuple[datetime, datetime]]) -> int:
    total, reached = 0, None
    for starts, ends in spans:
        if reached is not None and starts < reached:
            starts = reached
        if starts < ends:
            total += (ends - starts) // ONE_MILLI
            reached = ends
    return total


def _jain(tally: _Tally, made: Iterable[_Lease]) -> int | None:
    asked: dict[TenantId, int] = defaultdict(int)
    for bid in tally.bids.values():
        if bid.inside:
            asked[bid.placed.tenant_id] += bid.placed.gpus * bid.placed.duration_seconds * 1000
    got: dict[TenantId, int] = defaultdict(int)
    for lease in made:
        if lease.bid is not None and lease.bid.inside:
            got[lease.bid.placed.tenant_id] += lease.gpus * lease.granted.window.millis
    shares = [got[tenant] / millis for tenant, millis in asked.items()]
    squares = sum(share * share for share in shares)
    return round(sum(shares) ** 2 * PPM / (len(shares) * squares)) if squares else None
