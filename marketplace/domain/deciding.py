"""What the engine decides on a fact and in a round, and nothing else.

The engine, a replay of what it decided and the policy lab call the same two functions, so that
the same book, moment and id give the same events. They change nothing: who calls applies what
they return to the book.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from ledger.domain.ids import HostId
from marketplace.domain.book import Book
from marketplace.domain.clearing import clear
from marketplace.domain.demand import OpenBid
from marketplace.domain.events import BidHandedOn, LeaseGranted, MarketEvent, RoundCleared
from marketplace.domain.extensions import decide_extension
from marketplace.domain.faults import Fault
from marketplace.domain.fills import Clearing
from marketplace.domain.moments import moment
from marketplace.domain.preemption import preempt
from marketplace.domain.quota_reclaim import lawful, reclaim_for, reclaimed
from marketplace.domain.rules import PRESENT, Rules
from marketplace.domain.selling_on import BIDS_MAX, sell_on
from marketplace.domain.triggers import (
    BidCame,
    ExtensionAsked,
    MoveAsked,
    ResaleCame,
    SupplyGrew,
    Trigger,
)
from marketplace.domain.verification import faults
from marketplace.domain.vouching import RoundUnsound as RoundUnsound
from marketplace.domain.vouching import vouched
from marketplace.domain.written import decided, told


def on_fact(
    book: Book, trigger: Trigger, *, now: int, round_id: UUID, rules: Rules = PRESENT
) -> list[MarketEvent]:
    """Decide on what a fact may have made possible. now: milliseconds."""
    if not book.hurries:
        book.hurry()
    match trigger:
        case BidCame(bid_id):
            return _come(book, book.bids[bid_id], now, round_id, rules)
        case SupplyGrew(hosts):
            return _cleared(book, None, now, round_id, rules, tell=False, hosts=hosts)
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
            return _sold_on(book, considered(book, trigger), now, round_id, rules)


def _come(book: Book, bid: OpenBid, now: int, round_id: UUID, rules: Rules) -> list[MarketEvent]:
    """Decide on a bid that is new: what is free first, then what is for sale, or interrupted."""
    reason = book.glance(bid, now=now)
    if reason is None:
        events = _cleared(book, [bid], now, round_id, rules, tell=True)
        if any(isinstance(event, LeaseGranted) for event in events):
            return events
    else:
        events = list(told(book, bid, reason, now=now, round_id=round_id))
    return (
        _sold_on(book, [bid], now, round_id, rules)
        or _interrupting(book, bid, now, round_id, rules)
        or events
    )


def _sold_on(
    book: Book, bids: list[OpenBid], now: int, round_id: UUID, rules: Rules
) -> list[MarketEvent]:
    """Offer the rests of leases to bids; where there are quotas, to each whose quota allows it."""
    if book.quotas is None or not book.resales:
        return sell_on(book, bids, now=now, round_id=round_id, rules=rules)
    for bid in bids:
        events = sell_on(book, [bid], now=now, round_id=round_id, rules=rules)
        if events and lawful(book, events):
            return events
    return []


def _interrupting(
    book: Book, bid: OpenBid, now: int, round_id: UUID, rules: Rules
) -> list[MarketEvent]:
    """Interrupt for a bid: borrowers for what is its own, or interruptible leases at a price.

    Firm leases of borrowers only go where nothing else helps.
    """
    if not rules.preemption:
        return []
    plan = reclaim_for(book, bid, now=now)
    if plan is None or plan.firm:
        events = lawful(book, preempt(book, bid, now=now, round_id=round_id, rules=rules))
        if events or plan is None:
            return events
    return reclaimed(book, bid, plan, now=now, round_id=round_id, rules=rules)


def considered(book: Book, trigger: Trigger | None) -> list[OpenBid]:
    """Return the bids that a clearing looks at: on a fact, or, without one, in a round."""
    match trigger:
        case None:
            return book.patient()
        case BidCame(bid_id):
            return [book.bids[bid_id]]
        case SupplyGrew(hosts):
            return book.resting(hosts)
        case ExtensionAsked() | MoveAsked():
            return []
        case ResaleCame():
            return list(book.resting())[:BIDS_MAX]


def on_round(
    book: Book,
    *,
    now: int,
    round_id: UUID,
    rules: Rules = PRESENT,
    enough: Callable[[], bool] | None = None,
    late: Callable[[str], bool] | None = None,
    steps: Mapping[str, int] | None = None,
    warn: Callable[[Sequence[Fault]], object] | None = None,
) -> list[MarketEvent]:
    """Clear the patient bids together.

    Args:
        now: milliseconds.
        enough: true once time for the search is up; late: once it is for the stages around it,
            of which it is told the name.
        steps: those of a round that is cleared again.
        warn: told why grants were dropped, if any were.

    Raises: RoundUnsound, also where the round could not be cleared or written down: whatever broke
        off is its cause.
    """
    bids = [bid for bid in book.patient() if now <= bid.lapses]
    if not bids:
        return []
    clearing = patient_cleared(
        book,
        bids,
        now=now,
        round_id=round_id,
        enough=enough,
        late=late,
        steps=steps,
        interrupting=rules.preemption,
    )

    def write(clearing: Clearing) -> list[RoundCleared | LeaseGranted]:
        tell = clearing.refused
        return decided(book, clearing, now=now, lane="round", round_id=round_id, tell=tell)

    events, dropped = vouched(book, rules.priced(clearing), write, faults)
    if dropped and warn is not None:
        warn(dropped)
    return events


def patient_cleared(book: Book, bids: Iterable[OpenBid], **said: Any) -> Clearing:
    """Clear patient bids together: `rounds.clear_round`, whatever happens in it.

    Raises: RoundUnsound.
    """
    # Late: most processes never clear a round, and NumPy takes its time to load.
    from marketplace.domain.rounds import clear_round

    try:
        return clear_round(book, bids, **said)
    except Exception as broken:
        # Nothing of the book was changed: a clearing works on forks.
        raise RoundUnsound(f"it could not be cleared: {broken!r}") from broken


def _cleared(
    book: Book,
    bids: Iterable[OpenBid] | None,
    now: int,
    round_id: UUID,
    rules: Rules,
    *,
    tell: bool,
    hosts: Collection[HostId] | None = None,
) -> list[MarketEvent]:
    clearing = clear(book, bids, now=now, round_id=round_id, hosts=hosts)
    clearing = rules.priced(clearing)
    told = clearing.refused if tell else ()
    return list(decided(book, clearing, now=now, lane="instant", round_id=round_id, tell=told))
