"""Match open bids to free GPUs: `clear` decides, nothing else in the market grants capacity.

Pure and deterministic: the same book, moment and bids give the same grants, also a year later.
`RULE` names the version; it changes when the same book could give other grants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID, uuid5

from ledger.domain.ids import BidId, HostId, LeaseId
from ledger.domain.money import MILLIS_PER_HOUR, Rate
from ledger.domain.span import Window
from marketplace.domain.book import Book
from marketplace.domain.calendar import Calendar, Taken
from marketplace.domain.demand import OpenBid
from marketplace.domain.events import (
    Certificate,
    ExtensionDeclined,
    ExtensionGranted,
    ExtensionRequested,
    LeaseGranted,
    RoundCleared,
    Share,
    Unmatched,
)
from marketplace.domain.moments import Millis, from_above, from_below, moment
from marketplace.domain.packing import Placement, place
from marketplace.domain.pricing import instant_price
from marketplace.domain.quota_gate import gate_of, outcome
from marketplace.domain.ranges import smaller
from marketplace.domain.supply import Entry, Listed

Lane = Literal["instant", "round"]

RULE = "price-time-2"
"""Of the instant lane."""
ROUND_RULE = "welfare-1"
"""Of rounds: see `rounds.clear_round`."""
TOLD_MAX = 500
"""Reasons worked out in one round; the bids beyond are told in the rounds that follow."""


@dataclass(frozen=True, slots=True)
class Fill:
    """One bid's grant. price: nano-units per GPU-hour."""

    bid: OpenBid
    lease_id: LeaseId
    placement: Placement
    price: int

    @property
    def ends(self) -> Millis:
        """Return when the lease ends."""
        return Millis(self.placement.starts + self.bid.duration)

    @property
    def window(self) -> Window:
        """Return the span of the lease."""
        return Window(moment(self.placement.starts), moment(self.ends))

    @property
    def worth(self) -> int:
        """Return (limit − floor) × GPU-time in nano-units, rounded down."""
        floors = sum(listed.floor for listed, _ in self.placement.gpus)
        value = self.bid.limit * len(self.placement.gpus) - floors
        return value * self.bid.duration // MILLIS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Proof:
    """What a round knows of its own quality; see `Certificate` for the meanings."""

    seed: int
    bound: int = 0
    steps: tuple[tuple[str, int], ...] = ()
    slots: int = 0
    pools: int = 0
    capped: int = 0
    paradoxical: int = 0
    paradoxical_nanos: int = 0

    def plus(
        self,
        *,
        bound: int,
        steps: Iterable[tuple[str, int]],
        slots: int,
        pools: int,
        capped: int,
        regrets: tuple[int, int],
    ) -> Proof:
        """Add a service class that was cleared after the others."""
        return Proof(
            seed=self.seed,
            bound=self.bound + bound,
            steps=(*self.steps, *steps),
            slots=max(self.slots, slots),
            pools=max(self.pools, pools),
            capped=self.capped + capped,
            paradoxical=self.paradoxical + regrets[0],
            paradoxical_nanos=self.paradoxical_nanos + regrets[1],
        )


@dataclass(frozen=True, slots=True)
class Clearing:
    """What one pass over the book decided: fills in the order made, and who got nothing."""

    fills: tuple[Fill, ...]
    refused: tuple[OpenBid, ...]
    calendar: Calendar
    """As it stands with the fills in it."""
    proof: Proof | None = None
    """Of a round; None in the instant lane."""
    passed_over: int = 0
    """Waiting bids that could pay, but for which there was no room at a glance."""
    held_back: Mapping[BidId, str] = field(default_factory=dict)
    """Why bids that had a place were not let through: a quota or a limit."""

    @property
    def considered(self) -> int:
        """Return how many bids were looked at."""
        return len(self.fills) + len(self.refused) + self.passed_over


def clear(
    book: Book,
    bids: Iterable[OpenBid] | None,
    *,
    now: int,
    round_id: UUID,
    hosts: Collection[HostId] | None = None,
) -> Clearing:
    """Match bids to free GPUs one after the other, in the order given: the instant lane.

    Args:
        now: milliseconds; nothing starts before.
        hosts: the only ones where anything can have become possible for bids on one host.
        bids: None: all those that wait and that `hosts` could serve, best price first.

    Returns:
        Fills that overlap neither each other nor what is granted already, each priced between
        the floors of its offers and the limit of its bid.
    """
    calendar = book.calendar.fork()
    placed: list[tuple[OpenBid, LeaseId, Placement]] = []
    refused, waiting = list[OpenBid](), 0
    if bids is None:
        waiting, bids = book.served_by(hosts or (), calendar, now=now)
    gate = gate_of(book)
    for bid in bids if gate is None else gate.turns(bids, now=now):
        lease_id = lease_id_of(round_id, bid)
        if gate is None:
            found = _found(book, bid, hosts, calendar, now)
        else:
            found = gate.admit(bid, lambda it: _found(book, it, hosts, calendar, now), lease_id)
        if found is None:
            refused.append(bid)
        else:
            _take(calendar, found[1], found[0], lease_id)
            placed.append((found[0], lease_id, found[1]))
    own, refused, held_back = outcome(gate, refused)
    fills = tuple(
        Fill(bid, lease, at, at.floor if lease in own else instant_price(bid, at))
        for bid, lease, at in placed
    )
    for fill in fills:
        assert fill.placement.floor <= fill.price <= fill.bid.limit
    passed_over = max(0, waiting - len(placed) - len(refused))
    return Clearing(fills, tuple(refused), calendar, None, passed_over, held_back)


def _found(
    book: Book, bid: OpenBid, hosts: Collection[HostId] | None, calendar: Calendar, now: int
) -> tuple[OpenBid, Placement] | None:
    """Return a bid in the size it gets and where it goes, or None."""
    placement = place(bid, _within_reach(book, bid, hosts, now), calendar, now=now)
    if placement is not None:
        return bid, placement
    if not bid.has_ranges:
        return None
    everywhere = hosts is None or bid.terms.placement == "any-hosts"
    entries = book.entries(bid.shape) if everywhere else book.entries_on(bid.shape, hosts or ())
    return smaller(bid, entries, calendar, now=now)


def _within_reach(
    book: Book, bid: OpenBid, hosts: Collection[HostId] | None, now: int
) -> Iterable[Entry]:
    """Return the offers that may serve a bid when only on `hosts` anything is new.

    A gang may join what is new with what was there, so it has to look everywhere.
    """
    if hosts is None or bid.terms.placement == "any-hosts":
        return book.within_reach(bid, now=now)
    return book.entries_on(bid.shape, hosts)


def lease_id_of(round_id: UUID, bid: OpenBid) -> LeaseId:
    """Return the id of the lease that a bid gets in a round."""
    return LeaseId(uuid5(round_id, str(bid.bid_id)))


def _take(calendar: Calendar, placement: Placement, bid: OpenBid, lease_id: LeaseId) -> None:
    span = Taken(placement.starts, Millis(placement.starts + bid.duration), lease_id)
    for _, uuid in placement.gpus:
        calendar.take(uuid, span)


def decided(
    book: Book,
    clearing: Clearing,
    *,
    now: int,
    lane: Lane,
    round_id: UUID,
    tell: Iterable[OpenBid],
) -> list[RoundCleared | LeaseGranted]:
    """Write a clearing down as events; nothing where nothing was granted and no reason is new.

    tell: refused bids whose reasons are to be given; only those that differ from the last.
    """
    unmatched = _news(book, clearing, tell, now)
    if not clearing.fills and not unmatched:
        return []
    prices = [fill.price for fill in clearing.fills]
    at = moment(now)
    cleared = RoundCleared(
        market=book.market,
        round_id=round_id,
        lane=lane,
        through=book.read_to,
        bids=clearing.considered,
        offers=len(book.offers),
        grants=len(clearing.fills),
        gpus=sum(fill.bid.gpus for fill in clearing.fills),
        unmatched=unmatched,
        price_low=min(prices, default=0),
        price_high=max(prices, default=0),
        rule=RULE if clearing.proof is None else ROUND_RULE,
        at=at,
        certificate=_certificate(clearing),
    )
    granted = [
        LeaseGranted(
            lease_id=fill.lease_id,
            bid_id=fill.bid.bid_id,
            market=book.market,
            round_id=round_id,
            shares=shares_of(fill.placement),
            gpu_model=model_of(fill.placement),
            window=fill.window,
            price=Rate(fill.price, fill.bid.shape.currency),
            at=at,
        )
        for fill in clearing.fills
    ]
    return [cleared, *granted]


def _certificate(clearing: Clearing) -> Certificate | None:
    proof = clearing.proof
    if proof is None:
        return None
    millis = sum(fill.bid.duration * len(fill.placement.gpus) for fill in clearing.fills)
    paid = sum(fill.price * fill.bid.duration * len(fill.placement.gpus) for fill in clearing.fills)
    return Certificate(
        welfare_nanos=sum(fill.worth for fill in clearing.fills),
        bound_nanos=proof.bound,
        seed=proof.seed,
        iterations=proof.steps,
        slots=proof.slots,
        pools=proof.pools,
        price_mean=paid // millis if millis else 0,
        capped=proof.capped,
        paradoxical=proof.paradoxical,
        paradoxical_nanos=proof.paradoxical_nanos,
    )


def _news(
    book: Book, clearing: Clearing, tell: Iterable[OpenBid], now: int
) -> tuple[Unmatched, ...]:
    news = []
    for bid in sorted(tell, key=lambda bid: bid.bid_id in book.told)[:TOLD_MAX]:
        if bid.bid_id in clearing.held_back:
            reason: str | None = clearing.held_back[bid.bid_id]
        elif clearing.proof is None and book.quotas is None:
            # Nothing in the instant lane grows: what was refused has no place at the end either.
            reason = book.reason(bid, now=now, calendar=clearing.calendar)
        else:
            reason = book.explain(bid, now=now, calendar=clearing.calendar).reason
        if reason is not None and book.told.get(bid.bid_id) != reason:
            news.append(Unmatched(bid.bid_id, reason))
    return tuple(news)


def shares_of(placement: Placement) -> tuple[Share, ...]:
    """Return what each offer gives, in the order of the offers' rank."""
    by_offer: dict[int, tuple[Listed, list[str]]] = {}
    for listed, uuid in placement.gpus:
        by_offer.setdefault(id(listed), (listed, []))[1].append(uuid)
    return tuple(
        Share(
            offer_id=listed.offer_id,
            host_id=listed.terms.host_id,
            owner_id=listed.terms.tenant_id,
            gpu_uuids=tuple(sorted(uuids)),
            notice_seconds=listed.terms.notice_seconds,
            reclaim_fee_ppm=listed.terms.reclaim_fee_ppm,
            source=listed.terms.source,
            reclaim_steps=listed.terms.reclaim_steps,
        )
        for listed, uuids in sorted(by_offer.values(), key=lambda pair: pair[0].rank)
    )


def model_of(placement: Placement) -> str:
    """Return the model of the GPUs; `A100-80GB+H100-80GB` where a gang has several."""
    models = {
        gpu.model
        for listed, uuid in placement.gpus
        for gpu in listed.terms.gpus
        if gpu.uuid == uuid
    }
    return "+".join(sorted(models))[:MODEL_CHARS_MAX]


MODEL_CHARS_MAX = 64


def decide_extension(
    book: Book, asked: ExtensionRequested, *, now: int
) -> ExtensionGranted | ExtensionDeclined:
    """Let a lease go on in place, or say what stands in the way; it never moves.

    The time added must lie in a window of each of its offers, which must still be there and not
    cost more than the lease does, and the GPUs must be free.
    """
    reason = _in_the_way(book, asked, now)
    if reason is None:
        return ExtensionGranted(
            lease_id=asked.lease_id,
            market=book.market,
            ends_at=asked.ends_at,
            through=book.read_to,
            at=moment(now),
        )
    return ExtensionDeclined(
        lease_id=asked.lease_id,
        market=book.market,
        ends_at=asked.ends_at,
        reason=reason,
        through=book.read_to,
        at=moment(now),
    )


EXTENSION_REASONS: dict[str, str] = {
    "lease-over": "the lease is over",
    "reclaimed": "an owner is taking the capacity back",
    "not-later": "it ends no later than the lease does now",
    "offer-gone": "an offer it rests on was withdrawn or paused",
    "reserved": "an offer it rests on is kept for one bid",
    "windows": "an offer it rests on has no window that long",
    "price": "an offer it rests on now costs more than the lease pays",
    "taken": "others hold the GPUs then",
    "quota": "a quota or a limit leaves no room for it",
}


def _in_the_way(book: Book, asked: ExtensionRequested, now: int) -> str | None:
    held = book.held.get(asked.lease_id)
    if held is None or held.ends < now:
        return "lease-over"
    if held.reclaimed_by is not None:
        return "reclaimed"
    ends = from_above(asked.ends_at)
    if ends <= held.ends:
        return "not-later"
    for share in held.granted.shares:
        listed = book.offers.get(share.offer_id)
        if listed is None or listed.paused:
            return "offer-gone"
        if not listed.open_to(BidId(held.granted.bid_id)):
            return "reserved"
        if not listed.covers(held.ends, from_below(asked.ends_at)):
            return "windows"
        if listed.floor > held.granted.price.nanos_per_gpu_hour:
            return "price"
        if not all(book.calendar.is_free(uuid, held.ends, ends) for uuid in share.gpu_uuids):
            return "taken"
    if book.quotas is not None and not book.quotas.extends(asked.lease_id, ends).fits:
        return "quota"
    return None
