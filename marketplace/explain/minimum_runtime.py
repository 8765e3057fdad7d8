"""Whether only the least running time of leases stands in the way of a bid, and until when."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID, uuid5

from ledger.domain.ids import BidId
from ledger.eventstore.port import EventStore
from marketplace.domain.book.book import Book
from marketplace.domain.decisions.decide import would_get
from marketplace.domain.facts.events import LeaseGranted
from marketplace.domain.facts.instants import from_above, moment
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.preemption.interrupt import undisturbed_until
from marketplace.domain.quotas.minimum_runtime import LeastRuns
from marketplace.queries.books import book_of

ASKED = UUID("b1d5c0de-0000-4000-8000-0ffea4000039")


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """Leases that would make room for a bid, had they run for their least time.

    leases, gpus: how many. until: when the last of them has. starts_by: the last moment at which
    the bid could start; it is before that. least: the longest least running time of theirs.
    """

    leases: int
    gpus: int
    until: datetime
    starts_by: datetime
    least: timedelta


def undisturbed_for(
    store: EventStore, *, market: str, bid_id: UUID, now: datetime
) -> Undisturbed | None:
    """Return what a waiting bid would get but for the least running time; None: nothing more.

    Tried by the engine's own code, as if the bid came now and took what it can at once.
    """
    with book_of(store, market) as book:
        bid = book.bids.get(BidId(bid_id))
        if bid is None or not book.least_runs.longest:
            return None
        at_once = replace(bid, terms=replace(bid.terms, patience="immediate"))
        at = from_above(now)
        if _granted(book, at_once, at) is not None:
            return None
        granted = _without_least_run(book, at_once, at)
        if granted is None:
            return None
        held = [book.held[cut.lease_id] for cut in granted.cuts if cut.because == "interrupted"]
        until = max((undisturbed_until(book, each) for each in held), default=at)
        if until <= at:
            return None
        return Undisturbed(
            leases=len(held),
            gpus=sum(len(share.gpu_uuids) for each in held for share in each.granted.shares),
            until=moment(until),
            starts_by=moment(bid.least.latest_start),
            least=timedelta(
                seconds=max(book.least_runs.of(each.granted.gpu_model) for each in held)
            ),
        )


def _granted(book: Book, bid: OpenBid, now: int) -> LeaseGranted | None:
    return would_get(book, bid, now=now, round_id=uuid5(ASKED, str(bid.bid_id)))


def _without_least_run(book: Book, bid: OpenBid, now: int) -> LeaseGranted | None:
    was = book.least_runs
    book.least_runs = LeastRuns(0, firm_seconds=was.firm_seconds)
    try:
        return _granted(book, bid, now)
    finally:
        # The book is lent, under its lock: it must come back as it was.
        book.least_runs = was
