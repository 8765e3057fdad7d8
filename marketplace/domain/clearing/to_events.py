"""A clearing written down as events, with the reasons of those that got nothing."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from ledger.domain.making import maker
from ledger.domain.money import Rate
from listings.domain.divisions import MODEL_CHARS_MAX
from marketplace.domain.book.book import Book
from marketplace.domain.book.suspension import left_out
from marketplace.domain.clearing.fills import Clearing, Lane
from marketplace.domain.clearing.work_budget import Tries, Watch
from marketplace.domain.facts.events import (
    Certificate,
    LeaseGranted,
    RoundCleared,
    Share,
    Unmatched,
)
from marketplace.domain.facts.instants import moment
from marketplace.domain.facts.rule_versions import ROUND_RULE, RULE
from marketplace.domain.index.offer_index import Catalogue
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.listed_offer import Listed
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement import sizes
from marketplace.domain.placement.placement import Placement

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
    granted = [
        _granted(
            lease_id=fill.lease_id,
            bid_id=fill.bid.bid_id,
            market=book.market,
            round_id=round_id,
            shares=fill.shares or shares_of(fill.placement),
            gpu_model=model_of(fill.placement),
            window=fill.window,
            price=_rate(fill.price, fill.bid.shape.currency),
            at=at,
            cuts=fill.cuts,
            own=at_home,
            binds=False,
        )
        for fill, at_home in zip(clearing.fills, own, strict=True)
    ]
    return [cleared, *granted]


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
    why = _at_once if clearing.proof is None else _AfterARound(book, clearing, now)
    for bid in sorted(tell, key=lambda bid: bid.bid_id in book.told)[:TOLD_MAX]:
        if tries is not None and not tries.more(bid.bid_id):
            break
        reason = clearing.held_back.get(bid.bid_id) or why(book, clearing, bid, now)
        if reason is not None and book.told.get(bid.bid_id) != reason:
            news.append(Unmatched(bid.bid_id, reason))
    return tuple(news)


def _at_once(book: Book, clearing: Clearing, bid: OpenBid, now: int) -> str | None:
    """Return why the instant lane refused a bid: nothing grows in it, so it has no place."""
    if book.quotas is None:
        return book.reason(bid, now=now, calendar=clearing.calendar)
    return book.explain(bid, now=now, calendar=clearing.calendar, priced=False).filed


class _AfterARound:
    """Why bids that a round refused have no place; None: one has, and was not come to."""

    def __init__(self, book: Book, clearing: Clearing, now: int) -> None:
        freed = any(fill.cuts for fill in clearing.fills)
        self._plain = book.quotas is None and not freed
        self._left: Catalogue | None = None
        self._reserved = {each.terms.reserved_for for each in book.offers.values()}
        self._known: dict[tuple[object, ...], str | None] = {}

    def __call__(self, book: Book, clearing: Clearing, bid: OpenBid, now: int) -> str | None:
        """Return the reason of a bid; of those that are alike it is worked out once."""
        at_home = bid.terms.tenant_id in book.owners
        if not self._plain or at_home or bid.bid_id in self._reserved:
            return book.explain(bid, now=now, calendar=clearing.calendar, priced=False).filed
        alike = (bid.likeness(now), bid.limit, bid.terms.seeks)
        if alike not in self._known:
            self._known[alike] = self._of_all_alike(book, clearing.calendar, bid, now)
        return self._known[alike]

    def _of_all_alike(self, book: Book, calendar: Calendar, bid: OpenBid, now: int) -> str | None:
        if self._left is None:
            self._left = book.catalogue.under(calendar)
        within = book.within_reach(bid, now=now, left=self._left)
        if sizes.fit(bid, within, calendar, now=now) is not None:
            return None
        return book.reason(bid, now=now, calendar=calendar, left=self._left)


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
