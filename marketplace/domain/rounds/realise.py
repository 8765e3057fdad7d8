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
from uuid import UUID

from ledger.domain.ids import HostId
from marketplace.domain.admission.gate import Gate
from marketplace.domain.book.book import Book
from marketplace.domain.clearing.fills import lease_id_of
from marketplace.domain.clearing.own_supply_first import fit
from marketplace.domain.clearing.work_budget import Tries
from marketplace.domain.facts.instants import Millis, whole_second
from marketplace.domain.index.offer_index import Catalogue
from marketplace.domain.orderbook.calendar import Calendar, Taken
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement import sizes
from marketplace.domain.placement.placement import Placement
from marketplace.domain.rounds.ageing import weight_of
from marketplace.domain.rounds.pools import Pool, Wanted, named
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
            and listed.terms.tenant_id != bid.terms.tenant_id
            for listed, _ in placement.gpus
        )
    )


def pulled_forward(
    given: Iterable[Given],
    calendar: Calendar,
    gate: Gate | None,
    tries: Tries,
    *,
    now: int,
    round_id: UUID,
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
        if len(uuids) < bid.gpus or not all(calendar.is_free(u, starts, ends) for u in uuids):
            continue
        sooner = starts
        if tries.more(bid.bid_id):
            opens = [
                opens
                for listed, uuid in placement.gpus
                for opens, closes in listed.free(uuid, calendar, since=now, until=ends)
                if opens <= starts and ends <= closes
            ]
            if len(opens) < bid.gpus:
                continue
            sooner = min(starts, max(whole_second(max(bid.earliest, now)), *opens))
        # Where the quota is not free that soon either, the start that the search found may do.
        for at in dict.fromkeys((sooner, starts)):
            placed = replace(placement, starts=Millis(at))
            if gate is None or gate.lets(bid, placed, lease_id_of(round_id, bid)):
                break
        else:
            continue
        pulled.append((bid, placed))
        _take(calendar, *pulled[-1], round_id)
    return pulled


def _take(calendar: Calendar, bid: OpenBid, placement: Placement, round_id: UUID) -> None:
    ends = Millis(placement.starts + bid.duration)
    span = Taken(placement.starts, ends, lease_id_of(round_id, bid))
    for _, uuid in placement.gpus:
        calendar.take(uuid, span)


def sweep(
    book: Book,
    bids: Iterable[OpenBid],
    given: Iterable[Given],
    calendar: Calendar,
    gate: Gate | None,
    tries: Tries,
    *,
    now: int,
    round_id: UUID,
    freed: Collection[HostId] = (),
) -> tuple[list[Given], list[OpenBid]]:
    """Serve, off the grid or in a smaller size, whoever still can be served.

    Nobody is tried for whom there is no room because there was none for one that is alike, and
    after SWEPT_MAX tries, or when it is late, all others are left: they are searched for again in
    the next round.

    Args:
        freed: hosts where the calendar has room that was not there before the round.

    Returns:
        The grants, of bids in the size they get, and who is left.
    """
    served = {bid.bid_id for bid, _ in given}
    swept: list[Given] = []
    left: list[OpenBid] = []
    no_room, tried = _NoRoom(book, gate, now), 0
    left_free = book.catalogue.under(calendar)
    for bid in sorted(bids, key=lambda bid: (-bid.reach - weight_of(bid, now=now), bid.price_time)):
        if bid.bid_id in served:
            continue
        if tried >= SWEPT_MAX or no_room.is_known(bid) or not tries.more(bid.bid_id):
            left.append(bid)
            continue
        tried += 1
        found = _let(book, bid, calendar, gate, now, round_id, freed, left_free)
        if found is not None:
            swept.append(found)
            _take(calendar, *found, round_id)
            for listed, _ in found[1].gpus:
                left_free.touch(listed.terms.host_id)
            continue
        left.append(bid)
        no_room.note(bid)
    return swept, left


class _NoRoom:
    """Bids for which there was no room. What a round takes only grows: there will be none."""

    def __init__(self, book: Book, gate: Gate | None, now: int) -> None:
        self._book, self._gate, self._now = book, gate, now
        self._known: dict[tuple[object, ...], OpenBid] = {}
        self._reserved = {listed.terms.reserved_for for listed in book.offers.values()}

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
        return (bid.likeness(self._now), unit)


def guaranteed(
    book: Book,
    bids: Iterable[OpenBid],
    calendar: Calendar,
    gate: Gate,
    tries: Tries,
    *,
    now: int,
    round_id: UUID,
) -> tuple[list[Given], list[OpenBid], list[OpenBid]]:
    """Serve, before all others, who stays within nominal quota.

    Returns:
        The grants, the rest, and of the rest those for whom it was too late to be tried.
    """
    waiting = list(bids)
    given, untried = list[Given](), list[OpenBid]()
    for bid in gate.guaranteed(waiting, now=now):
        if not tries.more(bid.bid_id):
            untried.append(bid)
            continue
        found = _let(book, bid, calendar, gate, now, round_id)
        if found is not None:
            given.append(found)
            _take(calendar, *found, round_id)
    return given, gate.left(waiting), untried


def _let(
    book: Book,
    bid: OpenBid,
    calendar: Calendar,
    gate: Gate | None,
    now: int,
    round_id: UUID,
    freed: Collection[HostId] = (),
    left_free: Catalogue | None = None,
) -> Given | None:
    """Find the place of a bid that the quotas allow.

    left_free: the offers with the room that the calendar leaves. Without it those are looked at
    that had room before the round: what had none has none in it.
    """

    def find(wish: OpenBid) -> Given | None:
        if wish.terms.tenant_id in book.owners:
            return fit(book, wish, calendar, now=now)
        within = book.within_reach(wish, now=now, left=left_free)
        if freed:
            more = book.entries_on(wish.shape, freed)
            within = sorted({entry.offer: entry for entry in (*within, *more)}.values())
        return sizes.fit(wish, within, calendar, now=now)

    return find(bid) if gate is None else gate.admit(bid, find, lease_id_of(round_id, bid))
