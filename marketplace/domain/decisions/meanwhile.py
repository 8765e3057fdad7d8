"""What holds of a round that was worked out while the market went on.

A round of thousands of bids takes seconds, and immediate bids do not wait for it: it is worked out,
and checked, on the book as it stood when it was posed (`Posed`). When it comes back, each of its
grants is asked again on the book as it is by now. One does not hold whose bid or offers have
changed, or whose GPUs or quota somebody else has: who is granted something meanwhile comes first,
as immediate bids always do. The bid of such a grant is placed anew at once where there is room, as
long as there are few of them; else it waits on (`OVERTAKEN`).

Only what may have changed is asked again, by the check that guards every round. That comes to what
asking everything would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ledger.domain.ids import BidId, LeaseId
from listings.domain.sla import NO_LEVEL
from marketplace.domain.admission.gate import Gate, gate_of
from marketplace.domain.book.book import Book
from marketplace.domain.book.quota_following import use_of_grant
from marketplace.domain.clearing.fills import Clearing, Fill, decided, lease_id_of
from marketplace.domain.clearing.own_supply_first import fit
from marketplace.domain.facts.events import (
    Certificate,
    LeaseGranted,
    MarketEvent,
    Posed,
    RoundCleared,
    Unmatched,
)
from marketplace.domain.facts.faults import Fault
from marketplace.domain.facts.faults import RoundUnsound as RoundUnsound
from marketplace.domain.facts.instants import from_above, from_below
from marketplace.domain.orderbook.calendar import Calendar, Taken
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import Placement
from marketplace.domain.placement.sizes import Found
from marketplace.domain.rounds.ageing import weight_of
from marketplace.domain.rounds.vetting import CHECKS_MAX, Part, checked
from marketplace.domain.verification.verify_round import faults_since

OVERTAKEN = "overtaken"
"""The reason of a bid whose grant did not hold any more when its round came back."""
PLACED_ANEW_MAX = 16
"""Bids that are placed anew when a round comes back, those worth the most first. So nobody is
overtaken for ever where there is room, and nobody else waits long meanwhile."""

Spans = Mapping[str, Sequence[Taken]]
"""What was held of each GPU when a round was posed (`Calendar.spans`)."""
Tell = Callable[[Sequence[Fault]], object]


@dataclass(frozen=True, slots=True)
class Worked:
    """A round as it was worked out. parts: what each grant is of the round's sums."""

    cleared: RoundCleared
    granted: tuple[LeaseGranted, ...]
    parts: tuple[Part, ...]


def worked(events: Sequence[MarketEvent], parts: Mapping[LeaseId, Part]) -> Worked | None:
    """Return the events of a round as one value; None: it decided nothing."""
    if not events:
        return None
    cleared, *others = events
    assert isinstance(cleared, RoundCleared)
    granted = tuple(each for each in others if isinstance(each, LeaseGranted))
    return Worked(cleared, granted, tuple(parts[each.lease_id] for each in granted))


def on_return(
    book: Book, came: Worked | None, *, posed: Posed, before: Spans, tell: Tell | None = None
) -> list[MarketEvent]:
    """Return what holds of a round on the book as it is by now.

    Args:
        posed: where it was posed. before: what was held there.
        tell: told why grants do not hold, if any do not.

    Raises: RoundUnsound.
    """
    if came is None:
        return []
    back = _Return(book, came, posed)
    faults = back.drop_changed()
    back.near = {each.lease_id for each in back.grants if _is_near(book, each, before)}
    faults += back.drop_faulty()
    if back.place_anew():
        faults += back.drop_faulty()
    if faults and tell is not None:
        tell(faults)
    return back.events()


def _is_near(book: Book, granted: LeaseGranted, before: Spans) -> bool:
    """Tell if anything may have changed that a grant rests on, other than its bid and offers."""
    calendar, bid = book.calendar, book.bids[granted.bid_id]
    asked = bid.shape.request
    if granted.cuts or calendar.parted or asked.reliability_min_ppm is not None:
        return True
    if (
        asked.level != NO_LEVEL
        or asked.sandbox_min is not None
        or asked.network is not None
        or bid.shape.needs
    ):
        return True
    for share in granted.shares:
        if share.resold is not None or share.host_id in calendar.one_tenant:
            return True
        for uuid in share.gpu_uuids:
            if uuid in calendar.withheld or uuid in calendar.closed:
                return True
            if calendar.held(uuid) != before.get(uuid, ()):
                return True
    return False


class _Return:
    """A round that comes back. near: the leases of grants that are asked again."""

    def __init__(self, book: Book, came: Worked, posed: Posed) -> None:
        self._book, self._came, self._posed = book, came, posed
        self._round = replace(
            came.cleared, through=book.read_to, offers=len(book.offers), posed=posed
        )
        self._kept = {granted.lease_id: granted for granted in came.granted}
        self._parts = dict(zip(self._kept, came.parts, strict=True))
        self._late: dict[BidId, LeaseGranted] = {}
        self.near: set[LeaseId] = set()

    @property
    def grants(self) -> list[LeaseGranted]:
        """Return those that hold, as far as they were asked."""
        return list(self._kept.values())

    def drop_changed(self) -> list[Fault]:
        """Drop the grants whose bids and offers are not what they were; say why."""
        found = [Fault(said, each.lease_id) for each in self.grants for said in self._changed(each)]
        self._drop(found)
        return found

    def _changed(self, granted: LeaseGranted) -> Iterator[str]:
        bid = self._book.bids.get(granted.bid_id)
        if bid is None or bid.since > self._posed.through:
            yield f"bid {granted.bid_id} is over, or was amended"
            return
        for share in granted.shares:
            listed = self._book.offers.get(share.offer_id)
            if listed is None or listed.paused or listed.since > self._posed.through:
                yield f"offer {share.offer_id} is gone, or was changed"
                return

    def drop_faulty(self) -> list[Fault]:
        """Drop the grants that are at fault by now, and what rested on them; say why.

        Raises: RoundUnsound.
        """
        found: list[Fault] = []
        for _ in range(CHECKS_MAX):
            faults = checked(self._book, self._round, self.grants, self._check)
            if not faults:
                return found
            if any(fault.lease_id is None for fault in faults):
                raise RoundUnsound("; ".join(str(fault) for fault in faults))
            self._drop(faults)
            found += faults
        raise RoundUnsound(f"after {CHECKS_MAX} checks grants are still at fault")

    def _check(
        self, book: Book, cleared: RoundCleared, grants: Sequence[LeaseGranted]
    ) -> list[Fault]:
        near = [each for each in grants if each.lease_id in self.near]
        return faults_since(book, cleared, grants, near)

    def _drop(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            gone = None if fault.lease_id is None else self._kept.pop(fault.lease_id, None)
            if gone is not None:
                self._late[gone.bid_id] = gone

    # --- who was overtaken, once more -----------------------------------------------------------

    def place_anew(self) -> bool:
        """Find other GPUs for bids whose grants did not hold; tell if there are any."""
        cleared = self._round
        now, bids = from_above(cleared.at), [self._book.bids.get(each) for each in self._late]
        waiting = [bid for bid in bids if bid and bid.terms.patience == "patient"]
        if not waiting:
            return False
        waiting.sort(key=lambda bid: (-bid.reach - weight_of(bid, now=now), bid.price_time))
        calendar, gate = self._as_granted()
        fills = []
        for bid in waiting[:PLACED_ANEW_MAX]:
            found = self._placed(bid, calendar, gate, now) if now <= bid.lapses else None
            if found is not None:
                fills.append(self._fill(*found, gate, now))
                span = Taken(found[1].starts, fills[-1].ends, fills[-1].lease_id)
                calendar.note_tenant(fills[-1].lease_id, bid.terms.tenant_id)
                calendar.take_each([uuid for _, uuid in found[1].gpus], span)
        clearing = Clearing(tuple(fills), (), calendar)
        made = decided(
            self._book, clearing, now=now, lane="round", round_id=cleared.round_id, tell=()
        )
        for event in made:
            if isinstance(event, LeaseGranted):
                self._kept[event.lease_id] = event
                self.near.add(event.lease_id)
        self._parts.update((fill.lease_id, Part.of(fill)) for fill in fills)
        return bool(fills)

    def _as_granted(self) -> tuple[Calendar, Gate | None]:
        """Return the calendar and the quotas with all that holds."""
        calendar, gate = self._book.calendar.fork(), gate_of(self._book)
        for granted in self.grants:
            window, cut = granted.window, {each.lease_id for each in granted.cuts}
            starts, ends = from_below(window.starts_at), from_above(window.ends_at)
            terms = self._book.bids[granted.bid_id].terms
            calendar.note_tenant(granted.lease_id, terms.tenant_id)
            for share in granted.shares:
                for uuid in share.gpu_uuids if cut else ():
                    calendar.carve(uuid, starts, ends, cut)
                calendar.take_each(share.gpu_uuids, Taken(starts, ends, granted.lease_id))
            if gate is not None:
                gate.quotas.take(granted.lease_id, use_of_grant(self._book, granted, terms))
        return calendar, gate

    def _placed(
        self, bid: OpenBid, calendar: Calendar, gate: Gate | None, now: int
    ) -> Found | None:
        def find(wish: OpenBid) -> Found | None:
            return fit(self._book, wish, calendar, now=now)

        if gate is None:
            return find(bid)
        return gate.admit(bid, find, lease_id_of(self._round.round_id, bid))

    def _fill(self, bid: OpenBid, placement: Placement, gate: Gate | None, now: int) -> Fill:
        """Return the grant of other GPUs: at the round's price, as far as their floor allows."""
        lease_id = lease_id_of(self._round.round_id, bid)
        fill = Fill(bid, lease_id, placement, placement.floor, weight_of(bid, now=now))
        if fill.own or (gate is not None and lease_id in gate.own):
            return replace(fill, weight=0)
        price = self._late[bid.bid_id].price.nanos_per_gpu_hour
        return replace(fill, price=max(placement.floor, min(price, bid.limit)))

    # --- written down -------------------------------------------------------------------------

    def events(self) -> list[MarketEvent]:
        """Return the round with what holds of it; nothing where that decides nothing."""
        certificate, told = self._round.certificate, self._unmatched()
        assert certificate is not None
        if not self._kept and not told and not certificate.aside:
            return []
        cleared = replace(self._round, unmatched=told)
        if self._late:
            cleared = self._summed(cleared, certificate)
        return [cleared, *self.grants]

    def _unmatched(self) -> tuple[Unmatched, ...]:
        """Return the reasons that are news: of bids as they were, and of those overtaken."""
        book, granted = self._book, {each.bid_id for each in self.grants}
        told = [
            each
            for each in self._came.cleared.unmatched
            if each.bid_id in book.bids and book.bids[each.bid_id].since <= self._posed.through
        ]
        told += [Unmatched(each, OVERTAKEN) for each in self._late if each in book.bids]
        return tuple(
            each
            for each in told
            if each.bid_id not in granted and book.told.get(each.bid_id) != each.reason
        )

    def _summed(self, cleared: RoundCleared, before: Certificate) -> RoundCleared:
        """Return the round with the sums of what holds of it."""
        came = {each.lease_id: each for each in self._came.granted}
        gone = [
            part
            for part, each in zip(self._came.parts, came, strict=True)
            if self._kept.get(each) is not came[each]
        ]
        new = [
            self._parts[each]
            for each, granted in self._kept.items()
            if came.get(each) is not granted
        ]
        welfare = before.welfare_nanos + _sum(new, "worth") - _sum(gone, "worth")
        weight = before.weight_nanos + _sum(new, "weighs") - _sum(gone, "weighs")
        capped = before.capped + _sum(new, "capped") - _sum(gone, "capped")
        trades = [each for each in self.grants if not each.own]
        prices = [each.price.nanos_per_gpu_hour for each in trades]
        gpus = [sum(len(share.gpu_uuids) for share in each.shares) for each in self.grants]
        uses = [_use(each) for each in trades]
        paid = sum(price * use for price, use in zip(prices, uses, strict=True))
        return replace(
            cleared,
            grants=len(self._kept),
            gpus=sum(gpus),
            price_low=min(prices, default=0),
            price_high=max(prices, default=0),
            certificate=replace(
                before,
                welfare_nanos=welfare,
                weight_nanos=weight,
                # It is of the problem as it was posed; what came free since may be worth more.
                bound_nanos=max(before.bound_nanos, welfare + weight),
                price_mean=paid // sum(uses) if trades else 0,
                capped=max(0, capped),
            ),
        )


def _sum(parts: Sequence[Part], name: str) -> int:
    return sum(int(getattr(part, name)) for part in parts)


def _use(granted: LeaseGranted) -> int:
    """Return its GPU-milliseconds."""
    return granted.window.millis * sum(len(share.gpu_uuids) for share in granted.shares)
