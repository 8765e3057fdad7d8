"""After the search of a round: room for refused bids in what others hold, at its price.

First, what is a unit's own comes back to bids within its nominal quota that cannot wait any longer
(`reclaim_quota`). Then what is left of leases whose consumers sell it; then what work has that may
be paused (`pause`); then, for firm bids, what interruptible leases have. All with notice and, but
for pauses, compensation, as few leases as will do, and only once the place of the bid is proved.
Each grant names the leases that it cuts. Only a few bids are tried in a round, those that cannot
wait and those that would be worth the most first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ledger.domain.ids import LeaseId
from marketplace.domain.admission.gate import Found
from marketplace.domain.book.book import Book
from marketplace.domain.clearing.fills import Fill, shares_of
from marketplace.domain.clearing.work_budget import Tries
from marketplace.domain.facts.events import Cut
from marketplace.domain.facts.instants import moment
from marketplace.domain.orderbook.calendar import Calendar, Taken
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import Placement
from marketplace.domain.preemption.fill_resale import Shelf
from marketplace.domain.preemption.giving_way import pause_or_instead
from marketplace.domain.preemption.interrupt import Plan, plan_for
from marketplace.domain.preemption.reclaim_quota import (
    Reclaim,
    Standing,
    may_be_at_risk,
    reclaim_in_round,
)
from marketplace.domain.rounds.ageing import weight_of
from marketplace.domain.rounds.this_round import Round

BIDS_MAX = 16
"""Refused bids for which room is looked for in one round."""


def make_room(
    this: Round, refused: Sequence[OpenBid], calendar: Calendar, tries: Tries
) -> tuple[list[Fill], Calendar]:
    """Return the grants that cut leases, and the calendar with them.

    Args:
        refused: by the search and the sweep. calendar: with all that the round granted; it stays
            as it is.
    """
    room, book, gate = _Room(this, calendar), this.book, this.gate
    interrupting = this.interrupting
    soft = interrupting and book.leases.may_go
    for bid in may_be_at_risk(room.standing, refused)[:BIDS_MAX] if gate and interrupting else ():
        if not tries.more(bid.bid_id):
            break
        room.serve(bid, soft=soft, own=True)
    if not book.resales and not soft:
        return room.fills, room.calendar
    served = {fill.bid.bid_id for fill in room.fills}
    worthiest = sorted(
        (bid for bid in refused if bid.bid_id not in served),
        key=lambda bid: (
            book.quotas is not None and book.quotas.goes_last(bid.terms),
            -(bid.limit + weight_of(bid, now=this.at)) * bid.gpus * bid.duration,
            bid.price_time,
        ),
    )
    for bid in worthiest[:BIDS_MAX]:
        if not tries.more(bid.bid_id):
            break
        room.serve(bid, soft=soft, own=False)
    return room.fills, room.calendar


class Planned(Protocol):
    """What plans who gives way to a bid."""

    def __call__(
        self,
        book: Book,
        bid: OpenBid,
        *,
        now: int,
        calendar: Calendar | None = None,
        spared: Collection[LeaseId] = (),
    ) -> Plan | None:
        """Return the plan; None: nobody does, or to no avail."""


@dataclass(slots=True)
class _Room:
    """What has been found so far, and how the calendar is with it."""

    this: Round
    calendar: Calendar
    fills: list[Fill] = field(default_factory=list)
    cut: set[LeaseId] = field(default_factory=set)

    @property
    def standing(self) -> Standing:
        """Return how all is with what has been found."""
        assert self.this.gate is not None
        return Standing(
            self.this.book, self.calendar, self.this.gate.quotas, self.this.at, self.cut
        )

    def serve(self, bid: OpenBid, *, soft: bool, own: bool) -> None:
        """Find room for a bid: what is for sale, its unit's own, or what pays for itself.

        own: whether it may take back what is its unit's own. soft: whether there are leases that
        may be interrupted or paused. Firm ones only go where interrupting those at a price does
        not help.
        """
        found = self.bought(bid) if self.this.book.resales else None
        if found is None and own:
            plan = reclaim_in_round(self.standing, bid)
            if plan is None:
                return
            if plan.firm and soft:
                found = self.interrupted(bid)
            found = found or self.taken_back(bid, plan)
        elif found is None and soft:
            found = self.paused(bid)
            if found is None and bid.terms.service_class != "interruptible":
                found = self.interrupted(bid)
        if found is not None:
            self.fills.append(found)

    def taken_back(self, bid: OpenBid, plan: Reclaim) -> Fill | None:
        """Return the grant of what borrowers give back, at the floors and what they are owed."""
        assert self.this.gate is not None
        lease_id = self.this.lease_id(bid)
        quotas = self.this.gate.quotas
        before = {each.lease_id: quotas.uses[each.lease_id] for each in plan.victims}
        for victim in plan.victims:
            quotas.extend(victim.lease_id, victim.stop)
        lets = self.this.gate.lets(bid, plan.placement, lease_id)
        # For everybody else they count on: the grant may be refused when it is taken up.
        for victim_id, use in before.items():
            quotas.move(victim_id, use)
        if not lets:
            return None
        return self._take(self._fill(bid, plan.placement, plan.price, plan.cuts))

    def bought(self, bid: OpenBid) -> Fill | None:
        """Return the grant of rests of leases at the prices that their sellers ask."""
        shelf = Shelf(self.this.book, self.calendar, self.cut)

        def find(wish: OpenBid) -> Found | None:
            placement = shelf.place(wish, now=self.this.at)
            return None if placement is None else (wish, placement)

        placement = self._let(bid, find)
        if placement is None:
            return None
        shares, cuts = shelf.named(shares_of(placement), moment(placement.starts))
        fill = replace(self._fill(bid, placement, placement.floor, cuts), shares=tuple(shares))
        return self._take(fill)

    def interrupted(self, bid: OpenBid) -> Fill | None:
        """Return the grant of what interruptible leases give up, at what covers their loss."""
        return self._planned(bid, plan_for)

    def paused(self, bid: OpenBid) -> Fill | None:
        """Return the grant of what paused work gives up, or what goes first at no higher price."""
        return self._planned(bid, pause_or_instead) if self.this.book.leases.pausable else None

    def _planned(self, bid: OpenBid, planned: Planned) -> Fill | None:
        plans: dict[int, Plan] = {}

        def find(wish: OpenBid) -> Found | None:
            plan = planned(
                self.this.book, wish, now=self.this.at, calendar=self.calendar, spared=self.cut
            )
            if plan is None:
                return None
            plans[plan.placement.starts] = plan
            return wish, plan.placement

        placement = self._let(bid, find)
        if placement is None:
            return None
        plan = plans[placement.starts]
        return self._take(self._fill(bid, placement, plan.price, plan.cuts))

    def _let(self, bid: OpenBid, find: Callable[[OpenBid], Found | None]) -> Placement | None:
        """Find a place that the quotas allow, and count it there."""
        lease_id = self.this.lease_id(bid)
        found = find(bid) if self.this.gate is None else self.this.gate.admit(bid, find, lease_id)
        return None if found is None else found[1]

    def _fill(self, bid: OpenBid, placement: Placement, price: int, cuts: Sequence[Cut]) -> Fill:
        weight = weight_of(bid, now=self.this.at)
        lease_id = self.this.lease_id(bid)
        return Fill(bid, lease_id, placement, price, weight, tuple(cuts))

    def _take(self, fill: Fill) -> Fill:
        """Give a grant its GPUs; what else its cuts free is given to nobody before they stand."""
        self.cut.update(cut.lease_id for cut in fill.cuts)
        self.calendar = self.calendar.fork()
        span = Taken(fill.placement.starts, fill.ends, fill.lease_id)
        self.calendar.note_tenant(fill.lease_id, fill.bid.terms.tenant_id)
        for _, uuid in fill.placement.gpus:
            self.calendar.carve(uuid, span.starts, span.ends, self.cut)
            self.calendar.take(uuid, span)
        return fill
