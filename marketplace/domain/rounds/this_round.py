"""The round that is being cleared: what each of its stages is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from ledger.domain.ids import LeaseId
from marketplace.domain.admission.gate import Gate, gate_of
from marketplace.domain.book.book import Book
from marketplace.domain.clearing.fills import lease_ids_of
from marketplace.domain.facts.instants import Millis
from marketplace.domain.index.offer_index import Catalogue
from marketplace.domain.orderbook.calendar import Calendar, Taken
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import Placement


@dataclass(slots=True)
class Round:
    """Its book, which stays as it is, moment in milliseconds and id, and the quotas of its grants.

    gate: None where there are no policies. interrupting: whether interruptible leases make room
    for firm bids.
    """

    book: Book
    at: int
    round_id: UUID
    interrupting: bool = True
    gate: Gate | None = field(init=False)
    _left: tuple[Calendar, Catalogue] | None = field(init=False, default=None)
    _lease_ids: dict[int, LeaseId] = field(init=False, default_factory=dict)
    _name: Callable[[OpenBid], LeaseId] = field(init=False)

    def __post_init__(self) -> None:
        self.gate = gate_of(self.book)
        self._name = lease_ids_of(self.round_id)

    def lease_id(self, bid: OpenBid) -> LeaseId:
        """Return the id of the lease that a bid gets, in whatever size; it is made once."""
        key = id(bid.terms)  # as every size of it has, and the book keeps
        found = self._lease_ids.get(key)
        if found is None:
            found = self._lease_ids[key] = self._name(bid)
        return found

    def left(self, calendar: Calendar) -> Catalogue:
        """Return the offers with the room that a calendar leaves, where only the round changes it.

        One calendar after the other: of the last one it is kept up to date.
        """
        if self._left is None or self._left[0] is not calendar:
            self._left = calendar, self.book.catalogue.under(calendar)
        return self._left[1]

    def take(self, calendar: Calendar, bid: OpenBid, placement: Placement) -> None:
        """Give a bid its GPUs."""
        ends = Millis(placement.starts + bid.duration)
        lease_id = self.lease_id(bid)
        span = Taken(placement.starts, ends, lease_id)
        calendar.note_tenant(lease_id, bid.terms.tenant_id)
        for _, uuid in placement.gpus:
            calendar.take(uuid, span)
        self._touch(placement)

    def give_back(self, calendar: Calendar, bid: OpenBid, placement: Placement) -> None:
        """Give back what a bid was given."""
        lease_id = self.lease_id(bid)
        for _, uuid in placement.gpus:
            calendar.drop(uuid, lease_id)
        self._touch(placement)

    def _touch(self, placement: Placement) -> None:
        if self._left is not None:
            for listed, _ in placement.gpus:
                self._left[1].touch(listed.terms.host_id)
