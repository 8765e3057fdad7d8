"""The leases of a market's book: who holds which GPUs until when, and what is for sale of it.

An owner who took a lease's capacity back keeps those GPUs until the lease would have ended, or
until they are published in a new offer: nobody reclaims in order to be leased again at once. One
who took it for maintenance has announced until when.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ledger.domain.event import Event
from ledger.domain.ids import HostId, LeaseId, TenantId
from ledger.domain.making import maker
from marketplace.domain.facts.close_reasons import HOST_SILENT, WINDOW_OVER
from marketplace.domain.facts.events import (
    BidPlaced,
    Cut,
    ExtensionDeclined,
    ExtensionGranted,
    ExtensionRequested,
    LeaseClosed,
    LeaseGranted,
    LeaseRepriced,
    NothingDecided,
    ReclaimRequested,
    ResaleEnded,
    ResaleOpened,
)
from marketplace.domain.facts.instants import Millis, from_above, from_below
from marketplace.domain.index.offer_index import Catalogue
from marketplace.domain.orderbook.calendar import Calendar, Taken
from marketplace.domain.orderbook.host_reliability import WENT_WELL, Record
from marketplace.domain.orderbook.listed_offer import Listed
from marketplace.domain.orderbook.triggers import ExtensionAsked, ResaleCame, SupplyGrew, Trigger


@dataclass(frozen=True, slots=True)
class Claim:
    """A grant that ends a lease sooner, and what is as before if the grant is refused.

    ends: when the lease ends without it. sale: what was for sale of the lease, and since when.
    """

    granted_to: LeaseId
    ends: Millis
    sale: tuple[int, ResaleOpened] | None = None


@dataclass(slots=True)
class Held:
    """A lease in the book. ends: with the claim on it, if there is one.

    Until the grant that claims it is taken up, a lease keeps in the calendar what the grant does
    not take: nobody is given capacity that comes free only if somebody else's grant holds.
    """

    granted: LeaseGranted
    ends: Millis
    bid: BidPlaced | None = None
    """What it was granted for; None where the bid was gone by then."""
    reclaimed_by: TenantId | None = None
    reclaimed_at: int = 0
    """Store position of the reclaim."""
    claim: Claim | None = None
    """The grant for which it is to end sooner, until that is taken up or refused."""
    comes_back: bool = False
    """It is taken back for maintenance: then its owner keeps nothing beyond that."""

    @property
    def is_interruptible(self) -> bool:
        """Tell if it was granted to a bid of that service class."""
        return self.bid is not None and self.bid.service_class == "interruptible"

    @property
    def is_pausable(self) -> bool:
        """Tell if it was granted to a bid that lets the market pause its work."""
        return self.bid is not None and self.bid.pausable


_held, _span = maker(Held), tuple.__new__


class Holdings:
    """All leases there are. Changed by facts alone; takes and frees their GPUs in the calendar."""

    def __init__(
        self, calendar: Calendar, catalogue: Catalogue, silent: Collection[HostId] = ()
    ) -> None:
        """Begin without leases. silent: the hosts that are not heard, as they are by now."""
        self.held: dict[LeaseId, Held] = {}
        self.resales: dict[LeaseId, tuple[int, ResaleOpened]] = {}
        """Leases of which the rest is for sale, and since which store position."""
        self.records: dict[HostId, Record] = defaultdict(Record)
        """How reliable each host has proved."""
        self.interruptible: dict[HostId, dict[LeaseId, Held]] = {}
        """Those that the market may interrupt, by each host they are on."""
        self.pausable: dict[HostId, dict[LeaseId, Held]] = {}
        """Those whose work may be paused, likewise."""
        self.claims: dict[LeaseId, tuple[LeaseId, ...]] = {}
        """Grants that are not taken up yet, each with the leases that it ends sooner."""
        self._calendar = calendar
        self._catalogue = catalogue
        self._silent = silent

    def apply(self, event: Event, position: int) -> Trigger | None:
        """Take in a fact of a lease that was granted before."""
        return RULES[type(event)](self, event, position)

    def put(self, held: Held) -> None:
        """Take in a lease whose time is taken in the calendar already."""
        self.held[held.granted.lease_id] = held
        for those in self._kinds_of(held):
            for share in held.granted.shares:
                those.setdefault(share.host_id, {})[held.granted.lease_id] = held

    def granted(self, grants: Iterable[tuple[LeaseGranted, BidPlaced | None]]) -> None:
        """Take in new leases, each with the bid it is of, and what they cut of others."""
        touched: HostId | None = None
        for event, bid in grants:
            if event.cuts:
                self.claims[event.lease_id] = tuple(cut.lease_id for cut in event.cuts)
            for cut in event.cuts:
                self._claim(cut, event.lease_id)
            window, lease_id = event.window, event.lease_id
            starts, ends = from_below(window.starts_at), from_above(window.ends_at)
            self.held[lease_id] = held = _held(event, ends, bid)
            if bid is not None and (bid.service_class == "interruptible" or bid.pausable):
                self.put(held)
            if bid is not None:
                self._calendar.note_tenant(lease_id, bid.tenant_id)
            span = _span(Taken, (starts, ends, lease_id))
            for share in event.shares:
                if share.host_id is not touched:  # those of one offer come one after the other
                    touched = share.host_id
                    self._catalogue.touch(touched)
                if self.claims:
                    self._carve(share.gpu_uuids, starts, ends)
                self._calendar.take_each(share.gpu_uuids, span)

    def _carve(self, uuids: Iterable[str], starts: Millis, ends: Millis) -> None:
        """Take from leases that are claimed what a grant gets of them."""
        claimed = {lease_id for leases in self.claims.values() for lease_id in leases}
        for uuid in uuids:
            self._calendar.carve(uuid, starts, ends, claimed)

    def _claim(self, cut: Cut, granted_to: LeaseId) -> None:
        sale = self.resales.pop(cut.lease_id, None)
        if (held := self.held.get(cut.lease_id)) is not None:
            starts = from_below(held.granted.window.starts_at)
            held.claim = Claim(granted_to, held.ends, sale)
            held.ends = max(starts, from_above(cut.ends_at))

    def taken_up(self, lease_id: LeaseId) -> list[Held]:
        """Let the leases that a grant claimed end sooner; return those that leave something."""
        found = []
        for held in self._claimed(lease_id):
            held.claim = None
            self._ends_at(held, held.ends)
            found.append(held)
        return found

    def refused(self, lease_id: LeaseId) -> Held | None:
        """Forget a grant that was refused; leases that it claimed go on as before."""
        given = self.held.pop(lease_id, None)
        if given is None:
            return None
        self._no_longer_interruptible(given)
        for share in given.granted.shares:
            self._catalogue.touch(share.host_id)
            for uuid in share.gpu_uuids:
                self._calendar.drop(uuid, lease_id)
        for held in self._claimed(lease_id):
            assert held.claim is not None
            if held.claim.sale is not None and held.reclaimed_by is None:
                self.resales[held.granted.lease_id] = held.claim.sale
            ends, held.claim = held.claim.ends, None
            self._ends_at(held, ends)
        return given

    def _claimed(self, lease_id: LeaseId) -> list[Held]:
        leases = self.claims.pop(lease_id, ())
        held = [self.held[each] for each in leases if each in self.held]
        return [each for each in held if each.claim and each.claim.granted_to == lease_id]

    def _ends_at(self, held: Held, ends: Millis) -> None:
        held.ends, lease_id = ends, held.granted.lease_id
        starts = from_below(held.granted.window.starts_at)
        for share in held.granted.shares:
            self._catalogue.touch(share.host_id)
            for uuid in share.gpu_uuids:
                self._calendar.drop(uuid, lease_id)
                if starts < ends:
                    self._calendar.take(uuid, Taken(starts, ends, lease_id))

    def _resale_opened(self, event: ResaleOpened, position: int) -> Trigger | None:
        held = self.held.get(event.lease_id)
        if held is None or held.reclaimed_by is not None:
            return None
        self.resales[event.lease_id] = (position, event)
        return ResaleCame(event.lease_id)

    def _resale_ended(self, event: ResaleEnded, position: int) -> None:
        self.resales.pop(event.lease_id, None)
        held = self.held.get(event.lease_id)
        if held is not None and held.claim is not None:
            held.claim = replace(held.claim, sale=None)

    def _extension_asked(self, event: ExtensionRequested, position: int) -> Trigger | None:
        return ExtensionAsked(event.lease_id, event) if event.lease_id in self.held else None

    def _extended(self, event: ExtensionGranted, position: int) -> None:
        held = self.held.get(event.lease_id)
        if held is not None:
            self._ends_at(held, from_above(event.ends_at))

    def _repriced(self, event: LeaseRepriced, position: int) -> None:
        """Its sides agreed on another price: from now on it counts as who pays that."""
        held = self.held.get(event.lease_id)
        if held is not None:
            held.granted = replace(held.granted, price=event.price)

    def _unchanged(self, event: ExtensionDeclined | NothingDecided, position: int) -> None:
        """Change nothing: it is read for its `through`, by which a book is folded."""

    def _reclaimed(self, event: ReclaimRequested, position: int) -> None:
        self.resales.pop(event.lease_id, None)
        held = self.held.get(event.lease_id)
        if held is not None:
            held.reclaimed_by, held.reclaimed_at = event.owner_id, position
            held.comes_back = event.maintenance_id is not None

    def _closed(self, event: LeaseClosed, position: int) -> Trigger | None:
        self.resales.pop(event.lease_id, None)
        held = self.held.pop(event.lease_id, None)
        if held is None:
            return None
        self._no_longer_interruptible(held)
        free_from = from_above(event.at)
        freed = self._noted(held, event)
        for share in held.granted.shares:
            self._catalogue.touch(share.host_id)
            for uuid in share.gpu_uuids:
                kept = (
                    share.owner_id == held.reclaimed_by
                    and not held.comes_back
                    and not self._listed_since(uuid, share.host_id, held.reclaimed_at)
                )
                for span in self._calendar.drop(uuid, event.lease_id):
                    self._give_back(uuid, span, free_from, kept=kept)
            # Also what its owner keeps: nobody has to clean up after the lease any more.
            freed.add(share.host_id)
        return SupplyGrew(frozenset(freed)) if freed else None

    def _no_longer_interruptible(self, held: Held) -> None:
        for those in self._kinds_of(held):
            for share in held.granted.shares:
                on_host = those.get(share.host_id, {})
                on_host.pop(held.granted.lease_id, None)
                if not on_host:
                    those.pop(share.host_id, None)

    def _kinds_of(self, held: Held) -> Iterator[dict[HostId, dict[LeaseId, Held]]]:
        """Yield where a lease is kept besides."""
        if held.is_interruptible:
            yield self.interruptible
        if held.is_pausable:
            yield self.pausable

    @property
    def may_go(self) -> bool:
        """Tell if there are leases that the market may interrupt, or pause."""
        return bool(self.interruptible or self.pausable)

    def interruptible_on(self, hosts: Iterable[HostId]) -> list[Held]:
        """Return the leases on these hosts that the market may interrupt, each once."""
        return _on(self.interruptible, hosts)

    def pausable_on(self, hosts: Iterable[HostId]) -> list[Held]:
        """Return the leases on these hosts whose work may be paused, each once."""
        return _on(self.pausable, hosts)

    def _noted(self, held: Held, event: LeaseClosed) -> set[HostId]:
        """Take note of how the hosts proved; return those that now may be reliable enough."""
        hosts = set[HostId]()
        if held.granted.own:
            return hosts
        lost = {s.host_id for s in held.granted.shares if s.host_id in self._silent}
        for share in held.granted.shares:
            host_id = share.host_id
            if held.reclaimed_by not in (None, share.owner_id) or host_id in hosts:
                continue
            if self._is_of_another(event, host_id, lost):
                continue
            hosts.add(host_id)
            # A clock that ends a lease while nobody hears the host proves nothing good of it.
            reason = (
                HOST_SILENT if event.reason == WINDOW_OVER and host_id in lost else event.reason
            )
            self.records[host_id].note(reason, at=from_above(event.at))
        return hosts if event.reason in WENT_WELL else set()

    def _is_of_another(self, event: LeaseClosed, host_id: HostId, lost: set[HostId]) -> bool:
        """Tell if it is known that another host of a gang ended it. lost: the silent ones."""
        if event.reason == HOST_SILENT and lost:
            return host_id not in lost
        return event.of_host not in (None, host_id)

    def _listed_since(self, uuid: str, host_id: HostId, position: int) -> bool:
        forms = {uuid, *self._calendar.rivals(uuid)}
        return any(
            listed.published > position and not forms.isdisjoint(_forms(listed))
            for listed in self._catalogue.on(host_id)
        )

    def _give_back(self, uuid: str, span: Taken, free_from: Millis, *, kept: bool) -> None:
        until = min(span.ends, free_from)
        if span.starts < until:
            self._calendar.take(uuid, span._replace(ends=until))
        since = max(span.starts, free_from)
        if kept and since < span.ends:
            self._calendar.take(uuid, Taken(since, span.ends, None))


def _on(those: Mapping[HostId, dict[LeaseId, Held]], hosts: Iterable[HostId]) -> list[Held]:
    found: dict[LeaseId, Held] = {}
    for host_id in hosts:
        found.update(those.get(host_id, {}))
    return list(found.values())


def _forms(listed: Listed) -> set[str]:
    """Return the GPUs of an offer and the cards that they are shares of."""
    cards = {gpu.card_uuid for gpu in listed.terms.gpus if gpu.card_uuid is not None}
    return {*listed.groups, *(cards if listed.parted else ())}


RULES: dict[type[Event], Callable[[Holdings, Any, int], Trigger | None]] = {
    ExtensionGranted: Holdings._extended,
    ExtensionDeclined: Holdings._unchanged,
    NothingDecided: Holdings._unchanged,
    ExtensionRequested: Holdings._extension_asked,
    LeaseRepriced: Holdings._repriced,
    ReclaimRequested: Holdings._reclaimed,
    LeaseClosed: Holdings._closed,
    ResaleOpened: Holdings._resale_opened,
    ResaleEnded: Holdings._resale_ended,
}
