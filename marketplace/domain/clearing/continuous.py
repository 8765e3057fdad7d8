"""Match open bids to free GPUs one after the other: the instant lane.

Pure and deterministic: the same book, moment and bids give the same grants, also a year later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from uuid import UUID

from ledger.domain.ids import BidId, HostId, LeaseId
from ledger.domain.making import maker
from marketplace.domain.admission.gate import Gate
from marketplace.domain.book.book import Book
from marketplace.domain.clearing.fills import Clearing, Fill, instant_price, lease_ids_of
from marketplace.domain.clearing.own_supply_first import fit_by_columns, others
from marketplace.domain.clearing.own_supply_first import served as served_at_home
from marketplace.domain.facts.instants import Millis
from marketplace.domain.index.bid_queue import Queue
from marketplace.domain.index.host_matcher import OneHost
from marketplace.domain.index.own_supply import FEW
from marketplace.domain.orderbook.calendar import Calendar, Taken
from marketplace.domain.orderbook.listed_offer import Entry
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import Placement, place
from marketplace.domain.placement.sizes import smaller

Placed = tuple[OpenBid, LeaseId, Placement]
_fill_of = maker(Fill)


def clear(
    book: Book,
    bids: Iterable[OpenBid] | None,
    *,
    now: int,
    round_id: UUID,
    hosts: Collection[HostId] | None = None,
    freed: Collection[HostId] | None = None,
) -> Clearing:
    """Match bids to free GPUs one after the other, in the order given: the instant lane.

    Args:
        now: milliseconds; nothing starts before.
        hosts: the only ones where anything can have become possible for bids on one host.
        freed: where these are all hosts, those with more room: see `SupplyGrew`.
        bids: None: all those that wait and that `hosts` could serve, best price first.

    Returns:
        Fills that overlap neither each other nor what is granted already, each priced between
        the floors of its offers and the limit of its bid.
    """
    calendar, lease_id = book.calendar.fork(), lease_ids_of(round_id)
    placed, refused, home, waiting = list[Placed](), list[OpenBid](), set[BidId](), 0
    gate = None if book.quotas is None else Gate(book.quotas, book.catalogue)
    only: OneHost | None = None
    if bids is None:
        own_use = served_at_home(book, hosts or (), calendar, gate, now=now, round_id=round_id)
        placed = [(bid, lease_id(bid), at) for bid, at in own_use]
        home = {bid.bid_id for bid, _, _ in placed}
        only = book.only_host(hosts or (), calendar, now=now) if gate is None else None
        if only is None:
            waiting, bids = book.served_by(hosts or (), calendar, now=now, freed=freed)
        else:
            waiting, bids = len(only.served), only.bids()
        waiting -= sum(_could_pay(book, bid, hosts or ()) for bid, _, _ in placed)
    promised = len(placed)
    for bid in bids if gate is None else gate.turns(bids, now=now):
        if home and bid.bid_id in home:
            continue
        if only is not None:
            placed += [(each, lease_id(each), at) for each, at in only.placed()]
        promised = _promise(calendar, placed, promised)
        if gate is None:
            found = _found(book, bid, hosts=hosts, calendar=calendar, now=now)
        else:
            find = partial(_found, book, hosts=hosts, calendar=calendar, now=now)
            found = gate.admit(bid, find, lease_id(bid))
        if found is None:
            refused.append(bid)
        else:
            placed.append((found[0], lease_id(bid), found[1]))
            promised = _promise(calendar, placed, promised)
            _take(only, placed[-1])
    if only is not None:
        placed += [(each, lease_id(each), at) for each, at in only.placed()]
    _promise(calendar, placed, promised)
    own, refused, held_back = _gated(book.queue, refused, gate, hosts is None or freed is not None)
    fills = tuple([_fill(*each, own) for each in placed])
    passed_over = max(0, waiting - (len(placed) - len(home)) - len(refused))
    return Clearing(fills, tuple(refused), calendar, None, passed_over, held_back)


def _gated(
    queue: Queue, refused: list[OpenBid], gate: Gate | None, everywhere: bool
) -> tuple[Collection[LeaseId], list[OpenBid], Mapping[BidId, str]]:
    """Return which leases pay the transfer price, who is left, and why the gate held whom back.

    Notes who found no place, of those who looked everywhere, and who did but has no quota.
    """
    if gate is None:
        return (), refused, {}
    held_back = [bid for bid in refused if bid.bid_id in gate.reasons]
    if everywhere:
        queue.placeless.update(queue.those_that_wait(refused))
    queue.placeless.difference_update(held_back)
    return gate.own, gate.left(refused), gate.reasons


def _fill(bid: OpenBid, lease: LeaseId, at: Placement, own: Collection[LeaseId]) -> Fill:
    """Price a grant. own: the leases that pay the transfer price."""
    price = at.floor if lease in own else instant_price(bid, at)
    assert at.floor <= price <= bid.limit
    return _fill_of(bid, lease, at, price)


def _could_pay(book: Book, bid: OpenBid, hosts: Collection[HostId]) -> bool:
    """Tell if a bid counts among those that wait for some hosts in the instant lane."""
    entries = book.entries_on(bid.shape, hosts)
    return bid.terms.patience == "immediate" and any(it.floor <= bid.reach for it in entries)


def _found(
    book: Book, bid: OpenBid, *, hosts: Collection[HostId] | None, calendar: Calendar, now: int
) -> tuple[OpenBid, Placement] | None:
    """Return a bid in the size it gets and where it goes, or None."""
    if hosts is None and bid.terms.tenant_id in book.owners:
        return fit_by_columns(book, bid, calendar, now=now)
    placement = place(bid, _within_reach(book, bid, hosts, now), calendar, now=now)
    if placement is not None:
        return bid, placement
    if not bid.has_ranges:
        return None
    everywhere = hosts is None or bid.terms.placement == "any-hosts"
    entries = book.entries(bid.shape) if everywhere else book.entries_on(bid.shape, hosts or ())
    entries = list(others(book, bid, entries))
    return smaller(bid, entries, calendar, now=now)


def _within_reach(
    book: Book, bid: OpenBid, hosts: Collection[HostId] | None, now: int
) -> Iterable[Entry]:
    """Return the offers of others that may serve a bid when only on `hosts` anything is new.

    A gang may join what is new with what was there, so it has to look everywhere.
    """
    found: Iterable[Entry]
    if hosts is None or bid.terms.placement == "any-hosts":
        found = book.within_reach(bid, now=now)
    elif len(hosts) <= FEW:
        found = book.entries_on(bid.shape, hosts)
    else:
        within = book.within_reach(bid, now=now)
        found = (entry for entry in within if entry.listed.terms.host_id in hosts)
    return others(book, bid, found) if bid.terms.tenant_id in book.owners else found


def _promise(calendar: Calendar, placed: Sequence[Placed], since: int) -> int:
    """Take the GPUs of what was placed since in a fork of the calendar; return how many were."""
    upto = len(placed)
    if since < upto:
        if calendar.one_tenant:
            for bid, lease_id, _ in placed[since:upto]:
                calendar.note_tenant(lease_id, bid.terms.tenant_id)
        calendar.promise(lambda: [_span_of(*each) for each in placed[since:upto]])
    return upto


def _take(only: OneHost | None, placed: Placed) -> None:
    if only is not None:
        uuids, span = _span_of(*placed)
        only.take(uuids, span.starts, span.ends)


def _span_of(bid: OpenBid, lease_id: LeaseId, at: Placement) -> tuple[list[str], Taken]:
    return [uuid for _, uuid in at.gpus], Taken(
        at.starts, Millis(at.starts + bid.duration), lease_id
    )
