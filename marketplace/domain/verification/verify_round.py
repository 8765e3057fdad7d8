"""Prove a round sound before it is appended, by code that shares nothing with what cleared it.

It reads the terms as owners and bidders published them and the calendar as it stood, and works out
for each grant of the round whether it may be. What is at fault is not appended: whatever the
search did, nobody can be leased a GPU twice or pay more than their limit. Quotas and limits, and
what a round takes from leases, are checked in files of their own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta

from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.domain.book.book import Book
from marketplace.domain.facts.events import LeaseGranted, RoundCleared, Share
from marketplace.domain.facts.faults import Fault
from marketplace.domain.facts.instants import ONE_MILLI, moment
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.verification.cuts import faults_of_cuts
from marketplace.domain.verification.occupancy import (
    faults_of_cards,
    faults_of_cleaning,
    faults_of_tenants,
    held_twice,
)
from marketplace.domain.verification.quotas import faults_of_quotas
from marketplace.domain.verification.terms import own_use, terms_of

WEIGHT_PPM_MAX = 200_000
"""Waiting adds no more than this to what a bid counts: published in the docs."""


def faults(book: Book, cleared: RoundCleared, grants: Sequence[LeaseGranted]) -> list[Fault]:
    """Return what is wrong with a round; empty: it may be appended.

    Args:
        book: as it was before the round.

    Returns:
        Of grants that cannot be together the later ones in `grants` are at fault.
    """
    found = faults_since(book, cleared, grants, grants)
    found += [Fault(said) for said in _sums(book, cleared, grants)]
    return found


def faults_since(
    book: Book,
    cleared: RoundCleared,
    grants: Sequence[LeaseGranted],
    near: Sequence[LeaseGranted],
) -> list[Fault]:
    """Return what is wrong by now with a round that was sound on an older book, but for its sums.

    Args:
        near: of `grants` all that are new, that cut leases or take rests of them, whose bid or
            offers have changed or look at how a host proved, or of whose GPUs anything was taken or
            given back. To all others nothing can have happened, but by quotas.
    """
    found = [Fault(said) for said in _round(book, cleared)]
    for granted in near:
        found += [Fault(said, granted.lease_id) for said in _faults_of(book, cleared, granted)]
    found += held_twice(book, near)
    found += faults_of_cards(book, near)
    found += faults_of_cleaning(book, near)
    found += faults_of_tenants(book, near)
    found += faults_of_cuts(book, grants if len(near) == len(grants) or _cut(near) else near)
    found += faults_of_quotas(book, grants)
    return found


def _cut(grants: Sequence[LeaseGranted]) -> bool:
    return any(granted.cuts for granted in grants)


def _round(book: Book, cleared: RoundCleared) -> Iterator[str]:
    if (cleared.market, cleared.lane) != (book.market, "round"):
        yield f"a round of {cleared.market}, {cleared.lane}"
    if cleared.through != book.read_to:
        yield f"it rests on {cleared.through}, the book on {book.read_to}"


def _faults_of(book: Book, cleared: RoundCleared, granted: LeaseGranted) -> Iterator[str]:
    said = (granted.market, granted.round_id, granted.at)
    if said != (cleared.market, cleared.round_id, cleared.at):
        yield f"it is of another round: {said}"
    if granted.lease_id in book.held:
        yield "there is such a lease already"
    if cleared.certificate is not None and granted.bid_id in cleared.certificate.aside:
        yield f"bid {granted.bid_id} was set aside"
    bid = book.bids.get(granted.bid_id)
    if bid is None:
        yield f"bid {granted.bid_id} is not open"
        return
    yield from _size(granted, bid)
    yield from _money(granted, bid)
    terms, window = bid.terms, granted.window
    if terms.patience != "patient":
        yield f"bid {granted.bid_id} is not for rounds"
    if window.starts_at < max(terms.earliest_start, granted.at):
        yield f"starts too early, {window.starts_at}"
    if window.ends_at > moment(bid.deadline):
        yield f"ends after the bid's deadline, {window.ends_at}"
    if terms.good_until is not None and granted.at > terms.good_until:
        yield f"granted after {terms.good_until}"
    if terms.placement == "same-host" and len({share.host_id for share in granted.shares}) != 1:
        yield "over several hosts"
    models = set[str]()
    for share in granted.shares:
        listed = book.offers.get(share.offer_id)
        if listed is None or listed.paused:
            yield f"offer {share.offer_id} is not listed"
            continue
        says, promised = book.agents.says(share.host_id), book.promises.said.get(share.offer_id)
        yield from terms_of(listed, says, promised, share, granted, bid)
        models |= {gpu.model for gpu in listed.terms.gpus if gpu.uuid in share.gpu_uuids}
    if models and granted.gpu_model != "+".join(sorted(models))[: len(granted.gpu_model)]:
        yield f"its GPUs are not {granted.gpu_model}"
    if terms.request.nvlink:
        yield from _links(book, granted)


def _size(granted: LeaseGranted, bid: OpenBid) -> Iterator[str]:
    terms, lasts = bid.terms, granted.window.length
    uuids = [uuid for share in granted.shares for uuid in share.gpu_uuids]
    if len(set(uuids)) != len(uuids) or not (
        (terms.gpus_min or terms.gpus) <= len(uuids) <= terms.gpus
    ):
        yield f"{len(set(uuids))} GPUs for a bid of {terms.gpus}"
    if not all(share.gpu_uuids for share in granted.shares):
        yield "an offer gives nothing"
    shortest = terms.duration_min_seconds or terms.duration_seconds
    if not timedelta(seconds=shortest) <= lasts <= timedelta(seconds=terms.duration_seconds):
        yield f"lasts {lasts}"


def _money(granted: LeaseGranted, bid: OpenBid) -> Iterator[str]:
    """Check that the bidder pays what it said at most; owners are in `_terms`.

    A lease has one price and pays it for all its GPU-time, and that is what is divided among its
    owners: with it buyers pay exactly what owners and platform get.
    """
    terms, price = bid.terms, granted.price.nanos_per_gpu_hour
    if own_use(granted, bid):
        if price:
            yield f"pays {price} for the bidder's own GPUs"
        return
    if any(share.owner_id == terms.tenant_id for share in granted.shares):
        yield "the bidder's own GPUs beside those of others"
    if not 0 <= price <= bid.rate or granted.price.currency != terms.limit.currency:
        yield f"price {price} {granted.price.currency} above limit {bid.rate}"
    home = [share.owner_id == terms.tenant_id for share in granted.shares]
    if granted.own != any(home) or any(home) != all(home) or (granted.own and price):
        yield f"price {price}, though {sum(home)} of {len(home)} shares are the bidder's own"
    cost = granted.price.charge(_use(granted))
    if terms.budget is not None and cost > terms.budget:
        yield f"costs {cost}, over the budget {terms.budget}"


def _use(granted: LeaseGranted) -> int:
    gpus = sum(len(share.gpu_uuids) for share in granted.shares)
    return gpus * (granted.window.length // ONE_MILLI)


def _links(book: Book, granted: LeaseGranted) -> Iterator[str]:
    groups: dict[object, set[str | None]] = defaultdict(set)
    for share in granted.shares:
        offer = book.offers[share.offer_id].terms
        groups[share.host_id] |= {
            gpu.nvlink_group for gpu in offer.gpus if gpu.uuid in share.gpu_uuids
        }
    for host_id, names in groups.items():
        if None in names or len(names) > 1:
            yield f"GPUs on {host_id} are not joined by NVLink"
    least = book.bids[granted.bid_id].terms.request.nvlink_min or 0
    for share in granted.shares:
        joined = Counter(gpu.nvlink_group for gpu in book.offers[share.offer_id].terms.gpus)
        if any(joined[name] < least for name in groups[share.host_id]):
            yield f"fewer than {least} GPUs on {share.host_id} are joined by NVLink"


def _sums(book: Book, cleared: RoundCleared, grants: Sequence[LeaseGranted]) -> Iterator[str]:
    """Compare what the round says of itself with what its grants add up to."""
    trades = [granted for granted in grants if not _is_own(book, granted)]
    prices = [granted.price.nanos_per_gpu_hour for granted in trades]
    gpus = sum(len(share.gpu_uuids) for granted in grants for share in granted.shares)
    told = (cleared.grants, cleared.gpus, cleared.price_low, cleared.price_high)
    summed = (len(grants), gpus, min(prices, default=0), max(prices, default=0))
    if told != summed:
        yield f"the round says {told}, its grants say {summed}"
    certificate = cleared.certificate
    if certificate is None:
        yield "the round has no certificate"
        return
    uses = [_use(granted) for granted in trades]
    limits = [_limit(book, granted, use) for granted, use in zip(trades, uses, strict=True)]
    welfare = sum(_worth(book, *each) for each in zip(trades, limits, strict=True))
    if welfare != certificate.welfare_nanos:
        yield f"the round is worth {welfare}, not {certificate.welfare_nanos}"
    if certificate.bound_nanos < welfare + certificate.weight_nanos:
        yield f"the bound {certificate.bound_nanos} is below the welfare {welfare}"
    most = sum(limit * use for limit, use in zip(limits, uses, strict=True))
    if not 0 <= certificate.weight_nanos * MILLIS_PER_HOUR <= most * WEIGHT_PPM_MAX // 1_000_000:
        yield f"waiting weighs too much, {certificate.weight_nanos}"
    used, paid = sum(uses), sum(use * price for use, price in zip(uses, prices, strict=True))
    if certificate.price_mean != (paid // used if used else 0):
        yield f"the mean price is not {certificate.price_mean}"


def _is_own(book: Book, granted: LeaseGranted) -> bool:
    bid = book.bids.get(granted.bid_id)
    return bid is not None and own_use(granted, bid)


def _worth(book: Book, granted: LeaseGranted, limit: int) -> int:
    """Return (limit − floor) × GPU-time of one grant in nano-units, rounded down."""
    if granted.bid_id not in book.bids:
        return 0
    value = sum(
        (limit - _floor(book, share)) * len(share.gpu_uuids)
        for share in granted.shares
        if share.offer_id in book.offers
    )
    return value * (granted.window.length // ONE_MILLI) // MILLIS_PER_HOUR


def _limit(book: Book, granted: LeaseGranted, use: int) -> int:
    """Return the most that a bid pays per GPU-hour in the size that it got. use: of its GPUs."""
    bid = book.bids.get(granted.bid_id)
    if bid is None:
        return 0
    budget = bid.terms.budget
    if budget is None:
        return bid.rate
    return min(bid.rate, ((budget.nanos + 1) * MILLIS_PER_HOUR - 1) // use)


def _floor(book: Book, share: Share) -> int:
    if share.resold is not None and share.resold.lease_id in book.resales:
        return book.resales[share.resold.lease_id][1].floor.nanos_per_gpu_hour
    return book.offers[share.offer_id].floor
