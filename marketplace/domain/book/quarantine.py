"""What of the supply is leased to nobody for now: hosts that are silent or that their owners keep
back, GPUs that are unfit, and both while they are in maintenance.

The offers stay in the book with their place, floor and terms: only the time of those GPUs is
withheld, in the calendar, which everything that grants, quotes or explains asks what is free. What
is withheld of a card is withheld of all its parts. Leases that hold such GPUs are not touched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from ledger.domain.event import Event
from ledger.domain.ids import HostId, MaintenanceId
from listings.domain.divisions import read_share
from listings.domain.events import (
    Gpu,
    GpuQuarantined,
    GpuReleased,
    HostFellSilent,
    HostReturned,
    HostTakingChanged,
)
from listings.domain.maintenance import after
from listings.domain.maintenance_events import (
    MaintenanceAnnounced,
    MaintenanceCancelled,
    MaintenanceEvent,
    MaintenanceMoved,
)
from marketplace.domain.facts.instants import Millis, from_above, from_below
from marketplace.domain.index.offer_index import Catalogue
from marketplace.domain.orderbook.calendar import Calendar, Taken
from marketplace.domain.orderbook.listed_offer import Listed
from marketplace.domain.orderbook.triggers import SupplyGrew, Trigger


class Quarantine:
    """The hosts that are silent, those that are kept back, and the unfit GPUs of each host.

    Whatever is offered of them.
    """

    def __init__(self) -> None:
        self.silent: set[HostId] = set()
        self.kept_back: set[HostId] = set()
        self.unfit: dict[HostId, set[str]] = defaultdict(set)
        self.maintenance: dict[HostId, dict[MaintenanceId, MaintenanceAnnounced]] = {}

    def __contains__(self, host_id: HostId) -> bool:
        whole = self.is_whole(host_id) or host_id in self.maintenance
        return whole or bool(self.unfit.get(host_id))

    def is_whole(self, host_id: HostId) -> bool:
        """Tell if all of a host is withheld."""
        return host_id in self.silent or host_id in self.kept_back

    def of(self, host_id: HostId, offers: Iterable[Listed]) -> list[str]:
        """Return what of a host's offers is withheld, and the cards that it is parts of."""
        if host_id not in self:
            return []
        all_of_it, unfit = self.is_whole(host_id), self.unfit.get(host_id, set())
        found: dict[str, None] = {}
        for listed in offers:
            for gpu in listed.terms.gpus:
                names = list(_names(gpu))
                if all_of_it or not unfit.isdisjoint(names):
                    found.update(dict.fromkeys(names))
        return list(found)

    def closed(self, host_id: HostId, offers: Iterable[Listed]) -> dict[str, tuple[Taken, ...]]:
        """Return when which GPUs of a host's offers, and their cards, are in maintenance."""
        planned = self.maintenance.get(host_id)
        if not planned:
            return {}
        found: dict[str, list[tuple[int, int]]] = {}
        for listed in offers:
            for gpu in listed.terms.gpus:
                names = list(_names(gpu))
                if spans := [
                    (from_below(each.window.starts_at), from_above(each.window.ends_at))
                    for each in planned.values()
                    if not each.gpu_uuids or not set(each.gpu_uuids).isdisjoint(names)
                ]:
                    found |= {name: [*found.get(name, ()), *spans] for name in names}
        return {name: _joined(spans) for name, spans in found.items()}


def _joined(spans: Iterable[tuple[int, int]]) -> tuple[Taken, ...]:
    """Return spans in order, those that meet as one."""
    joined: list[Taken] = []
    for starts, ends in sorted(spans):
        if joined and starts <= joined[-1].ends:
            joined[-1] = joined[-1]._replace(ends=Millis(max(ends, joined[-1].ends)))
        else:
            joined.append(Taken(Millis(starts), Millis(ends), None))
    return tuple(joined)


def _names(gpu: Gpu) -> Iterator[str]:
    """Yield what a fault that concerns a GPU may be filed under: itself, and its card."""
    yield gpu.uuid
    share = read_share(gpu.uuid)
    if share is not None:
        yield share.card_uuid
    elif gpu.card_uuid is not None:
        yield gpu.card_uuid


class Book(Protocol):
    """The book of a market, as far as the health of hosts changes it."""

    calendar: Calendar
    catalogue: Catalogue
    quarantine: Quarantine


def withhold(book: Book, host_id: HostId) -> None:
    """Bring what is withheld of a host's offers up to date."""
    offers = book.catalogue.on(host_id)
    book.calendar.withhold(host_id, book.quarantine.of(host_id, offers))
    book.calendar.close(host_id, book.quarantine.closed(host_id, offers))
    book.catalogue.touch(host_id)


def fell_silent(book: Book, event: HostFellSilent, position: int) -> Trigger | None:
    """Withhold all GPUs of a host."""
    book.quarantine.silent.add(event.host_id)
    withhold(book, event.host_id)
    return None


def returned(book: Book, event: HostReturned, position: int) -> Trigger | None:
    """Give them back, and look who waited."""
    book.quarantine.silent.discard(event.host_id)
    return _given_back(book, event.host_id)


def taking_changed(book: Book, event: HostTakingChanged, position: int) -> Trigger | None:
    """Withhold a host that its owner keeps back, or give it back and look who waited."""
    if (event.at_host, event.on_market) != ("all", "all"):
        book.quarantine.kept_back.add(event.host_id)
        withhold(book, event.host_id)
        return None
    book.quarantine.kept_back.discard(event.host_id)
    return _given_back(book, event.host_id)


def quarantined(book: Book, event: GpuQuarantined, position: int) -> Trigger | None:
    """Withhold a GPU, with all its parts."""
    book.quarantine.unfit[event.host_id].add(event.gpu_uuid)
    withhold(book, event.host_id)
    return None


def released(book: Book, event: GpuReleased, position: int) -> Trigger | None:
    """Give it back, and look who waited."""
    book.quarantine.unfit[event.host_id].discard(event.gpu_uuid)
    return _given_back(book, event.host_id)


def maintained(book: Book, event: MaintenanceEvent, position: int) -> Trigger | None:
    """Close GPUs for a window, move it, or open them again and look who waited."""
    planned = after(book.quarantine.maintenance.get(event.host_id, {}), event)
    if planned:
        book.quarantine.maintenance[event.host_id] = planned
    else:
        book.quarantine.maintenance.pop(event.host_id, None)
    if isinstance(event, MaintenanceAnnounced):
        withhold(book, event.host_id)
        return None
    return _given_back(book, event.host_id)


def _given_back(book: Book, host_id: HostId) -> Trigger | None:
    if not book.quarantine.unfit.get(host_id):
        book.quarantine.unfit.pop(host_id, None)
    withhold(book, host_id)
    if not book.catalogue.on(host_id) or book.quarantine.is_whole(host_id):
        return None
    return SupplyGrew(frozenset({host_id}), rests=True)


RULES: dict[type[Event], Callable[[Book, Any, int], Trigger | None]] = {
    HostFellSilent: fell_silent,
    HostReturned: returned,
    HostTakingChanged: taking_changed,
    GpuQuarantined: quarantined,
    GpuReleased: released,
    MaintenanceAnnounced: maintained,
    MaintenanceMoved: maintained,
    MaintenanceCancelled: maintained,
}
