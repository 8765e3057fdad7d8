"""What the engine decides on a fact and in a round, and nothing else.

The engine, a replay of what it decided and the policy lab call the same two functions, so that
the same book, moment and id give the same events. They change nothing: who calls applies what
they return to the book.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import UUID

from ledger.domain.ids import BidId, HostId, LeaseId
from marketplace.domain.book.book import Book
from marketplace.domain.book.suspension import SET_ASIDE, left_out
from marketplace.domain.clearing.bisect import LookBudget, without_culprits
from marketplace.domain.clearing.continuous import clear
from marketplace.domain.clearing.extension import decide_extension
from marketplace.domain.clearing.fills import PRESENT, Clearing, Rules, decided, told
from marketplace.domain.clearing.work_budget import BrokeOff, Watch
from marketplace.domain.facts.events import BidHandedOn, LeaseGranted, MarketEvent, RoundCleared
from marketplace.domain.facts.faults import Fault
from marketplace.domain.facts.faults import RoundUnsound as RoundUnsound
from marketplace.domain.facts.instants import from_below, moment
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.orderbook.triggers import (
    BidCame,
    ExtensionAsked,
    MoveAsked,
    ResaleCame,
    SupplyGrew,
    Trigger,
)
from marketplace.domain.preemption.fill_resale import BIDS_MAX, sell_on
from marketplace.domain.preemption.giving_way import pause_or_instead
from marketplace.domain.preemption.interrupt import preemption_for, written
from marketplace.domain.preemption.reclaim_quota import lawful, reclaim_for
from marketplace.domain.rounds.vetting import Part, vouched
from marketplace.domain.verification.cuts import faults_of_cuts
from marketplace.domain.verification.verify_round import faults


@dataclass(frozen=True, slots=True)
class Pass:
    """One decision: what it is made on, when, under which id and by which rules."""

    book: Book
    at: int
    round_id: UUID
    rules: Rules = PRESENT


Told = Callable[[BidId | None, RoundUnsound], object]
"""Told at which bids a decision breaks off, and how. None: at none of those that were looked at."""


def _nobody(bid_id: BidId | None, unsound: RoundUnsound) -> None:
    """Tell nobody."""


def on_fact(
    book: Book,
    trigger: Trigger,
    *,
    now: int,
    round_id: UUID,
    rules: Rules = PRESENT,
    tell: Told = _nobody,
) -> list[MarketEvent]:
    """Decide on what a fact may have made possible.

    now: milliseconds. tell: told which waiting bids new supply could not be offered to.
    """
    this = Pass(book, now, round_id, rules)
    match trigger:
        case BidCame(bid_id):
            return _come(this, book.bids[bid_id])
        case SupplyGrew():
            events = _supplied(this, trigger, tell)
            if not events and trigger.rests:
                events = _sold_on(this, list(book.resting())[:BIDS_MAX])
            waits_again = follow_up(book, trigger, ())
            if not events and waits_again is not None:
                return on_fact(book, waits_again, now=now, round_id=round_id, rules=rules)
            return events
        case ExtensionAsked(asked=extension):
            return [decide_extension(book, extension, now=now)]
        case MoveAsked(asked):
            return [
                BidHandedOn(
                    bid_id=asked.bid_id,
                    market=book.market,
                    to=asked.to,
                    through=book.read_to,
                    at=moment(now),
                )
            ]
        case ResaleCame():
            return _sold_on(this, considered(book, trigger))


def _supplied(this: Pass, grew: SupplyGrew, tell: Told) -> list[MarketEvent]:
    """Offer what is new on some hosts to those that wait; one that breaks off costs itself only."""
    book, hosts = this.book, grew.hosts
    looks = LookBudget(near=len(hosts), wide=len(book.offers))

    def attempt(some: Sequence[OpenBid] | None) -> list[MarketEvent]:
        looks.take(some or ())
        try:
            return _cleared(this, some, tell=False, hosts=hosts, freed=grew.freed)
        except Exception as broken:
            raise RoundUnsound(f"new supply could not be offered: {broken!r}") from broken

    try:
        return attempt(None)
    except RoundUnsound as unsound:
        waiting = book.resting(hosts)[:BIDS_MAX]
        try:
            return _without_who_breaks(waiting, attempt, looks, unsound, tell)
        finally:
            book.queue.placeless.clear()  # what it was learnt from did not all happen


def _without_who_breaks(
    waiting: Sequence[OpenBid],
    attempt: Callable[[Sequence[OpenBid]], list[MarketEvent]],
    looks: LookBudget,
    unsound: RoundUnsound,
    tell: Told,
) -> list[MarketEvent]:
    first = looks.first(waiting)
    try:
        events = attempt(first)
    except RoundUnsound as again:
        events, left_out = without_culprits(first, attempt, again, too_long=looks.over)
    else:
        tell(None, unsound)
        return events
    for bid in left_out:
        tell(bid.bid_id, unsound)
    if len(first) < len(waiting):
        # Who took no part in the search is served too, unless it breaks off there as well.
        with suppress(RoundUnsound):
            return attempt([bid for bid in waiting if bid not in left_out])
    return events


def follow_up(book: Book, trigger: Trigger | None, events: Sequence[MarketEvent]) -> BidCame | None:
    """Return what is to be looked at once decisions on a fact are in the book; None: nothing.

    A bid whose grant was refused waits again. Others may come first for what that grant gave back;
    then the bid is looked at by itself, since it may fit elsewhere or interrupt others.
    """
    if not isinstance(trigger, SupplyGrew) or trigger.again is None:
        return None
    bid = book.bids.get(trigger.again)
    if bid is None or bid.terms.patience == "patient":
        return None
    return BidCame(trigger.again)


def would_get(book: Book, bid: OpenBid, *, now: int, round_id: UUID) -> LeaseGranted | None:
    """Return what an immediate bid would be granted if it came now; the book stays as it is."""
    was = book.bids.get(bid.bid_id)
    book.bids[bid.bid_id] = bid
    try:
        events = _come(Pass(book, now, round_id), bid)
    finally:
        if was is None:
            del book.bids[bid.bid_id]
        else:
            book.bids[bid.bid_id] = was
    return next((each for each in events if isinstance(each, LeaseGranted)), None)


def _come(this: Pass, bid: OpenBid) -> list[MarketEvent]:
    """Decide on a bid that is new: what is free first, then what is for sale, or interrupted."""
    book = this.book
    reason = book.glance(bid, now=this.at)
    if reason is None:
        events = _cleared(this, [bid], tell=True)
        granted = next((each for each in events if isinstance(each, LeaseGranted)), None)
        if granted is not None:
            return _sooner(this, bid, granted) or events
    else:
        events = list(told(book, bid, reason, now=this.at, round_id=this.round_id))
    if book.quotas is None and not book.resales and not book.leases.may_go:
        return events  # as mostly: what comes now would look for these one by one
    return _sold_on(this, [bid]) or _interrupting(this, bid) or events


def _sooner(this: Pass, bid: OpenBid, granted: LeaseGranted) -> list[MarketEvent]:
    """Pause work for a bid that seeks the soonest start and would have to wait for its place."""
    soon = bid.soon(this.at)
    if not bid.seeks_soonest or from_below(granted.window.starts_at) <= soon.latest_start:
        return []
    return _pausing(this, soon)


def _sold_on(this: Pass, bids: list[OpenBid]) -> list[MarketEvent]:
    """Offer the rests of leases to bids; where there are quotas, to each whose quota allows it."""
    book, now, round_id, rules = this.book, this.at, this.round_id, this.rules
    if book.quotas is None or not book.resales:
        return sell_on(book, bids, now=now, round_id=round_id, rules=rules)
    quotas = book.quotas
    for bid in sorted(bids, key=lambda bid: quotas.goes_last(bid.terms)):
        events = sell_on(book, [bid], now=now, round_id=round_id, rules=rules)
        if events and lawful(book, events):
            return events
    return []


def _interrupting(this: Pass, bid: OpenBid) -> list[MarketEvent]:
    """Make room for a bid: pause work, or interrupt borrowers for what is its own, or at a price.

    Firm leases of borrowers only go where nothing else helps.
    """
    book, now, round_id, rules = this.book, this.at, this.round_id, this.rules
    if not rules.preemption:
        return []
    if events := _pausing(this, bid):
        return events
    plan = reclaim_for(book, bid, now=now)
    if plan is None or plan.firm:
        at_a_price = preemption_for(book, bid, now=now)
        events = written(book, bid, at_a_price, now=now, round_id=round_id, rules=rules)
        events = lawful(book, events)
        if events or plan is None:
            return events
    return written(book, bid, plan, now=now, round_id=round_id, rules=rules)


def _pausing(this: Pass, bid: OpenBid) -> list[MarketEvent]:
    """Pause work for a bid, or interrupt what goes first, where that passes the rounds' check."""
    book, now, round_id, rules = this.book, this.at, this.round_id, this.rules
    if bid.terms.patience != "immediate":
        return []
    plan = pause_or_instead(book, bid, now=now)
    events = lawful(book, written(book, bid, plan, now=now, round_id=round_id, rules=rules))
    grants = [each for each in events if isinstance(each, LeaseGranted)]
    return [] if next(faults_of_cuts(book, grants), None) else events


def considered(book: Book, trigger: Trigger | None) -> list[OpenBid]:
    """Return the bids that a clearing looks at: on a fact, or, without one, in a round."""
    match trigger:
        case None:
            return book.patient()
        case BidCame(bid_id):
            return [book.bids[bid_id]]
        case SupplyGrew(hosts=hosts):
            return book.resting(hosts)
        case ExtensionAsked() | MoveAsked():
            return []
        case ResaleCame():
            return list(book.resting())[:BIDS_MAX]


@dataclass(frozen=True, slots=True)
class Guards:
    """How long a round may take. Each is true once its time is up, and from then on.

    enough: of the search. late: of the stages around it, of which it is told the name. looking:
    of finding out at which bid a round breaks off. anew: returns guards for one more try.
    """

    enough: Callable[[], bool] | None = None
    late: Callable[[str], bool] | None = None
    looking: Callable[[], bool] = lambda: False
    anew: Callable[[], Guards] | None = None

    def again(self) -> Guards:
        return self if self.anew is None else self.anew()


def on_round(
    book: Book,
    *,
    now: int,
    round_id: UUID,
    rules: Rules = PRESENT,
    guards: Guards | None = None,
    enough: Callable[[], bool] | None = None,
    late: Callable[[str], bool] | None = None,
    steps: Mapping[str, int] | None = None,
    aside: Collection[BidId] | None = None,
    parts: dict[LeaseId, Part] | None = None,
    warn: Callable[[Sequence[Fault]], object] | None = None,
    tell: Told = _nobody,
) -> list[MarketEvent]:
    """Clear the patient bids together.

    Args:
        now: milliseconds.
        guards: how long it may take; or of these only `enough` and `late`.
        steps, aside: those of a round that is cleared again: how far it came, whom it left out.
        parts: takes what each grant is of the round's sums.
        warn: told why grants were dropped, if any were. tell: at which bids the round breaks off.

    Raises: RoundUnsound, also where the round could not be cleared or written down: whatever broke
        off is its cause.
    """
    bids = [bid for bid in book.patient() if now <= bid.lapses]
    if not bids:
        return []
    guards = guards or Guards(enough, late)
    known = left_out(book.aside, bids, now=now) if aside is None else frozenset(aside)
    tried = [bid for bid in bids if bid.bid_id not in known]

    def attempt(some: Sequence[OpenBid], under: Guards) -> tuple[list[MarketEvent], list[Fault]]:
        ids = {bid.bid_id for bid in some}
        rest = [bid for bid in bids if bid.bid_id not in ids]
        return _attempt(book, some, rest, now, round_id, rules, under, steps, parts)

    try:
        events, dropped = attempt(tried, guards)
    except RoundUnsound as unsound:
        if aside is not None:
            raise
        found: list[OpenBid] = []
        (events, dropped), found = without_culprits(
            tried,
            lambda some: attempt(some, guards.again()),
            unsound,
            suspected=book.aside,
            too_long=guards.looking,
        )
        for bid in found:
            tell(bid.bid_id, unsound)
    if dropped and warn is not None:
        warn(dropped)
    return events


def _attempt(
    book: Book,
    bids: Sequence[OpenBid],
    aside: Sequence[OpenBid],
    now: int,
    round_id: UUID,
    rules: Rules,
    guards: Guards,
    steps: Mapping[str, int] | None,
    parts: dict[LeaseId, Part] | None,
) -> tuple[list[MarketEvent], list[Fault]]:
    """Clear some bids, and say of the others that they are set aside.

    Raises: RoundUnsound.
    """
    clearing = patient_cleared(
        book,
        bids,
        now=now,
        round_id=round_id,
        guards=guards,
        steps=steps,
        interrupting=rules.preemption,
    )
    if aside and clearing.proof is not None:
        ids = tuple(sorted((bid.bid_id for bid in aside), key=str))
        clearing = replace(
            clearing,
            refused=(*aside, *clearing.refused),
            proof=replace(clearing.proof, aside=ids),
            held_back={**clearing.held_back, **dict.fromkeys(ids, SET_ASIDE)},
        )

    def write(clearing: Clearing) -> list[RoundCleared | LeaseGranted]:
        if parts is not None:
            parts.update((fill.lease_id, Part.of(fill)) for fill in clearing.fills)
        return decided(
            book,
            clearing,
            now=now,
            lane="round",
            round_id=round_id,
            tell=clearing.refused,
            watch=Watch(guards.late, steps),
        )

    return vouched(book, rules.priced(clearing), write, faults)


def patient_cleared(
    book: Book,
    bids: Iterable[OpenBid],
    *,
    now: int,
    round_id: UUID,
    guards: Guards,
    steps: Mapping[str, int] | None = None,
    interrupting: bool = True,
) -> Clearing:
    """Clear patient bids together: `batch_clearing.clear_round`, whatever happens in it.

    Raises: RoundUnsound.
    """
    # Late: most processes never clear a round, and NumPy takes its time to load.
    from marketplace.domain.rounds.batch_clearing import clear_round

    try:
        return clear_round(
            book,
            bids,
            now=now,
            round_id=round_id,
            enough=guards.enough,
            late=guards.late,
            steps=steps,
            interrupting=interrupting,
        )
    except BrokeOff as at:
        broken = at.__cause__
        raise RoundUnsound(f"it could not be cleared: {broken!r}", at.bid_id) from broken
    except Exception as broken:
        # Nothing of the book was changed: a clearing works on forks.
        raise RoundUnsound(f"it could not be cleared: {broken!r}") from broken


def _cleared(
    this: Pass,
    bids: Iterable[OpenBid] | None,
    *,
    tell: bool,
    hosts: Collection[HostId] | None = None,
    freed: Collection[HostId] | None = None,
) -> list[MarketEvent]:
    book, now, round_id = this.book, this.at, this.round_id
    clearing = clear(book, bids, now=now, round_id=round_id, hosts=hosts, freed=freed)
    clearing = this.rules.priced(clearing)
    refused = clearing.refused if tell else ()
    return list(decided(book, clearing, now=now, lane="instant", round_id=round_id, tell=refused))
