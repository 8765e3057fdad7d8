"""A firm bid that nothing free can serve takes capacity from interruptible leases.

Planned on a copy of the calendar before anybody is told: which leases go, when, and where the bid
then starts. The plan is one grant that names the leases it cuts, so what was planned is what
happens, and the capacity of the interrupted goes to nobody else in between.

Who takes part and who is safe:
- the bid is reserved or on-demand and was refused by what is free: at once if it is immediate, and
  if it is patient by a round (`preemption_pass`), which tries few bids, those worth the most;
- the lease is interruptible, runs for the least running time of its GPUs before it has to stop (a
  policy, as it is when this is decided: `minimum_runtime`), stops while the bid can still start,
  and is not reclaimed, for sale, bought, rented, or over within its notice anyway. An interrupted
  lease ends, and the next one of its consumer has this time of its own: so nobody is driven from
  place to place faster than that;
- the work has the notice that its owner promised for a reclaim, and is compensated as by one;
- nobody earns less: the bid pays the lowest price, within its limit, at which what it pays on the
  interrupted GPUs covers what their leases would still have paid, and the compensation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from ledger.domain.ids import HostId, LeaseId
from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.domain.book.book import Book
from marketplace.domain.book.held_leases import Held
from marketplace.domain.clearing.fills import Clearing, Fill, Rules, decided, lease_id_of
from marketplace.domain.clearing.own_supply_first import others
from marketplace.domain.facts.events import Cut, LeaseGranted, MarketEvent, Share
from marketplace.domain.facts.instants import (
    ONE_MILLI,
    SECOND,
    Millis,
    from_below,
    moment,
    whole_second,
)
from marketplace.domain.leases.reclaim_schedule import compensation, least_notice
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import Placement, place
from marketplace.domain.preemption.fill_resale import cut_short
from marketplace.domain.quotas.minimum_runtime import LeastRuns

VICTIMS_MAX = 64
"""Leases tried for one bid, those with least to lose first."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A lease that may be interrupted. loses: what its consumer and owners lose, in nano-units."""

    held: Held
    stop: Millis
    loses: int

    @property
    def lease_id(self) -> LeaseId:
        return self.held.granted.lease_id


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a bid goes once these leases are interrupted, each in its way, and at what price.

    because: they end, or are paused: then their work goes on later.
    """

    placement: Placement
    price: int
    victims: tuple[Victim, ...]
    because: Literal["interrupted", "paused"] = "interrupted"

    @property
    def cuts(self) -> tuple[Cut, ...]:
        return tuple(Cut(each.lease_id, moment(each.stop), self.because) for each in self.victims)


def preemption_for(book: Book, bid: OpenBid, *, now: int) -> Plan | None:
    """Plan whom to interrupt for an immediate firm bid; None: nobody, or to no avail."""
    if bid.terms.service_class == "interruptible" or bid.terms.patience != "immediate":
        return None
    return plan_for(book, bid, now=now) if book.leases.interruptible else None


def written(
    book: Book, bid: OpenBid, plan: Plan | None, *, now: int, round_id: UUID, rules: Rules
) -> list[MarketEvent]:
    """Write a plan down: one grant, which cuts the leases that go for it; nothing without one."""
    if plan is None:
        return []
    fill = Fill(bid, lease_id_of(round_id, bid), plan.placement, plan.price, cuts=plan.cuts)
    clearing = rules.priced(Clearing((fill,), (), without(book.calendar, plan.victims)))
    return [*decided(book, clearing, now=now, lane="instant", round_id=round_id, tell=())]


def plan_for(
    book: Book,
    bid: OpenBid,
    *,
    now: int,
    calendar: Calendar | None = None,
    spared: Collection[LeaseId] = (),
) -> Plan | None:
    """Plan the interruption of as few leases as possible, those with least to lose first.

    Args:
        calendar: in place of the book's own. spared: leases that are not interrupted.

    Leases are added until the bid can be placed, then taken out again where it still can be
    without: what is left is minimal, no part of it would do.
    """
    chosen: list[Victim] = []
    entries = list(others(book, bid, book.entries(bid.shape)))
    hosts = {entry.listed.terms.host_id for entry in entries if entry.floor <= bid.limit}
    found, calendar = None, calendar or book.calendar
    for victim in sorted(
        (
            each
            for each in victims_of(book, bid, now=now, hosts=hosts)
            if each.lease_id not in spared
        ),
        key=lambda each: (each.loses, str(each.lease_id)),
    )[:VICTIMS_MAX]:
        chosen.append(victim)
        found = place(bid, entries, without(calendar, chosen), now=now)
        if found is not None:
            break
    if found is None:
        return None
    for victim in list(reversed(chosen)):
        fewer = [each for each in chosen if each is not victim]
        placed = place(bid, entries, without(calendar, fewer), now=now)
        if placed is not None:
            chosen, found = fewer, placed
    price = _price(bid, found, chosen) if chosen else None
    if price is None:
        return None
    return Plan(found, price, tuple(chosen))


def victims_of(book: Book, bid: OpenBid, *, now: int, hosts: Iterable[HostId]) -> Iterator[Victim]:
    """Yield the leases on these hosts that may be interrupted for a bid."""
    for held in book.leases.interruptible_on(hosts):
        terms = held.bid
        if terms is None or terms.service_class != "interruptible":
            continue
        if terms.tenant_id == bid.terms.tenant_id:
            continue
        stop = stop_for(book, held, bid, now=now)
        if stop is not None:
            worth = held.granted.price.charge((held.ends - stop) * _gpus_of(held)).nanos
            paid = compensation_of(held, held.granted.shares, stop=stop, now=now)
            yield Victim(held, stop, worth + paid)


def stop_for(book: Book, held: Held, bid: OpenBid, *, now: int) -> Millis | None:
    """Return when a lease would have to stop for a bid; None: it may not be touched.

    None also of what stops too late for the bid: it makes no room for it in time.
    """
    granted = held.granted
    if held.reclaimed_by is not None or held.claim or granted.lease_id in book.resales:
        return None
    if granted.own or any(share.resold or share.source == "burst" for share in granted.shares):
        return None
    needed = min(bid.earliest_on(each.host_id, bid.earliest) for each in granted.shares)
    stop = whole_second(max(first_stop(book, held, now=now), needed))
    runs = from_below(granted.window.starts_at) <= now and stop < held.ends
    return stop if runs and stop <= bid.least.latest_start else None


def first_stop(book: Book, held: Held, *, now: int) -> int:
    """Return the first moment at which a lease that is told now may have to stop."""
    notice = least_notice(held.granted.shares) // ONE_MILLI
    return max(now + notice, undisturbed_until(book, held))


def undisturbed_until(book: Book, held: Held) -> int:
    """Return when a lease has run for so long that it may be interrupted for another bid."""
    return undisturbed_under(book.least_runs, held.granted)


def undisturbed_under(runs: LeastRuns, granted: LeaseGranted) -> int:
    """Return the same under a policy that need not be in force."""
    return from_below(granted.window.starts_at) + runs.of(granted.gpu_model) * SECOND


def compensation_of(held: Held, shares: Sequence[Share], *, stop: int, now: int) -> int:
    """Return what the owners of some shares owe for a lease that is told now, in nano-units."""
    granted = held.granted
    return compensation(
        shares,
        granted.price,
        starts_at=granted.window.starts_at,
        ends_at=moment(held.ends),
        asked_at=moment(now),
        stop_at=moment(stop),
    ).nanos


def _gpus_of(held: Held) -> int:
    return sum(len(share.gpu_uuids) for share in held.granted.shares)


def without(calendar: Calendar, victims: Iterable[Victim]) -> Calendar:
    """Return the calendar as it would be once these leases have stopped."""
    fork = calendar.fork()
    for victim in victims:
        cut_short(fork, victim.held, victim.stop)
    return fork


def _price(bid: OpenBid, placement: Placement, victims: Iterable[Victim]) -> int | None:
    """Return the lowest price per GPU-hour that covers what the interrupted lose; None: too high.

    Only what it pays on their own GPUs counts, not what it pays for GPUs that were free anyway.
    """
    loses, uuids = 0, set[str]()
    for victim in victims:
        loses += victim.loses
        for share in victim.held.granted.shares:
            uuids.update(share.gpu_uuids)
    taken = sum(uuid in uuids for _, uuid in placement.gpus)
    covering = -(-loses * MILLIS_PER_HOUR // (taken * bid.duration))
    price = max(placement.floor, covering)
    return price if price <= bid.limit else None
