"""Turn the answer of a round's search into GPUs with names and starts to the second.

The search counts GPUs of pools and starts leases on a grid. Here each lease gets its GPUs, the
better bid of two that are alike gets the earlier start, every lease moves to where its GPUs become
free, and whoever the search left out is tried once more on what is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

from ledger.domain.ids import BidId, HostId
from marketplace.domain.admission.gate import Gate
from marketplace.domain.clearing.own_supply_first import fit
from marketplace.domain.clearing.work_budget import Tries
from marketplace.domain.facts.instants import Millis, whole_second
from marketplace.domain.index.offer_index import Catalogue
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement import sizes
from marketplace.domain.placement.placement import Placement
from marketplace.domain.rounds.ageing import weight_of
from marketplace.domain.rounds.pools import Pool, Wanted, named
from marketplace.domain.rounds.this_round import Round
from marketplace.domain.solver.solution import Solution

Given = tuple[OpenBid, Placement]

SWEPT_MAX = 2_000
"""Bids that are tried once more in a round."""
ALIKE_MAX = 200
"""Grants of one kind among which starts are exchanged; it compares each with each."""


def given_names(pools: Sequence[Pool], bids: Sequence[OpenBid], solution: Solution) -> list[Given]:
    """Return the grants with their GPUs, in the order of the bids.

    Who cannot have clean GPUs in time is left out.
    """
    by_pool: dict[int, list[Wanted]] = defaultdict(list)
    granted = [
        (bid, placed)
        for bid, placed in zip(bids, solution.placed, strict=True)
        if placed is not None
    ]
    for bid, placed in granted:
        # The parts of a lease start together: what is in several pools does not start later.
        last = bid.latest_start if len(placed.pieces) == 1 else placed.starts
        for piece in placed.pieces:
            by_pool[piece.pool].append(Wanted(bid, piece.gpus, placed.starts, last))
    names = {number: named(pools[number], wanted) for number, wanted in by_pool.items()}
    given = []
    for bid, placed in granted:
        if not all(bid in names[piece.pool] for piece in placed.pieces):
            continue
        found = [names[piece.pool][bid] for piece in placed.pieces]
        gpus = tuple(
            (pools[piece.pool].listed, uuid)
            for piece, each in zip(placed.pieces, found, strict=True)
            for uuid in each.uuids
        )
        floor = max(listed.floor for listed, _ in gpus)
        given.append((bid, Placement(Millis(found[0].starts), gpus, floor)))
    return exchanged(given)


def exchanged(given: Sequence[Given]) -> list[Given]:
    """Let of two grants that could be each other's the better bid have the earlier one.

    What the round is worth stays the same.
    """
    placements = dict(given)
    alike: dict[object, list[OpenBid]] = defaultdict(list)
    for bid, _ in given:
        alike[bid.shape, bid.gpus, bid.duration, bid.terms.placement].append(bid)
    for bids in alike.values():
        bids.sort(key=lambda bid: bid.price_time)
        for better, worse in combinations(bids[:ALIKE_MAX], 2):
            early, late = placements[worse], placements[better]
            if (early.starts, early.floor) < (late.starts, late.floor) and (
                _could_have(better, early) and _could_have(worse, late)
            ):
                placements[better], placements[worse] = early, late
    return [(bid, placements[bid]) for bid, _ in given]


def _could_have(bid: OpenBid, placement: Placement) -> bool:
    """Tell if a bid could have the grant of one that is alike."""
    return (
        placement.floor <= bid.limit
        and bid.earliest <= placement.starts <= bid.latest_start
        and all(
            listed.open_to(bid.bid_id)
            and bid.takes(listed)
            and not listed.one_tenant
            and listed.terms.tenant_id != bid.terms.tenant_id
            for listed, _ in placement.gpus
        )
    )


def pulled_forward(
    this: Round, given: Iterable[Given], calendar: Calendar, tries: Tries
) -> list[Given]:
    """Take the grants into the calendar, each as soon as its GPUs are free: off the grid too.

    When it is late they stay where they are on the grid, which takes a look at the calendar only.

    A GPU that stands in two offers at once was counted twice; who comes second is left out. So is
    who would start before a GPU is cleaned, of which the search knows nothing.
    """
    pulled = []
    for bid, placement in sorted(given, key=lambda one: (one[1].starts, one[0].price_time)):
        starts, ends = placement.starts, placement.starts + bid.duration
        uuids = {uuid for _, uuid in placement.gpus}
        if len(uuids) < bid.gpus:
            continue
        sooner = starts
        if tries.more(bid.bid_id):
            opened = [
                opens
                for listed, uuid in placement.gpus
                for opens, closes in listed.free(uuid, calendar, since=this.at, until=ends)
                if opens <= starts and ends <= closes
            ]
            if len(opened) < bid.gpus:
                continue
            sooner = min(starts, max(whole_second(max(bid.earliest, this.at)), *opened))
        elif not all(calendar.is_free(uuid, starts, ends) for uuid in uuids):
            continue
        # Where the quota is not free that soon either, the start that the search found may do.
        for at in dict.fromkeys((sooner, starts)):
            placed = placement if at == starts else replace(placement, starts=Millis(at))
            if _meets_others(bid, placed, calendar):
                continue
            if this.gate is None or this.gate.lets(bid, placed, this.lease_id(bid)):
                break
        else:
            continue
        pulled.append((bid, placed))
        this.take(calendar, bid, placed)
    return pulled


def _meets_others(bid: OpenBid, placement: Placement, calendar: Calendar) -> bool:
    """Tell if a host that cannot keep tenants apart has another's work then.

    The search knows nothing of that between bids of one round: who is left out is swept.
    """
    starts, ends = placement.starts, placement.starts + bid.duration
    return bool(calendar.one_tenant) and any(
        calendar.meets_others(host_id, bid.terms.tenant_id, starts, ends)
        for host_id in {listed.terms.host_id for listed, _ in placement.gpus}
    )


class Swept(NamedTuple):
    """What a sweep came to. given: grants, of bids in the size they get. left: who got none.

    placeless: of these, those for whom it is known that there is no place.
    """

    given: list[Given]
    left: list[OpenBid]
    placeless: set[BidId]


def sweep(
    this: Round,
    bids: Iterable[OpenBid],
    given: Iterable[Given],
    calendar: Calendar,
    tries: Tries,
    *,
    freed: Collection[HostId] = (),
) -> Swept:
    """Serve, off the grid or in a smaller size, whoever still can be served.

    Nobody is tried for whom there is no room because there was none for one that is alike, and
    after SWEPT_MAX tries, or when it is late, all others are left: they are searched for again in
    the next round.

    Args:
        freed: hosts where the calendar has room that was not there before the round.
    """
    served = {bid.bid_id for bid, _ in given}
    swept = Swept([], [], set())
    no_room, tried = _NoRoom(this), 0
    waiting = [bid for bid in bids if bid.bid_id not in served]
    waiting.sort(key=lambda bid: (-bid.reach - weight_of(bid, now=this.at), bid.price_time))
    for bid in waiting:
        if tried >= SWEPT_MAX or no_room.is_known(bid) or not tries.more(bid.bid_id):
            swept.left.append(bid)
            continue
        tried += 1
        found = _let(this, bid, calendar, freed, this.left(calendar))
        if found is not None:
            swept.given.append(found)
            this.take(calendar, *found)
            continue
        swept.left.append(bid)
        swept.placeless.add(bid.bid_id)
        no_room.note(bid)
    return swept


class _NoRoom:
    """Bids for which there was no room. What a round takes only grows: there will be none."""

    def __init__(self, this: Round) -> None:
        self._book, self._gate, self._now = this.book, this.gate, this.at
        self._known: dict[tuple[object, ...], OpenBid] = {}
        self._reserved = {listed.terms.reserved_for for listed in self._book.offers.values()}

    def note(self, bid: OpenBid) -> None:
        """Take note that there was no room for a bid."""
        alike = self._alike(bid)
        if alike not in self._known or self._known[alike].reach < bid.reach:
            self._known[alike] = bid

    def is_known(self, bid: OpenBid) -> bool:
        """Tell if one that is alike, and pays no less, found none; for the same reason, if so."""
        if bid.terms.tenant_id in self._book.owners or bid.bid_id in self._reserved:
            return False
        other = self._known.get(self._alike(bid))
        if other is None or other.reach < bid.reach:
            return False
        if self._gate is not None and other.bid_id in self._gate.reasons:
            self._gate.reasons[bid.bid_id] = self._gate.reasons[other.bid_id]
        return True

    def _alike(self, bid: OpenBid) -> tuple[object, ...]:
        terms = bid.terms
        unit = None
        if self._gate is not None:  # of one unit the quotas are the same
            unit = (terms.subscriber_id, terms.user_id, terms.tenant_id)
        tenant = terms.tenant_id if self._book.calendar.one_tenant else None
        return (bid.likeness(self._now), unit, tenant)


def guaranteed(
    this: Round, gate: Gate, bids: Iterable[OpenBid], calendar: Calendar, tries: Tries
) -> tuple[list[Given], list[OpenBid], list[OpenBid]]:
    """Serve, before all others, who stays within nominal quota.

    Returns:
        The grants, the rest, and of the rest those for whom it was too late to be tried.
    """
    waiting = list(bids)
    given, untried, no_room = list[Given](), list[OpenBid](), _NoRoom(this)
    for bid in gate.guaranteed(waiting, now=this.at):
        if no_room.is_known(bid):
            continue
        if not tries.more(bid.bid_id):
            untried.append(bid)
            continue
        found = _let(this, bid, calendar, left_free=this.left(calendar))
        if found is not None:
            given.append(found)
            this.take(calendar, *found)
        else:
            no_room.note(bid)
    return given, gate.left(waiting), untried


def _let(
    this: Round,
    bid: OpenBid,
    calendar: Calendar,
    freed: Collection[HostId] = (),
    left_free: Catalogue | None = None,
) -> Given | None:
    """Find the place of a bid that the quotas allow.

    left_free: the offers with the room that the calendar leaves. Without it those are looked at
    that had room before the round: what had none has none in it.
    """

    book, gate, now = this.book, this.gate, this.at

    def find(wish: OpenBid) -> Given | None:
        if wish.terms.tenant_id in book.owners:
            return fit(book, wish, calendar, now=now)
        within = book.within_reach(wish, now=now, left=left_free)
        if freed:
            more = book.entries_on(wish.shape, freed)
            within = sorted({entry.offer: entry for entry in (*within, *more)}.values())
        return sizes.fit(wish, within, calendar, now=now)

    return find(bid) if gate is None else gate.admit(bid, find, this.lease_id(bid))
