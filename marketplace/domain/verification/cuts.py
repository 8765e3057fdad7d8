"""Prove that a round takes from leases only what it may: for sale, soft or borrowed.

Reads the leases and their sales as the facts left them; shares nothing with what chose them. That
no fewer would have done, and none goes before its turn, is not asked here: it harms nobody who is
protected, and tests hold the planners to it (`tests/marketplace/verification/victim_order.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from ledger.domain.ids import LeaseId
from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.domain.book.book import Book
from marketplace.domain.book.held_leases import Held
from marketplace.domain.facts.events import Cut, LeaseGranted, Resold
from marketplace.domain.facts.faults import Fault
from marketplace.domain.facts.instants import ONE_MILLI, moment
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.verification.least_run import least_run
from marketplace.domain.verification.pauses import faults_of_pause
from marketplace.domain.verification.reclaimed_quota import Stopped, faults_of_reclaim, owed


def ends_of(grants: Sequence[LeaseGranted]) -> dict[LeaseId, datetime]:
    """Return when the leases end that a round cuts."""
    return {cut.lease_id: cut.ends_at for granted in grants for cut in granted.cuts}


def faults_of_cuts(book: Book, grants: Sequence[LeaseGranted]) -> Iterator[Fault]:
    """Find leases that are cut though they may not be, and grants that owe a cut."""
    times = Counter(cut.lease_id for granted in grants for cut in granted.cuts)
    for granted in grants:
        bid = book.bids.get(granted.bid_id)
        for said in () if bid is None else _of_grant(book, grants, granted, bid):
            yield Fault(said, granted.lease_id)
        for cut in granted.cuts:
            if times[cut.lease_id] > 1:
                yield Fault(f"lease {cut.lease_id} is cut twice", granted.lease_id)


def _of_grant(
    book: Book, grants: Sequence[LeaseGranted], granted: LeaseGranted, bid: OpenBid
) -> Iterator[str]:
    cuts = {cut.lease_id: cut for cut in granted.cuts}
    sold = {share.resold.lease_id for share in granted.shares if share.resold is not None}
    for lease_id in sold:
        if lease_id not in cuts or cuts[lease_id].because != "resold":
            yield f"GPUs of lease {lease_id} are sold on, and it is not cut"
    held = {lease_id: book.held[lease_id] for lease_id in cuts if lease_id in book.held}
    for cut in cuts.values():
        if cut.lease_id not in held:
            yield f"there is no lease {cut.lease_id} to cut"
            continue
        it = held[cut.lease_id]
        if it.claim is not None:
            yield f"lease {cut.lease_id} is cut already for {it.claim.granted_to}"
        if not granted.at <= cut.ends_at < moment(it.ends):
            yield f"lease {cut.lease_id} cannot end at {cut.ends_at}"
        check = {"resold": _sold, "paused": faults_of_pause}.get(cut.because, _stopped)
        yield from (f"lease {cut.lease_id} {said}" for said in check(book, granted, bid, cut, it))
    stopped = [
        (held[cut.lease_id], cut)
        for cut in cuts.values()
        if cut.because == "interrupted" and cut.lease_id in held
    ]
    if stopped:
        yield from _on_some_ground(book, grants, granted, bid, stopped)


def _on_some_ground(
    book: Book,
    grants: Sequence[LeaseGranted],
    granted: LeaseGranted,
    bid: OpenBid,
    stopped: Stopped,
) -> Iterator[str]:
    """Find out whether leases may be interrupted at a price, or else for what was borrowed."""
    wrong = list(faults_at_price(granted, bid, stopped))
    if wrong and book.quotas is not None and book.quotas.policies is not None:
        borrowed = list(faults_of_reclaim(book, grants, granted, bid, stopped))
        firm = any(not held.is_interruptible for held, _ in stopped)
        wrong = [*borrowed, *(wrong if borrowed and not firm else ())]
    yield from wrong


def faults_at_price(granted: LeaseGranted, bid: OpenBid, stopped: Stopped) -> Iterator[str]:
    """Find what forbids that leases are interrupted because the grant pays for them."""
    for held, cut in stopped:
        yield from (
            f"lease {cut.lease_id} {said}" for said in _interrupted(granted, bid, cut, held)
        )
    yield from _paid_for(granted, stopped)


def _sold(book: Book, granted: LeaseGranted, bid: OpenBid, cut: Cut, held: Held) -> Iterator[str]:
    _, sale = book.resales.get(cut.lease_id, (0, None))
    if sale is None:
        yield "is not for sale"
        return
    until = min(sale.ends_at, moment(held.ends))
    cleaned = max(
        timedelta(seconds=book.offers[share.offer_id].terms.cleaning_seconds)
        for share in granted.shares
        if share.offer_id in book.offers
    )
    if not sale.since <= cut.ends_at <= granted.window.starts_at <= cut.ends_at + cleaned:
        yield f"is cut at {cut.ends_at}, not where the bought one begins"
    if granted.window.ends_at > until:
        yield f"is for sale until {until} only"
    if granted.price < sale.floor:
        yield f"is not sold below {sale.floor.nanos_per_gpu_hour}"
    if granted.window.length < timedelta(seconds=sale.lease_min_seconds):
        yield "is sold for longer only"
    if sale.tenant_id == bid.terms.tenant_id:
        yield "is the bidder's own"
    owners = {share.offer_id: share for share in held.granted.shares}
    for share in granted.shares:
        if share.resold is None or share.resold.lease_id != cut.lease_id:
            continue
        first = owners.get(share.offer_id)
        if first is None or not set(share.gpu_uuids) <= set(first.gpu_uuids):
            yield f"has no {share.gpu_uuids}"
        elif replace(share, gpu_uuids=(), resold=None) != replace(first, gpu_uuids=(), resold=None):
            yield "is sold on other terms than its own"
        if share.resold != Resold(cut.lease_id, sale.tenant_id, held.granted.price):
            yield "is sold on at another price than its owner's"


def _stopped(
    book: Book, granted: LeaseGranted, bid: OpenBid, cut: Cut, held: Held
) -> Iterator[str]:
    """Find what forbids that a lease is interrupted, on whatever ground."""
    victim = held.granted
    if bid.terms.service_class == "interruptible":
        yield "is interrupted for an interruptible bid"
    if held.reclaimed_by is not None or cut.lease_id in book.resales:
        yield "is reclaimed, or for sale"
    if victim.own or any(share.resold or share.source == "burst" for share in victim.shares):
        yield "is bought, or rented, or its owner's"
    notice = max(timedelta(seconds=share.notice_seconds) for share in victim.shares)
    if cut.ends_at < granted.at + notice:
        yield f"has less notice than {notice}"
    ran, least = cut.ends_at - victim.window.starts_at, least_run(book, victim)
    if ran < least:
        yield f"has not run long enough: {ran} of {least}"


def _interrupted(granted: LeaseGranted, bid: OpenBid, cut: Cut, held: Held) -> Iterator[str]:
    """Find what forbids that a lease is interrupted at a price."""
    if held.bid is None or held.bid.service_class != "interruptible":
        yield "is not interruptible"
    elif held.bid.tenant_id == bid.terms.tenant_id:
        yield "is the bidder's own"
    if not _in_the_way(granted, held, cut.ends_at):
        yield "is not in the way"


def _in_the_way(granted: LeaseGranted, held: Held, stop_at: datetime) -> bool:
    """Tell if the grant needs a GPU of a lease at a time that the lease gives up."""
    taken = {uuid for share in granted.shares for uuid in share.gpu_uuids}
    given = {uuid for share in held.granted.shares for uuid in share.gpu_uuids}
    window = granted.window
    return bool(taken & given) and window.starts_at < moment(held.ends) and stop_at < window.ends_at


def _paid_for(granted: LeaseGranted, stopped: Stopped) -> Iterator[str]:
    """Compare what the grant pays on the GPUs it takes with what those who stop lose."""
    loses, freed = 0, set[str]()
    for held, cut in stopped:
        first = held.granted
        uuids = {uuid for share in first.shares for uuid in share.gpu_uuids}
        rest = max(timedelta(0), moment(held.ends) - cut.ends_at) // ONE_MILLI
        loses += first.price.charge(rest * len(uuids)).nanos
        loses += owed(held, cut, first.shares, asked_at=granted.at)
        freed |= uuids
    taken = sum(uuid in freed for share in granted.shares for uuid in share.gpu_uuids)
    use = taken * (granted.window.length // ONE_MILLI)
    if granted.price.nanos_per_gpu_hour * use < loses * MILLIS_PER_HOUR:
        yield f"pays less for what it takes than the interrupted lose, {loses}"
