"""A bid within its nominal quota takes back, inside its cohort, what others have borrowed.

Planned on copies of the calendar and of the quotas before anybody is told: which leases of
borrowers go, when, and where the bid then starts, within its own quota over its whole window. The
plan is one grant that names the leases it cuts, so what was planned is what happens.

Who takes part and who is safe:
- the bid is firm, was refused by what is free, and fits its own nominal quota: at once if it is
  immediate; if it is patient, in the last rounds in which those that go can still be told in time;
- the lease is of a unit of the same outermost cohort that uses more than its quota, runs, is not
  reclaimed, for sale, bought, rented, its owner's own use, or over within its notice anyway, and
  has run the least running time of its GPUs by when it has to stop. Interruptible ones go first,
  then the newest, no more than needed;
- the work has the notice that its owner promised for a reclaim, and is compensated as by one;
- the bid pays the transfer price and, within its limit, what compensations cost on top: every
  owner still earns its floor. Whose GPUs the bid does not get pays no compensation for it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ledger.domain.ids import LeaseId, TenantId
from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.domain.admission.gate import LATER_MAX, use_of
from marketplace.domain.book.book import Book
from marketplace.domain.book.held_leases import Held
from marketplace.domain.book.quota_following import use_of_grant
from marketplace.domain.clearing.own_supply_first import others
from marketplace.domain.facts.events import LeaseGranted, MarketEvent
from marketplace.domain.facts.instants import from_above, from_below, whole_second
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.listed_offer import Entry
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import Placement, place
from marketplace.domain.preemption.interrupt import (
    VICTIMS_MAX,
    Plan,
    Victim,
    compensation_of,
    first_stop,
    stop_for,
    without,
)
from marketplace.domain.quotas.card_units import ANY_CLASS, size_in
from marketplace.domain.quotas.cohort_tree import Usage
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.domain.quotas.quota_book import QuotaBook
from marketplace.domain.quotas.reclaim_candidates import Planner, Running
from marketplace.domain.quotas.use import FOREVER, Use

LEAD = 30 * 60_000
"""How long before it would be too late, in milliseconds, a patient bid takes back its own. It is
about how often rounds come, not about how long leases run: another least running time leaves it."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A book with what a clearing has decided so far. spared: leases that it has cut already."""

    book: Book
    calendar: Calendar
    quotas: QuotaBook
    at: int
    spared: Collection[LeaseId] = ()


@dataclass(frozen=True, slots=True)
class Reclaim(Plan):
    """A plan that takes back borrowed quota of one class. firm: if any lease of it is."""

    gpu_class: str = ANY_CLASS

    @property
    def firm(self) -> bool:
        """Tell if anybody goes who was not told that the market may interrupt."""
        return not all(each.held.is_interruptible for each in self.victims)


def reclaim_for(book: Book, bid: OpenBid, *, now: int) -> Reclaim | None:
    """Plan whom to interrupt so that a bid gets what is its own; None: nobody, or to no avail."""
    if book.quotas is None or bid.terms.patience != "immediate":
        return None
    return _plan(Standing(book, book.calendar, book.quotas, now), bid)


def reclaim_in_round(standing: Standing, bid: OpenBid) -> Reclaim | None:
    """Plan the same for a patient bid, once it cannot wait longer; None also where it can.

    It waits for what may become free, until half an hour before those that would go would have to
    be told at the latest: by then some rounds are left.
    """
    plan = _plan(standing, bid)
    if plan is None:
        return None
    book, now = standing.book, standing.at
    told = max(first_stop(book, each.held, now=now) for each in plan.victims)
    return plan if bid.latest_start - told < LEAD else None


def may_be_at_risk(standing: Standing, bids: Iterable[OpenBid]) -> list[OpenBid]:
    """Return the firm bids of units with a quota that may not be able to wait, by last chance."""
    policies, now = standing.quotas.policies, standing.at
    if policies is None:
        return []
    bound = [
        bid
        for bid in bids
        if str(bid.terms.subscriber_id) in policies.units
        and bid.terms.service_class != "interruptible"
    ]
    held = standing.book.held.values() if bound else ()
    running = (each for each in held if from_below(each.granted.window.starts_at) <= now)
    stops = sorted(first_stop(standing.book, each, now=now) for each in running)

    def is_urgent(bid: OpenBid) -> bool:
        """Tell if the last that could stop in time for it would soon have to be told."""
        in_time = bisect_right(stops, bid.least.latest_start)
        return bool(in_time) and bid.latest_start - stops[in_time - 1] < LEAD

    urgent = filter(is_urgent, bound)
    return sorted(urgent, key=lambda bid: (bid.latest_start, bid.price_time))


def _plan(standing: Standing, bid: OpenBid) -> Reclaim | None:
    policies = standing.quotas.policies
    unit, service = str(bid.terms.subscriber_id), bid.terms.service_class
    if policies is None or service == "interruptible" or unit not in policies.units:
        return None
    book, gpus = standing.book, bid.gpus
    # Who uses up its own takes nothing back; mostly there is nothing more to look at.
    classes = [
        gpu_class
        for gpu_class in policies.classes
        if standing.quotas.has_own_left(gpu_class, unit, gpus, standing.at)
    ]
    if not classes:
        return None
    entries = [
        entry for entry in others(book, bid, book.entries(bid.shape)) if entry.floor <= bid.limit
    ]
    # What speaks of one class before what speaks of any: its quota is the nearer one.
    for gpu_class in sorted(classes, key=lambda each: each == ANY_CLASS):
        found = _Attempt(standing, bid, entries, gpu_class).plan()
        if found is not None:
            return found
    return None


class _Attempt:
    """One bid's try to take back what is borrowed of one class."""

    def __init__(
        self, standing: Standing, bid: OpenBid, entries: Sequence[Entry], gpu_class: str
    ) -> None:
        self._standing, self._bid, self._entries = standing, bid, entries
        self._book, self._quotas, self._now = standing.book, standing.quotas, standing.at
        self._gpu_class, self._node = gpu_class, str(bid.terms.subscriber_id)
        self._policies = self._quotas.policies or Policies()
        self._victims: dict[LeaseId, Victim] = {}
        models = {gpu.model for entry in entries for gpu in entry.listed.terms.gpus}
        sizes = [size_in(gpu_class, model, self._policies.counts) for model in models]
        # What it gets may count as more: that is asked where a place for it is found.
        self._least = bid.gpus * min((size for size in sizes if size), default=0)

    def plan(self) -> Reclaim | None:
        """Return who goes and where the bid comes; None: there is no lawful way that helps."""
        tree = self._quotas.tree(self._gpu_class, self._node, self._now)
        usage = self._quotas.usage(self._gpu_class, self._now)
        if not self._least or tree is None or usage is None:
            return None
        if usage.used(self._node) + self._least > tree.subtree[self._node]:
            return None
        for lease_id in self._quotas.uses:
            held = self._book.held.get(lease_id)
            if lease_id in self._standing.spared or (held is not None and _is_cut(held)):
                usage.release(lease_id)  # it stops soon: its unit gives back no more for it
        self._victims = dict(self._may_go())
        # The newest first; where that costs more than the limit, those that cost least.
        return self._planned(usage.copy(), by_cost=False) or self._planned(usage, by_cost=True)

    def _planned(self, usage: Usage, *, by_cost: bool) -> Reclaim | None:
        running = sorted(self._running(by_cost=by_cost), key=lambda each: each.order)
        planner = Planner(usage, running[:VICTIMS_MAX])
        plan = planner.plan(
            self._bid.bid_id,
            self._node,
            self._least,
            priority=0,
            now=self._now,
            placeable=self._placeable,
        )
        if plan is None or not plan.victims:
            return None
        victims = tuple(self._victims[each.lease_id] for each in plan.victims)
        placement = self._placed(victims)
        assert placement is not None, "the planner asked for it"
        price = _price(self._bid, placement, victims, self._now)
        if price is None:
            return None
        return Reclaim(placement, price, victims, gpu_class=self._gpu_class)

    def _may_go(self) -> Iterator[tuple[LeaseId, Victim]]:
        for lease_id, use in self._quotas.uses.items():
            held = self._book.held.get(lease_id)
            unit = str(use.terms.subscriber_id)
            # Whom no policy puts anywhere borrows from nobody.
            stranger = unit not in self._policies.units
            spared = unit == self._node or stranger or lease_id in self._standing.spared
            if held is not None and not spared and self._size(use):
                stop = stop_for(self._book, held, self._bid, now=self._now)
                if stop is not None:
                    owed = sum(_owed(held, stop, self._now).values())
                    yield lease_id, Victim(held, stop, owed)

    def _running(self, *, by_cost: bool) -> Iterator[Running]:
        for lease_id, victim in self._victims.items():
            use = self._quotas.uses[lease_id]
            yield Running(
                lease_id=lease_id,
                node=str(use.terms.subscriber_id),
                gpus=self._size(use),
                priority=victim.loses if by_cost else 0,
                firm=not victim.held.is_interruptible,
                since=use.starts,
            )

    def _size(self, use: Use) -> int:
        return use.of_class(self._gpu_class, self._policies.counts)

    def _placeable(self, gone: Sequence[LeaseId]) -> bool:
        return self._placed([self._victims[lease_id] for lease_id in gone]) is not None

    def _placed(self, victims: Sequence[Victim]) -> Placement | None:
        """Find where the bid goes, within its own quota at every moment, once these have gone."""
        calendar: Calendar = without(self._standing.calendar, victims)
        quotas, wish = self._quotas.fork(), self._bid
        for victim in victims:
            quotas.extend(victim.lease_id, victim.stop)
        for _ in range(LATER_MAX):
            placement = place(wish, self._entries, calendar, now=self._now)
            if placement is None:
                return None
            answer = quotas.check(use_of(wish, placement), borrowing=False)
            if answer.outcome == "nominal":
                return placement
            if answer.fits or answer.again >= FOREVER:
                return None
            later = whole_second(max(answer.again, placement.starts + 1))
            wish = replace(self._bid, earliest=later)
        return None


def _is_cut(held: Held) -> bool:
    """Tell if a lease ends sooner than it was granted for."""
    return held.ends < from_below(held.granted.window.ends_at)


def _owed(held: Held, stop: int, now: int) -> Counter[TenantId]:
    """Return what each owner would owe the consumer, in nano-units."""
    owed = Counter[TenantId]()
    for share in held.granted.shares:
        owed[share.owner_id] += compensation_of(held, [share], stop=stop, now=now)
    return owed


def _price(bid: OpenBid, placement: Placement, victims: Sequence[Victim], now: int) -> int | None:
    """Return the transfer price with what compensations cost on top; None: above the limit.

    None also where an owner would pay a compensation and has no part in the new lease.
    """
    gpus = Counter(listed.terms.tenant_id for listed, _ in placement.gpus)
    owed = Counter[TenantId]()
    for victim in victims:
        owed.update(_owed(victim.held, victim.stop, now))
    on_top = 0
    for owner_id, nanos in owed.items():
        if nanos and not gpus[owner_id]:
            return None
        if nanos:
            part = -(-nanos * MILLIS_PER_HOUR // (gpus[owner_id] * bid.duration))
            on_top = max(on_top, part)
    price = placement.floor + on_top
    return price if price <= bid.limit else None


def lawful(book: Book, events: list[MarketEvent]) -> list[MarketEvent]:
    """Return decisions only if their grants, with what they cut, fit every quota and limit."""
    if book.quotas is None:
        return events
    quotas = book.quotas.fork()
    for event in events:
        bid = book.bids.get(event.bid_id) if isinstance(event, LeaseGranted) else None
        if bid is None or not isinstance(event, LeaseGranted):
            continue
        for cut in event.cuts:
            quotas.extend(cut.lease_id, from_above(cut.ends_at))
        use = use_of_grant(book, event, bid.terms)
        if not quotas.check(use).fits:
            return []
        quotas.take(event.lease_id, use)
    return events
