"""A bid that nothing free can serve has work paused that has had its firm time.

Planned on a copy of the calendar, as interruptions are (`interrupt`): the plan is one grant that
names the leases it cuts, so what was planned is what happens. The work of such a lease saves itself
within the notice; the lease is over, and the rest is a bid of its own, which goes on as soon as
there is room (`leases/renewals`, `bids/pausing`).

Who takes part:
- who has work paused was refused by what is free, and it is a bid that cannot be paused itself and
  is reserved or on-demand; or one whose work has not had its firm time yet; or the rest of paused
  work that is due. So no two pieces of work can pause one another in turn: whoever is paused for
  another's firm time has had its own, and has others paused only once it is due.
- whose work is paused lets the market do so. It has had the market's firm time since it first
  began, and in this lease the least running time of its GPUs; it has its owners' notice.
- by all that is known it is done in time: its rest has a place by its deadline, behind the bid that
  it makes room for, and an hour to spare.
- nobody earns less: the bid pays at least what the paused paid on their GPUs. Nobody is
  compensated: whoever lets its work be paused may have others paused in its own firm time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from ledger.domain.ids import HostId, LeaseId
from marketplace.domain.bids.pausing import done_before, finish_by
from marketplace.domain.book.book import Book
from marketplace.domain.book.held_leases import Held
from marketplace.domain.clearing.own_supply_first import others
from marketplace.domain.facts.instants import SECOND, Millis, from_below, whole_second
from marketplace.domain.orderbook.calendar import Calendar, Taken
from marketplace.domain.orderbook.listed_offer import Entry
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import Placement, place
from marketplace.domain.preemption.interrupt import (
    VICTIMS_MAX,
    Plan,
    Victim,
    first_stop,
    stop_for,
    without,
)

HOSTS_MAX = 256
"""Hosts that are compared for one bid, those first where work can stop soonest."""
REST_MIN = timedelta(minutes=5) // timedelta(milliseconds=1)
"""What is left of a lease of which the work is paused, at least, in ms: else it is done anyway."""
TO_SPARE = timedelta(hours=1) // timedelta(milliseconds=1)
"""So much longer than its rest takes paused work has until its deadline, at least, in ms."""


def pause_for(
    book: Book,
    bid: OpenBid,
    *,
    now: int,
    calendar: Calendar | None = None,
    spared: Collection[LeaseId] = (),
) -> Plan | None:
    """Plan whose work to pause so that a bid finds room; None: nobody's, or to no avail.

    Args:
        calendar: in place of the book's own. spared: leases that are not touched.
    """
    if not book.leases.pausable or not may_have_paused(book, bid):
        return None
    entries = [
        each for each in others(book, bid, book.entries(bid.shape)) if each.floor <= bid.limit
    ]
    hosts = {entry.listed.terms.host_id for entry in entries}
    victims = [
        each
        for each in _victims_of(book, bid, hosts, now=now)
        if each.lease_id not in spared and each.held.granted.price.nanos_per_gpu_hour <= bid.limit
    ]
    if not victims:
        return None
    search = _Search(book, bid, entries, calendar or book.calendar, now)
    plan = search.on_one_host(victims) if bid.terms.placement == "same-host" else None
    if bid.terms.placement != "same-host":
        plan = search.planned(victims[:VICTIMS_MAX], entries)
    return plan if plan is not None and search.all_return(plan) else None


def may_have_paused(book: Book, bid: OpenBid) -> bool:
    """Tell if others may be paused for a bid."""
    terms = bid.terms
    if not terms.pausable:
        return terms.service_class != "interruptible"
    return bid.due or done_before(terms) < book.least_runs.firm_seconds


def firm_until(book: Book, held: Held) -> int:
    """Return by when the work of a lease has had its firm time, and the lease its least time."""
    assert held.bid is not None
    starts = from_below(held.granted.window.starts_at)
    left = book.least_runs.firm_seconds - done_before(held.bid)
    return starts + max(book.least_runs.of(held.granted.gpu_model), left) * SECOND


def _victims_of(book: Book, bid: OpenBid, hosts: Collection[HostId], *, now: int) -> list[Victim]:
    """Return the leases whose work may be paused for a bid, in the order in which it is tried."""
    found = []
    for held in book.leases.pausable_on(hosts):
        earliest = max(firm_until(book, held), first_stop(book, held, now=now))
        stop = stop_for(book, held, bid, now=now)
        if stop is None or held.bid is None:
            continue
        stop = max(stop, whole_second(earliest))
        in_time = stop <= bid.least.latest_start and stop + REST_MIN <= held.ends
        if in_time and spare(held, stop) >= TO_SPARE:
            found.append(Victim(held, stop, _gpus_of(held)))
    # Soonest first, then as few GPUs as will do, then who has most time to spare.
    found.sort(
        key=lambda each: (
            each.stop,
            each.loses,
            -spare(each.held, each.stop),
            str(each.lease_id),
        )
    )
    return found


def spare(held: Held, stop: int) -> int:
    """Return how much longer than its rest a lease's work has, if it stops then, in ms."""
    assert held.bid is not None
    return from_below(finish_by(held.bid)) - stop - rest_of(held, stop)


def rest_of(held: Held, stop: int) -> int:
    """Return what is left of a lease's work, with what it loses when it stops, in ms."""
    assert held.bid is not None
    return held.ends - stop + (held.bid.workload.checkpoint_seconds or 0) * SECOND


class _Search:
    """Looks for the place of one bid among what may be paused."""

    def __init__(
        self, book: Book, bid: OpenBid, entries: Sequence[Entry], calendar: Calendar, now: int
    ) -> None:
        self._book, self._bid, self._entries = book, bid, entries
        self._calendar, self._now = calendar, now

    def on_one_host(self, victims: Sequence[Victim]) -> Plan | None:
        """Return the plan of the host where the bid begins first and the fewest GPUs stop."""
        best: tuple[tuple[int, int], Plan] | None = None
        for host_id, there in _by_host(victims):
            soonest = max(self._bid.earliest, there[0].stop)
            if best is not None and best[0][0] < soonest:
                break  # nowhere from here on does it begin sooner
            entries = [each for each in self._entries if each.listed.terms.host_id == host_id]
            plan = self.planned(there[:VICTIMS_MAX], entries)
            if plan is None:
                continue
            stopped = sum(each.loses for each in plan.victims)
            key = (plan.placement.starts, stopped)
            if best is None or key < best[0]:
                best = key, plan
            if key == (soonest, self._bid.gpus):
                break  # no fewer would do
        return None if best is None else best[1]

    def planned(self, victims: Sequence[Victim], entries: Sequence[Entry]) -> Plan | None:
        """Pause one after the other until the bid has a place, then let go on who need not stop."""
        if self._placed(victims, entries) is None:
            return None
        chosen, found = list[Victim](), None
        for victim in victims:
            chosen.append(victim)
            found = self._placed(chosen, entries)
            if found is not None:
                break
        assert found is not None, "it has a place where all of them stop"
        for victim in list(reversed(chosen)):
            fewer = [each for each in chosen if each is not victim]
            placed = self._placed(fewer, entries)
            if placed is not None:
                chosen, found = fewer, placed
        if not chosen:
            return None
        paid = max(each.held.granted.price.nanos_per_gpu_hour for each in chosen)
        price = max(found.floor, paid)
        return Plan(found, price, tuple(chosen), "paused") if price <= self._bid.limit else None

    def all_return(self, plan: Plan) -> bool:
        """Tell if each of those that are paused has a place for its rest by its deadline."""
        calendar = without(self._calendar, plan.victims)
        starts = plan.placement.starts
        span = Taken(starts, Millis(starts + self._bid.duration), None)
        for _, uuid in plan.placement.gpus:
            calendar.take(uuid, span)
        for victim in plan.victims:
            rest = _rest_as_bid(victim)
            entries = others(self._book, rest, self._book.entries(rest.shape))
            found = place(rest, entries, calendar, now=self._now)
            if found is None:
                return False
            again = Taken(found.starts, Millis(found.starts + rest.duration), None)
            for _, uuid in found.gpus:
                calendar.take(uuid, again)
        return True

    def _placed(self, victims: Sequence[Victim], entries: Sequence[Entry]) -> Placement | None:
        return place(self._bid, entries, without(self._calendar, victims), now=self._now)


def _rest_as_bid(victim: Victim) -> OpenBid:
    """Return what asks for the rest of paused work, as the market will when it cannot wait."""
    held = victim.held
    assert held.bid is not None
    gpus, rest = _gpus_of(held), whole_second(rest_of(held, victim.stop))
    asked = OpenBid.of(held.bid, since=0)
    return replace(
        asked.sized(gpus, rest),
        gpus_min=gpus,
        duration_min=rest,
        earliest=Millis(victim.stop),
        deadline=from_below(finish_by(held.bid)),
        due=True,
    )


def _gpus_of(held: Held) -> int:
    return sum(len(share.gpu_uuids) for share in held.granted.shares)


def _by_host(victims: Sequence[Victim]) -> Iterator[tuple[HostId, list[Victim]]]:
    """Yield the leases of each host in order, those hosts first where one stops soonest."""
    there: dict[HostId, list[Victim]] = {}
    for victim in victims:
        for host_id in dict.fromkeys(share.host_id for share in victim.held.granted.shares):
            there.setdefault(host_id, []).append(victim)
    yield from list(there.items())[:HOSTS_MAX]
