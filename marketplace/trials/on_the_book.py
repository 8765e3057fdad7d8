"""Policies tried on the book as it is, before they bind: what would change, and for whom.

The book is cleared twice by the engine's own code, as its policies are and with the others added;
nothing is written. All open bids are looked at in one pass, those that wait for a round too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID, uuid5

from ledger.access import Actor
from ledger.domain.ids import BidId, LeaseId
from ledger.domain.refusal import Invalid
from ledger.eventstore.port import EventStore, load
from listings.domain.permit_events import ListingAllowed
from listings.domain.permits import ListingPermits
from marketplace.domain.admission.gate import capacity_of
from marketplace.domain.book.book import Book
from marketplace.domain.book.quota_following import begun
from marketplace.domain.clearing.continuous import clear
from marketplace.domain.facts.instants import from_above, from_below, moment
from marketplace.domain.facts.policy_events import GovernanceEvent, UseAllowed
from marketplace.domain.governance.authority import Setter
from marketplace.domain.governance.dispatch import Policy, ruled
from marketplace.domain.preemption.interrupt import undisturbed_under, undisturbed_until
from marketplace.domain.quotas.card_units import in_gpus
from marketplace.domain.quotas.cohort_tree import Usage
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.domain.quotas.quota_book import QuotaBook
from marketplace.fairness.levels import levels_of
from marketplace.fairness.standings import sees
from marketplace.queries.books import book_of
from marketplace.trials.on_the_past import DAYS, Hindsight, looking_back, permissions
from marketplace.trials.proposed_policies import Asked

BIDS_MAX = 500
"""Open bids looked at, by price and then by age."""
POLICIES_MAX = 50
TRIALS = UUID("b1d5c0de-0000-4000-8000-0ffea4000021")
ADMITTED = "admitted"


class TrialWithoutPolicies(Invalid):
    """Name one to fifty policies to try."""


@dataclass(frozen=True, slots=True)
class BidChange:
    """An open bid that fares otherwise: `admitted`, or the reason why not."""

    bid_id: BidId
    unit: str
    gpus: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class LeaseChange:
    """A running lease that stands otherwise: `nominal`, `borrowed`, `refused` or `free`.

    gpus: as they would be counted.
    """

    lease_id: LeaseId
    unit: str
    gpu_class: str
    gpus: float
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class RunChange:
    """A running lease that other bids may interrupt sooner or later than now.

    before, after: until when they may not; None: they may already.
    """

    lease_id: LeaseId
    unit: str
    gpus: int
    before: datetime | None
    after: datetime | None


@dataclass(frozen=True, slots=True)
class QueueChange:
    """A queue before and after: its place in the order, its share, what it may still take."""

    unit: str
    place_before: int | None
    place_after: int
    share_before: float | None
    share_after: float | None
    available_before: Mapping[str, float]
    available_after: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CohortChange:
    """A cohort before and after: its turn among what stands beside it, and its share.

    None: it is not there then, or no unit stands in it.
    """

    cohort: str
    turn_before: int | None
    turn_after: int | None
    share_before: float | None
    share_after: float | None


@dataclass(frozen=True, slots=True)
class Trial:
    """What policies would change as of now. bids: how many were looked at.

    past: what they would have meant for the last days; None: nothing of them is a permission, or
    it is not for who asks to see.
    """

    at: datetime
    bids: int
    admitted_before: int
    admitted_after: int
    bid_changes: tuple[BidChange, ...]
    lease_changes: tuple[LeaseChange, ...]
    queues: tuple[QueueChange, ...]
    cohorts: tuple[CohortChange, ...] = ()
    past: Hindsight | None = None
    run_changes: tuple[RunChange, ...] = ()


def try_policies(
    store: EventStore,
    actor: Actor,
    *,
    market: str,
    policies: Sequence[Asked],
    setter: Setter,
    now: datetime,
    days: int | None = None,
) -> Trial:
    """Say what would change if these policies were set now, one after the other.

    Args:
        days: of how many last days it is told what permissions would have refused; None: seven,
            where one of the policies is a permission.

    Raises: TrialWithoutPolicies, DaysOutOfRange, and whatever setting one of them would be
        refused with.
    """
    if not 0 < len(policies) <= POLICIES_MAX:
        raise TrialWithoutPolicies(policies_max=POLICIES_MAX)
    before, after = permissions(store, market=market, policies=policies, setter=setter)
    with book_of(store, market) as book:
        proposed = begun(book) if book.quotas is None else book.quotas.copy()
        for policy in _of_governance(policies):
            for event in ruled(proposed.policies, policy, setter):
                proposed.apply(event)
        trial = _compared(book, proposed, actor, now)
    if days is None and any(isinstance(each, UseAllowed | ListingAllowed) for each in policies):
        days = DAYS
    if days is None or not actor.sees_all:
        return trial
    past = looking_back(actor, market=market, before=before, after=after, days=days, now=now)
    return replace(trial, past=past)


def recorded_by(
    store: EventStore, policies: Sequence[Asked], *, market: str, setter: Setter
) -> tuple[GovernanceEvent, ...]:
    """Return what setting these policies now, one after the other, would record for the market.

    Raises: whatever setting one of them would be refused with.
    """
    state, found = load(store, Policies, market), list[GovernanceEvent]()
    for policy in _of_governance(policies):
        for event in ruled(state, policy, setter):
            state = Policies.evolve(state, event)
            found.append(event)
    return tuple(found)


def permits_with(
    store: EventStore, policies: Sequence[Asked], *, market: str, setter: Setter
) -> ListingPermits | None:
    """Return who may list with these policies; None where none of them speaks of listing.

    Raises: whatever setting one of them would be refused with.
    """
    if not any(isinstance(each, ListingAllowed) for each in policies):
        return None
    return permissions(store, market=market, policies=policies, setter=setter)[1].listing


def _of_governance(policies: Sequence[Asked]) -> Iterator[Policy]:
    return (each for each in policies if not isinstance(each, ListingAllowed))


def _compared(book: Book, proposed: QuotaBook, actor: Actor, now: datetime) -> Trial:
    at, after_policies = from_above(now), proposed.policies or Policies()

    def shown(unit: str) -> bool:
        return actor.sees_all or sees(actor, after_policies, unit)

    before = _fates(book, book.quotas, at)
    after = _fates(book, proposed, at)
    changes = [
        BidChange(bid_id, unit, gpus, before[bid_id][2], fate)
        for bid_id, (unit, gpus, fate) in after.items()
        if before[bid_id][2] != fate and shown(unit)
    ]
    seen = [fate for unit, _, fate in after.values() if shown(unit)]
    return Trial(
        at=now,
        bids=len(seen),
        admitted_before=sum(f == ADMITTED for unit, _, f in before.values() if shown(unit)),
        admitted_after=seen.count(ADMITTED),
        bid_changes=tuple(changes),
        lease_changes=tuple(_lease_changes(book.quotas, proposed, at, shown)),
        queues=tuple(_queues(book, proposed, at, shown)),
        cohorts=tuple(_cohorts(book, proposed, at, shown)),
        run_changes=tuple(_run_changes(book, after_policies, at, shown)),
    )


def _fates(book: Book, quotas: QuotaBook | None, now: int) -> dict[BidId, tuple[str, int, str]]:
    """Clear all open bids under some quotas; return unit, GPUs and outcome of each."""
    bids = sorted(book.bids.values(), key=lambda bid: bid.price_time)[:BIDS_MAX]
    was, book.quotas = book.quotas, quotas
    try:
        clearing = clear(book, bids, now=now, round_id=uuid5(TRIALS, str(now)))
        granted = {fill.bid.bid_id for fill in clearing.fills}
        return {
            bid.bid_id: (
                str(bid.terms.subscriber_id),
                bid.gpus,
                ADMITTED
                if bid.bid_id in granted
                else clearing.held_back.get(bid.bid_id)
                or book.reason(bid, now=now, calendar=clearing.calendar)
                or "together",
            )
            for bid in bids
        }
    finally:
        # The book is lent, under its lock: it must come back as it was.
        book.quotas = was


def _lease_changes(
    was: QuotaBook | None, proposed: QuotaBook, at: int, shown: Callable[[str], bool]
) -> Iterator[LeaseChange]:
    classes = (proposed.policies or Policies()).classes
    for gpu_class in classes:
        before = {} if was is None else _outcomes(was, gpu_class, at)
        for lease_id, (unit, gpus, outcome) in _outcomes(proposed, gpu_class, at).items():
            stood = before.get(lease_id, (unit, gpus, "free"))[2]
            if stood != outcome and shown(unit):
                yield LeaseChange(lease_id, unit, gpu_class, gpus, stood, outcome)


def _outcomes(quotas: QuotaBook, gpu_class: str, at: int) -> dict[LeaseId, tuple[str, float, str]]:
    """Return how each running lease stands, taken in one by one as they began."""
    if quotas.policies is None:
        return {}
    usage = Usage(quotas.policies.tree(gpu_class, moment(at)))
    found: dict[LeaseId, tuple[str, float, str]] = {}
    for lease_id, use in sorted(quotas.uses.items(), key=lambda one: (one[1].starts, str(one[0]))):
        unit = str(use.terms.subscriber_id)
        gpus = use.of_class(gpu_class, quotas.policies.counts)
        if not gpus or not use.starts <= at < use.ends:
            continue
        bound = quotas.tree(gpu_class, unit, at) is not None
        outcome = usage.fits(unit, gpus).outcome if bound else "free"
        if bound:
            usage.take(lease_id, unit, gpus)
        found[lease_id] = (unit, in_gpus(gpus, usage.tree.unit), outcome)
    return found


def _run_changes(
    book: Book, after: Policies, at: int, shown: Callable[[str], bool]
) -> Iterator[RunChange]:
    """Yield the leases that may be interrupted for other bids, and run undisturbed otherwise."""
    if after.least_runs == book.least_runs:
        return
    for held in book.held.values():
        granted, terms = held.granted, held.bid
        if terms is None or granted.own or from_below(granted.window.starts_at) > at:
            continue
        if any(share.resold or share.source == "burst" for share in granted.shares):
            continue
        unit = str(terms.subscriber_id)
        if not shown(unit) or not (held.is_interruptible or unit in after.units):
            continue
        before = undisturbed_until(book, held)
        then = undisturbed_under(after.least_runs, granted)
        if before != then and max(before, then) > at:
            yield RunChange(
                lease_id=granted.lease_id,
                unit=unit,
                gpus=sum(len(share.gpu_uuids) for share in granted.shares),
                before=_if_to_come(before, at),
                after=_if_to_come(then, at),
            )


def _if_to_come(millis: int, at: int) -> datetime | None:
    return moment(millis) if millis > at else None


def _queues(
    book: Book, proposed: QuotaBook, at: int, shown: Callable[[str], bool]
) -> Iterator[QueueChange]:
    capacity, was = capacity_of(book.offers.values()), book.quotas
    before = {} if was is None else _order(was, capacity, at)
    for unit, (place, share) in _order(proposed, capacity, at).items():
        if shown(unit):
            place_before, share_before = before.get(unit, (None, None))
            yield QueueChange(
                unit=unit,
                place_before=place_before,
                place_after=place,
                share_before=share_before,
                share_after=share,
                available_before={} if was is None else _available(was, unit, at),
                available_after=_available(proposed, unit, at),
            )


def _cohorts(
    book: Book, proposed: QuotaBook, at: int, shown: Callable[[str], bool]
) -> Iterator[CohortChange]:
    capacity = capacity_of(book.offers.values())
    before = {} if book.quotas is None else _turns(book.quotas, capacity, at)
    after = _turns(proposed, capacity, at)
    for cohort in dict.fromkeys((*after, *before)):
        if shown(cohort):
            turn_before, share_before = before.get(cohort, (None, None))
            turn_after, share_after = after.get(cohort, (None, None))
            yield CohortChange(cohort, turn_before, turn_after, share_before, share_after)


def _turns(
    quotas: QuotaBook, capacity: Mapping[str, int], at: int
) -> dict[str, tuple[int, float | None]]:
    policies = quotas.policies or Policies()
    levels = levels_of(policies, quotas.standings(capacity, at=at), lambda node: True)
    return {
        each.node: (each.turn, None if each.share.weight_ppm <= 0 else each.share.share)
        for each in levels
        if each.is_cohort
    }


def _order(
    quotas: QuotaBook, capacity: Mapping[str, int], at: int
) -> dict[str, tuple[int, float | None]]:
    units = (quotas.policies or Policies()).units
    ordered = [each for each in quotas.shares(capacity, at=at) if each.node in units]
    return {
        each.node: (number, None if each.weight_ppm <= 0 else each.share)
        for number, each in enumerate(ordered, 1)
    }


def _available(quotas: QuotaBook, unit: str, at: int) -> dict[str, float]:
    """Return how many GPUs of each class that binds it a unit could take more."""
    found = dict[str, float]()
    for gpu_class in (quotas.policies or Policies()).classes:
        usage = quotas.usage(gpu_class, at)
        if usage is not None and quotas.tree(gpu_class, unit, at) is not None:
            found[gpu_class] = in_gpus(max(0, usage.available(unit)[0]), usage.tree.unit)
    return found
