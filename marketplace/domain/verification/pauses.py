"""Prove that a grant has only work paused that lets the market do so, at its time and at no loss.

Works all of it out from the facts of the lease and of the bid; shares nothing with what chose who
is paused. That its rest finds a place later is not asked here: nobody can prove that.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from marketplace.domain.book.book import Book
from marketplace.domain.book.held_leases import Held
from marketplace.domain.facts.events import BidPlaced, Cut, LeaseGranted
from marketplace.domain.facts.instants import moment
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.verification.least_run import least_run

TO_SPARE = timedelta(hours=1)


def faults_of_pause(
    book: Book, granted: LeaseGranted, bid: OpenBid, cut: Cut, held: Held
) -> Iterator[str]:
    """Find what forbids that a lease's work is paused for a grant."""
    lease, asked = held.granted, held.bid
    if asked is None or not asked.pausable:
        yield "may not be paused"
        return
    if held.reclaimed_by is not None or cut.lease_id in book.resales:
        yield "is reclaimed, or for sale"
    if lease.own or any(share.resold or share.source == "burst" for share in lease.shares):
        yield "is bought, or rented, or its owner's"
    firm = timedelta(seconds=book.least_runs.firm_seconds)
    if bid.terms.pausable:
        if not bid.due and _done(bid.terms) >= firm:
            yield "is paused for work that has had its firm time"
    elif bid.terms.service_class == "interruptible":
        yield "is paused for an interruptible bid"
    notice = max(timedelta(seconds=share.notice_seconds) for share in lease.shares)
    if cut.ends_at < granted.at + notice:
        yield f"has less notice than {notice}"
    ran = cut.ends_at - lease.window.starts_at
    if ran < least_run(book, lease) or _done(asked) + ran < firm:
        yield f"has not had its firm time: {_done(asked)} and {ran}"
    by = max(asked.deadline, asked.auto_extend_until or asked.deadline)
    if by - cut.ends_at < _rest(asked, held, cut.ends_at) + TO_SPARE:
        yield f"has too little time until {by}"
    taken = {uuid for share in granted.shares for uuid in share.gpu_uuids}
    given = {uuid for share in lease.shares for uuid in share.gpu_uuids}
    window = granted.window
    if not taken & given or window.starts_at >= moment(held.ends) or window.ends_at <= cut.ends_at:
        yield "is not in the way"
    if granted.price < lease.price:
        yield f"paid more: {lease.price.nanos_per_gpu_hour}"


def _done(asked: BidPlaced) -> timedelta:
    """Return what was done of the work of a bid before it."""
    before = asked.continues
    if before is None or not before.resumes:
        return timedelta()
    return timedelta(seconds=before.done_seconds)


def _rest(asked: BidPlaced, held: Held, stop_at: datetime) -> timedelta:
    """Return what is left of the work of a lease, with what it loses by stopping."""
    return moment(held.ends) - stop_at + timedelta(seconds=asked.workload.checkpoint_seconds or 0)
