"""An organisation's own GPUs serve its own bids first, and for nothing.

A bid goes to its own tenant's offers if they can serve it, whatever their floors: the transfer
price is zero, nobody takes a fee, no money moves, and no statistic of the market hears of it. Only
what they cannot serve goes to the market, and there a bid never meets its own tenant's offers: who
traded with themselves at a price would make that price.

So a lease is wholly at home at price zero or wholly away at a price. A gang does not mix the two:
part of it would pay nothing, and one lease has one price per GPU-hour.

Whoever sets a deadline says how long it may take, so own GPUs that serve by then go before sooner
ones that cost something. A bid that seeks the soonest start goes to whichever begins first, home
where both begin together.

Where a bid makes do with less, its whole size comes first, at home and then away; of smaller sizes
the larger, and of equal ones home.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from uuid import UUID

from ledger.domain.ids import BidId, HostId
from marketplace.domain.admission.gate import Gate
from marketplace.domain.book.book import Book
from marketplace.domain.clearing.fills import lease_id_of
from marketplace.domain.clearing.work_budget import Tries
from marketplace.domain.facts.instants import Millis, whole_second
from marketplace.domain.orderbook.calendar import Calendar, Taken
from marketplace.domain.orderbook.listed_offer import Entry
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement import sizes
from marketplace.domain.placement.placement import Placement, place
from marketplace.domain.placement.sizes import (
    Found,
    apart,
    at_home,
    home_first,
    may_be_sooner_away,
    smaller_at_home,
)


def others(book: Book, bid: OpenBid, entries: Iterable[Entry]) -> Iterable[Entry]:
    """Leave out the offers of the bid's own tenant: the market is with others."""
    tenant_id = bid.terms.tenant_id
    if tenant_id not in book.owners:
        return entries
    return (entry for entry in entries if entry.listed.terms.tenant_id != tenant_id)


def fit(book: Book, bid: OpenBid, calendar: Calendar, *, now: int) -> Found | None:
    """Find GPUs for a bid of whoever it is, at home first: return it in the size it gets."""
    entries = book.entries(bid.shape)
    if bid.terms.tenant_id not in book.owners:
        return sizes.fit(bid, entries, calendar, now=now)
    return home_first(bid, *apart(bid, entries), calendar, now=now)


def fit_by_columns(book: Book, bid: OpenBid, calendar: Calendar, *, now: int) -> Found | None:
    """Find GPUs as `fit` does, where a calendar has nothing free that the book's own has not."""
    home = at_home(bid, _own(book, bid, now), calendar, now=now)
    if home is not None and not may_be_sooner_away(bid, home, now=now):
        return home
    away = others(book, bid, book.within_reach(bid, now=now))
    placement = place(bid, away, calendar, now=now)
    if home is not None and (placement is None or home[1].starts <= placement.starts):
        return home
    if placement is not None:
        return bid, placement
    return fit(book, bid, calendar, now=now) if bid.has_ranges else None


def _own(book: Book, bid: OpenBid, now: int) -> Iterable[Entry]:
    return book.owners.entries(bid, earliest=max(bid.earliest, whole_second(now)))


def served(
    book: Book,
    hosts: Collection[HostId],
    calendar: Calendar,
    gate: Gate | None,
    *,
    now: int,
    round_id: UUID,
) -> list[Found]:
    """Serve the waiting bids of who owns these hosts, before all others: best price first.

    Patient ones too: nothing better than nothing can come of a round.
    """
    given = []
    for bid in book.owners.waiting(hosts, calendar, now=now):
        found = _let(book, bid, calendar, gate, now, round_id, whole=False)
        if found is not None:
            given.append(found)
            _take(calendar, *found, round_id)
    return given


def before_round(
    book: Book,
    bids: Iterable[OpenBid],
    calendar: Calendar,
    gate: Gate | None,
    tries: Tries,
    *,
    now: int,
    round_id: UUID,
) -> tuple[list[Found], list[OpenBid], set[BidId]]:
    """Serve, before a round is searched, who can be served whole at home.

    Returns:
        The grants, the rest, and of the rest those for whom it was too late to be tried here.
    """
    given, left, untried = list[Found](), list[OpenBid](), set[BidId]()
    for bid in bids:
        found = None
        if bid.terms.tenant_id in book.owners:
            if tries.more(bid.bid_id):
                found = _let(book, bid, calendar, gate, now, round_id, whole=True)
            else:
                untried.add(bid.bid_id)
        if found is None:
            left.append(bid)
        else:
            given.append(found)
            _take(calendar, *found, round_id)
    return given, left, untried


def _let(
    book: Book,
    bid: OpenBid,
    calendar: Calendar,
    gate: Gate | None,
    now: int,
    round_id: UUID,
    *,
    whole: bool,
) -> Found | None:
    """Find the place at home of a bid that the quotas allow."""

    def find(wish: OpenBid) -> Found | None:
        own = list(_own(book, wish, now))
        found = at_home(wish, own, calendar, now=now)
        if found is not None or whole or not wish.has_ranges:
            return found
        return smaller_at_home(wish, own, calendar, now=now)

    return find(bid) if gate is None else gate.admit(bid, find, lease_id_of(round_id, bid))


def _take(calendar: Calendar, bid: OpenBid, placement: Placement, round_id: UUID) -> None:
    ends = Millis(placement.starts + bid.duration)
    lease_id = lease_id_of(round_id, bid)
    span = Taken(placement.starts, ends, lease_id)
    calendar.note_tenant(lease_id, bid.terms.tenant_id)
    for _, uuid in placement.gpus:
        calendar.take(uuid, span)
