"""What the agents of hosts say of themselves: how far they keep work apart, and what they can do.

It is a part of the kind of every offer of the host, so that what fits it is worked out for kinds
and shapes like all else that fits. A bid that was placed keeps its place whatever a host says
later; leases go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ledger.domain.event import Event
from ledger.domain.ids import HostId, LeaseId
from listings.domain.events import HostAbilitiesReported
from listings.domain.sandboxes import NOTHING_SAID, AgentSays
from marketplace.domain.book.held_leases import Held
from marketplace.domain.index.offer_index import Catalogue
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.listed_offer import Listed
from marketplace.domain.orderbook.triggers import SupplyGrew, Trigger


class Agents:
    """What each host's agent last said, whatever is offered of the host."""

    def __init__(self) -> None:
        self.said: dict[HostId, AgentSays] = {}

    def says(self, host_id: HostId) -> AgentSays:
        """Return what a host's agent says of itself."""
        return self.said.get(host_id, NOTHING_SAID)


class Book(Protocol):
    """The book of a market, as far as what agents say changes it."""

    agents: Agents
    calendar: Calendar
    catalogue: Catalogue
    held: dict[LeaseId, Held]

    def take_out(self, listed: Listed) -> None:
        """Forget an offer."""
        ...

    def take_in(self, listed: Listed) -> None:
        """Take in an offer."""
        ...


def part_tenants(book: Book, host_id: HostId) -> None:
    """Bring up to date whether tenants may meet on a host, its GPUs, and whose leases it has."""
    calendar = book.calendar
    if book.agents.says(host_id).keeps_tenants_apart:
        calendar.one_tenant.pop(host_id, None)
        return
    gpus = calendar.one_tenant.setdefault(host_id, set())
    for listed in book.catalogue.on(host_id):
        gpus.update(listed.groups)
    for lease_id, held in book.held.items():
        here = [share for share in held.granted.shares if share.host_id == host_id]
        gpus.update(uuid for share in here for uuid in share.gpu_uuids)
        if here and held.bid is not None:
            calendar.note_tenant(lease_id, held.bid.tenant_id)


def reported(book: Book, event: HostAbilitiesReported, position: int) -> Trigger | None:
    """Put the host's offers among those of their new kind, each in its place; they may serve more.

    A new one each, because what fits it was worked out from its kind.
    """
    book.agents.said[event.host_id] = AgentSays.of(event)
    part_tenants(book, event.host_id)
    offers = list(book.catalogue.on(event.host_id))
    for was in offers:
        listed = Listed(was.terms, was.published, was.floor)
        listed.since, listed.paused = was.since, was.paused
        book.take_out(was)
        book.take_in(listed)
    return SupplyGrew(frozenset({event.host_id}), rests=True) if offers else None


RULES: dict[type[Event], Callable[[Book, Any, int], Trigger | None]] = {
    HostAbilitiesReported: reported,
}
