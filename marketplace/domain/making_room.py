"""After the search of a round: room for refused bids in what others hold, at its price.

First what is left of leases whose consumers sell it; then, for firm bids, capacity of interruptible
leases, with notice and compensation, as few as will do, and only once the place of the bid is
proved. Each grant names the leases that it cuts. Bids that would be worth the most are tried first,
and not more than a few: the rest are tried in the rounds that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from ledger.domain.ids import LeaseId
from marketplace.domain.book import Book
from marketplace.domain.calendar import Calendar, Taken
from marketplace.domain.demand import OpenBid
from marketplace.domain.events import Cut
from marketplace.domain.fills import Fill, lease_id_of
from marketplace.domain.moments import from_above, from_below, moment
from marketplace.domain.packing import Placement
from marketplace.domain.preemption import Plan, plan_for, without
from marketplace.domain.quota_gate import Found, Gate
from marketplace.domain.selling_on import Shelf, cut_short
from marketplace.domain.tries import Tries
from marketplace.domain.waiting import weight_of
from marketplace.domain.written import shares_of

BIDS_MAX = 16
"""Refused bids for which room is looked for in one round."""


def make_room(
    book: Book,
    refused: Sequence[OpenBid],
    calendar: Calendar,
    gate: Gate | None,
    tries: Tries,
    *,
    now: int,
    round_id: UUID,
    interrupting: bool = True,
) -> tuple[list[Fill], Calendar]:
    """Return the grants that cut leases, and the calendar with them.

    Args:
        refused: by the search and the sweep. calendar: with all that the round granted; it stays
            as it is. interrupting: whether leases are interrupted, or rests sold only.
    """
    room = _Room(book, calendar, gate, now, round_id)
    interrupting = interrupting and bool(book.leases.interruptible)
    if not book.resales and not interrupting:
        return [], calendar
    worthiest = sorted(
        refused,
        key=lambda bid: (
            -(bid.limit + weight_of(bid, now=now)) * bid.gpus * bid.duration,
            bid.price_time,
        ),
    )
    for bid in worthiest[:BIDS_MAX]:
        if not tries.more():
            break
        found = room.bought(bid) if book.resales else None
        if found is None and interrupting and bid.terms.service_class != "interruptible":
            found = room.interrupted(bid)
        if found is not None:
            room.fills.append(found)
    return room.fills, room.calendar


@dataclass(slots=True)
class _Room:
    """What has been found so far, and how the calendar is with it."""

    book: Book
    calendar: Calendar
    gate: Gate | None
    at: int
    round_id: UUID
    fills: list[Fill] = field(default_factory=list)
    cut: set[LeaseId] = field(default_factory=set)

    def bought(self, bid: OpenBid) -> Fill | None:
        """Return the grant of rests of leases at the prices that their sellers ask."""
        shelf = Shelf(self.book, self.calendar, self.cut)

        def find(wish: OpenBid) -> Found | None:
            placement = shelf.place(wish, now=self.at)
            return None if placement is None else (wish, placement)

        placement = self._let(bid, find)
        if placement is None:
            return None
        shares, cuts = shelf.named(shares_of(placement), moment(placement.starts))
        calendar = self.calendar.fork()
        for cut in cuts:
            cut_short(calendar, self.book.held[cut.lease_id], from_below(cut.ends_at))
        fill = replace(self._fill(bid, placement, placement.floor, cuts), shares=tuple(shares))
        return self._take(fill, calendar)

    def interrupted(self, bid: OpenBid) -> Fill | None:
        """Return the grant of what interruptible leases give up, at what covers their loss."""
        plans: dict[int, Plan] = {}

        def find(wish: OpenBid) -> Found | None:
            plan = plan_for(self.book, wish, now=self.at, calendar=self.calendar, spared=self.cut)
            if plan is None:
                return None
            plans[plan.placement.starts] = plan
            return wish, plan.placement

        placement = self._let(bid, find)
        if placement is None:
            return None
        plan = plans[placement.starts]
        cuts = [Cut(each.lease_id, moment(each.stop), "interrupted") for each in plan.victims]
        fill = self._fill(bid, placement, plan.price, cuts)
        return self._take(fill, without(self.calendar, plan.victims))

    def _let(self, bid: OpenBid, find: Callable[[OpenBid], Found | None]) -> Placement | None:
        """Find a place that the quotas allow, and count it there."""
        lease_id = lease_id_of(self.round_id, bid)
        found = find(bid) if self.gate is None else self.gate.admit(bid, find, lease_id)
        return None if found is None else found[1]

    def _fill(self, bid: OpenBid, placement: Placement, price: int, cuts: Sequence[Cut]) -> Fill:
        weight = weight_of(bid, now=self.at)
        lease_id = lease_id_of(self.round_id, bid)
        return Fill(bid, lease_id, placement, price, weight, tuple(cuts))

    def _take(self, fill: Fill, calendar: Calendar) -> Fill:
        span = Taken(fill.placement.starts, fill.ends, fill.lease_id)
        for _, uuid in fill.placement.gpus:
            calendar.take(uuid, span)
        for cut in fill.cuts:
            self.cut.add(cut.lease_id)
            if self.gate is not None:
                self.gate.quotas.extend(cut.lease_id, from_above(cut.ends_at))
        self.calendar = calendar
        return fill
