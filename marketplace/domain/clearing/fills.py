"""What a pass over the book decides, at what price, and how it is written down as events.

A `Fill` is one grant, a `Clearing` all of one pass. `Rules` is what can be put differently: the
market runs under `PRESENT`, the policy lab runs the same engine over the same facts under others.
Which grants are made does not depend on the price rule: it divides what a grant is worth, between
floor and limit, and nothing else.

A trade of the instant lane takes place at the price of the side that was in the book first. A bid
that comes to offers pays their floor (the highest one's, for a gang); an offer that comes to
waiting bids earns the limit of the bid that it serves. An offer made for one bid alone trades at
its floor: it is the answer to that bid. A bid that its own tenant's offers serve pays nothing
(`own_supply_first`). What a round's grants cost is in `batch_clearing`.

In both lanes the price lies between the floor and the limit, so nobody is worse off than without
the trade; and buyers pay exactly what owners and platform share, so nothing has to be made up.
Neither rule is strategy-proof: no rule that also balances can be (Myerson, Satterthwaite 1983).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal
from uuid import UUID

from ledger.domain.ids import BidId, LeaseId, named, text_of
from ledger.domain.making import made_quickly, maker
from ledger.domain.money import MILLIS_PER_HOUR, Rate
from ledger.domain.span import Window
from listings.domain.divisions import MODEL_CHARS_MAX
from marketplace.domain.book.book import Book
from marketplace.domain.book.suspension import left_out
from marketplace.domain.clearing.round_reasons import RoundReasons
from marketplace.domain.clearing.work_budget import Tries, Watch
from marketplace.domain.facts.events import (
    ROUND_RULE,
    RULE,
    Certificate,
    Cut,
    LeaseGranted,
    RoundCleared,
    Share,
    Unmatched,
)
from marketplace.domain.facts.instants import Millis, moment
from marketplace.domain.index.offer_index import Catalogue
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.listed_offer import Listed
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import Placement, is_own

Lane = Literal["instant", "round"]

_window = maker(Window)


@made_quickly
@dataclass(frozen=True, slots=True)
class Fill:
    """One bid's grant. price: nano-units per GPU-hour.

    weight: what the bid counted more in its round for having waited, per GPU-hour; never paid.
    cuts: leases that end sooner for it. shares: what each offer gives, where that is not what
    the placement says: rests of leases are named after the offers of their owners.
    """

    bid: OpenBid
    lease_id: LeaseId
    placement: Placement
    price: int
    weight: int = 0
    cuts: tuple[Cut, ...] = ()
    shares: tuple[Share, ...] = ()

    @property
    def ends(self) -> Millis:
        return Millis(self.placement.starts + self.bid.duration)

    @property
    def window(self) -> Window:
        starts = self.placement.starts
        return _window(moment(starts), moment(starts + self.bid.duration))

    @property
    def own(self) -> bool:
        """Tell if the bidder's own GPUs serve it: no trade, and no part of any statistic."""
        return is_own(self.bid, self.placement)

    @property
    def worth(self) -> int:
        """Return (limit − floor) × GPU-time in nano-units, rounded down; 0 of own use."""
        if self.own:
            return 0
        floors = sum(listed.floor for listed, _ in self.placement.gpus)
        value = self.bid.limit * len(self.placement.gpus) - floors
        return value * self.bid.duration // MILLIS_PER_HOUR

    @property
    def weighs(self) -> int:
        """Return weight × GPU-time in nano-units, rounded down."""
        return self.weight * len(self.placement.gpus) * self.bid.duration // MILLIS_PER_HOUR


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
    aside: tuple[BidId, ...] = ()

    def plus(
        self,
        *,
        bound: int,
        steps: Iterable[tuple[str, int]],
        slots: int,
        pools: int,
        capped: int,
    ) -> Proof:
        """Add a service class that was cleared after the others."""
        return replace(
            self,
            bound=self.bound + bound,
            steps=(*self.steps, *steps),
            slots=max(self.slots, slots),
            pools=max(self.pools, pools),
            capped=self.capped + capped,
        )

    def regretting(self, regrets: tuple[int, int]) -> Proof:
        """Add how many refused bids would have gained at the round's prices, and how much."""
        count, nanos = self.paradoxical + regrets[0], self.paradoxical_nanos + regrets[1]
        return replace(self, paradoxical=count, paradoxical_nanos=nanos)


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
    left: Catalogue | None = None
    """The offers with the room that the calendar leaves, where that is known."""
    placeless: Collection[BidId] = ()
    """Refused bids that were tried on what the calendar leaves, and have no place there."""

    @property
    def considered(self) -> int:
        return len(self.fills) + len(self.refused) + self.passed_over


def lease_id_of(round_id: UUID, bid: OpenBid) -> LeaseId:
    return lease_ids_of(round_id)(bid)


def lease_ids_of(round_id: UUID) -> Callable[[OpenBid], LeaseId]:
    """Return what gives the ids of a round's leases."""
    id_of = named(round_id)
    return lambda bid: LeaseId(id_of(text_of(bid.terms.bid_id)))


PriceRule = Literal["market", "floor", "midpoint", "limit"]

PRICE_RULES: dict[str, str] = {
    "market": "as the market does: first come sets it at once, the round's price in rounds",
    "floor": "the highest floor among the offers: all of the gain goes to the bidder",
    "midpoint": "half way between floor and limit: a double auction with k = ½",
    "limit": "pay as bid: all of the gain goes to the owner",
}


@dataclass(frozen=True, slots=True)
class Rules:
    """What the engine goes by. price: how a grant's price is set between floor and limit.

    preemption: whether leases are interrupted for firm bids and for what is within nominal quota.
    """

    price: PriceRule = "market"
    preemption: bool = True

    def priced(self, clearing: Clearing) -> Clearing:
        if self.price == "market":
            return clearing
        fills = tuple(replace(fill, price=self._price(fill)) for fill in clearing.fills)
        return replace(clearing, fills=fills)

    def _price(self, fill: Fill) -> int:
        if fill.own or fill.cuts:
            return fill.price  # what a cut costs has to be covered
        floor, limit = fill.placement.floor, fill.bid.limit
        match self.price:
            case "floor":
                return floor
            case "limit":
                return limit
            case "midpoint":
                return (floor + limit) // 2
            case "market":
                return fill.price


PRESENT = Rules()


def instant_price(bid: OpenBid, placement: Placement) -> int:
    """Return the price of a trade of the instant lane, in nano-units per GPU-hour."""
    if is_own(bid, placement):
        return 0
    for listed, _ in placement.gpus:
        if listed.since > bid.since and listed.terms.reserved_for is None:
            return bid.limit
    return placement.floor


_cleared, _granted = maker(RoundCleared), maker(LeaseGranted)
_share, _rate, _unmatched = maker(Share), maker(Rate), maker(Unmatched)

TOLD_MIN, TOLD_MAX = 50, 500
"""Reasons worked out in one round, the first of them however late it is; the bids beyond are told
in the rounds that follow."""


def decided(
    book: Book,
    clearing: Clearing,
    *,
    now: int,
    lane: Lane,
    round_id: UUID,
    tell: Iterable[OpenBid],
    watch: Watch | None = None,
) -> list[RoundCleared | LeaseGranted]:
    """Write a clearing down as events; nothing where nothing was granted and no reason is new.

    tell: refused bids whose reasons are to be given; only those that differ from the last. watch:
    how long that may take in a round.
    """
    tries = None if watch is None else watch.stage("reasons", least=TOLD_MIN)
    unmatched = _news(book, clearing, tell, tries, now)
    if not clearing.fills and not unmatched and not _sets_aside(book, clearing, now):
        return []
    own = [fill.price == 0 and fill.own for fill in clearing.fills]
    prices = [fill.price for fill, at_home in zip(clearing.fills, own, strict=True) if not at_home]
    at = moment(now)
    cleared = _cleared(
        market=book.market,
        round_id=round_id,
        lane=lane,
        through=book.read_to,
        bids=clearing.considered,
        offers=len(book.offers),
        grants=len(clearing.fills),
        gpus=sum([fill.bid.gpus for fill in clearing.fills]),
        unmatched=unmatched,
        price_low=min(prices, default=0),
        price_high=max(prices, default=0),
        rule=RULE if clearing.proof is None else ROUND_RULE,
        at=at,
        certificate=_certificate(clearing, tries),
    )
    return [cleared, *_grants(book.market, clearing.fills, own, at, round_id)]


def _grants(
    market: str, fills: Sequence[Fill], own: Sequence[bool], at: datetime, round_id: UUID
) -> Iterator[LeaseGranted]:
    """Yield the grant of each fill. own: whether it is of the bidder's own GPUs, for nothing."""
    known: dict[int, tuple[tuple[Share, ...], str]] = {}
    for fill, at_home in zip(fills, own, strict=True):
        bid, placement = fill.bid, fill.placement
        gpus = placement.gpus  # often the very same for several bids, one after the other
        given = known.get(id(gpus))
        if given is None:
            given = known[id(gpus)] = shares_of(placement), model_of(placement)
        yield _granted(
            lease_id=fill.lease_id,
            bid_id=bid.terms.bid_id,
            market=market,
            round_id=round_id,
            shares=fill.shares or given[0],
            gpu_model=given[1],
            window=fill.window,
            price=_rate(fill.price, bid.shape.currency),
            at=at,
            cuts=fill.cuts,
            own=at_home,
            binds=False,
        )


def told(book: Book, bid: OpenBid, reason: str, *, now: int, round_id: UUID) -> list[RoundCleared]:
    """Write down that nothing serves a bid, as `decided` does; nothing where that is not new."""
    if book.told.get(bid.bid_id) == reason:
        return []
    return [
        _cleared(
            market=book.market,
            round_id=round_id,
            lane="instant",
            through=book.read_to,
            bids=1,
            offers=len(book.offers),
            grants=0,
            gpus=0,
            unmatched=(_unmatched(bid.bid_id, reason),),
            price_low=0,
            price_high=0,
            rule=RULE,
            at=moment(now),
        )
    ]


def _certificate(clearing: Clearing, tries: Tries | None) -> Certificate | None:
    proof = clearing.proof
    if proof is None:
        return None
    trades = [fill for fill in clearing.fills if not fill.own]
    millis = sum(fill.bid.duration * len(fill.placement.gpus) for fill in trades)
    paid = sum(fill.price * fill.bid.duration * len(fill.placement.gpus) for fill in trades)
    return Certificate(
        welfare_nanos=sum(fill.worth for fill in clearing.fills),
        weight_nanos=sum(fill.weighs for fill in clearing.fills),
        bound_nanos=proof.bound,
        seed=proof.seed,
        iterations=(*proof.steps, *(() if tries is None else tries.steps)),
        slots=proof.slots,
        pools=proof.pools,
        price_mean=paid // millis if millis else 0,
        capped=proof.capped,
        paradoxical=proof.paradoxical,
        paradoxical_nanos=proof.paradoxical_nanos,
        aside=proof.aside,
    )


def _sets_aside(book: Book, clearing: Clearing, now: int) -> bool:
    """Tell if a round leaves out a bid that was not left out before, or not for so long."""
    aside = () if clearing.proof is None else clearing.proof.aside
    bids = [book.bids[bid_id] for bid_id in aside if bid_id in book.bids]
    return len(left_out(book.aside, bids, now=now)) < len(bids)


def _news(
    book: Book, clearing: Clearing, tell: Iterable[OpenBid], tries: Tries | None, now: int
) -> tuple[Unmatched, ...]:
    news = []
    why = _why_of(book, clearing, now)
    for bid in sorted(tell, key=lambda bid: bid.bid_id in book.told)[:TOLD_MAX]:
        if tries is not None and not tries.more(bid.bid_id):
            break
        reason = clearing.held_back.get(bid.bid_id) or why(bid)
        if reason is not None and book.told.get(bid.bid_id) != reason:
            news.append(Unmatched(bid.bid_id, reason))
    return tuple(news)


def _why_of(book: Book, clearing: Clearing, now: int) -> Callable[[OpenBid], str | None]:
    """Return what tells why a bid got nothing."""
    calendar = clearing.calendar
    if clearing.proof is not None:
        freed = any(fill.cuts for fill in clearing.fills)
        return RoundReasons(
            book,
            calendar,
            freed=freed,
            now=now,
            left=clearing.left,
            placeless=clearing.placeless,
        )
    if book.quotas is None:
        return lambda bid: book.reason(bid, now=now, calendar=calendar)
    return lambda bid: book.explain(bid, now=now, calendar=calendar, priced=False).filed


def shares_of(placement: Placement) -> tuple[Share, ...]:
    """Return what each offer gives, in the order of the offers' rank."""
    only = _only_offer(placement)
    if only is not None:
        return (_given(only, [uuid for _, uuid in placement.gpus]),)
    by_offer: dict[Listed, list[str]] = {}
    for listed, uuid in placement.gpus:
        by_offer.setdefault(listed, []).append(uuid)
    offers = sorted(by_offer, key=lambda it: it.rank)
    return tuple([_given(listed, by_offer[listed]) for listed in offers])


def _only_offer(placement: Placement) -> Listed | None:
    """Return the offer that all GPUs are of, if they are of one."""
    gpus = placement.gpus
    only = gpus[0][0]
    if len(gpus) > 1:
        for listed, _ in gpus:
            if listed is not only:
                return None
    return only


def _given(listed: Listed, uuids: list[str]) -> Share:
    terms = listed.terms
    uuids.sort()
    return _share(
        terms.offer_id,
        terms.host_id,
        terms.tenant_id,
        tuple(uuids),
        terms.notice_seconds,
        terms.reclaim_fee_ppm,
        terms.source,
        terms.reclaim_steps,
        None,
        terms.grace_seconds,
    )


def model_of(placement: Placement) -> str:
    """Return the model of the GPUs; `A100-80GB+H100-80GB` where a gang has several."""
    only, models = _only_offer(placement), set[str]()
    if only is not None and len(only.kind.specs) == 1:
        return only.kind.specs[0].gpu.model[:MODEL_CHARS_MAX]
    for listed in {listed for listed, _ in placement.gpus}:
        if len(listed.kind.specs) == 1:
            models.add(listed.kind.specs[0].gpu.model)
        else:
            wanted = {uuid for _, uuid in placement.gpus}
            models.update(gpu.model for gpu in listed.terms.gpus if gpu.uuid in wanted)
    return "+".join(sorted(models))[:MODEL_CHARS_MAX]
