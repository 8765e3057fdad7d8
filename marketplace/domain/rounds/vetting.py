"""A round is appended only as far as the independent check vouches for it.

A grant with a fault is dropped, its bid waits on with a reason of its own, and what is left is
checked anew: what rested on the dropped grant is found then. So one grant that the search should
not have made costs nobody else theirs. A round that is at fault as a whole is not appended.

A grant whose check breaks off is at fault too: what cannot be checked is not granted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from ledger.domain.ids import LeaseId
from marketplace.domain.book.book import Book
from marketplace.domain.clearing.fills import Clearing, Fill
from marketplace.domain.facts.events import LeaseGranted, MarketEvent, RoundCleared
from marketplace.domain.facts.faults import Fault
from marketplace.domain.facts.faults import RoundUnsound as RoundUnsound

UNVERIFIED = "unverified"
"""The reason of a bid whose grant was dropped. In the next round it comes after all others."""
CHECKS_MAX = 16
"""How often a round is checked. Each time at least one grant goes; then the round is given up."""


class Part(NamedTuple):
    """What one grant is of the sums of its round. capped: it pays its own limit."""

    worth: int
    weighs: int
    capped: bool

    @classmethod
    def of(cls, fill: Fill) -> Part:
        """Return the part of a fill."""
        return cls(fill.worth, fill.weighs, fill.price == fill.bid.limit and not fill.own)


Check = Callable[[Book, RoundCleared, Sequence[LeaseGranted]], Sequence[Fault]]


def vouched(
    book: Book, clearing: Clearing, write: Callable[[Clearing], Sequence[MarketEvent]], check: Check
) -> tuple[list[MarketEvent], list[Fault]]:
    """Return the events of a clearing without the grants that are at fault, and the faults.

    write: writes a clearing down as events; nothing if it decides nothing.

    Raises: RoundUnsound.
    """
    dropped: list[Fault] = []
    found: Sequence[Fault] = ()
    for _ in range(CHECKS_MAX):
        try:
            events = list(write(clearing))
        except Exception as broken:
            raise RoundUnsound(f"it could not be written down: {broken!r}") from broken
        if not events:
            return [], dropped
        cleared, *others = events
        assert isinstance(cleared, RoundCleared)
        granted = [each for each in others if isinstance(each, LeaseGranted)]
        found = checked(book, cleared, granted, check)
        if not found:
            return events, dropped
        guilty = {fault.lease_id for fault in found if fault.lease_id is not None}
        if not guilty:
            break
        # What the round says of itself may be wrong only because of these: it is said anew.
        dropped += [fault for fault in found if fault.lease_id is not None]
        clearing = without(book, clearing, guilty)
    raise RoundUnsound("; ".join(str(fault) for fault in found))


def checked(
    book: Book, cleared: RoundCleared, granted: Sequence[LeaseGranted], check: Check
) -> Sequence[Fault]:
    """Return the faults of a round; where its check breaks off, of the grant that it breaks off at.

    Raises: RoundUnsound, where it breaks off without any grant.
    """
    try:
        return check(book, cleared, granted)
    except Exception as broken:
        if not granted:
            raise RoundUnsound(f"its check broke off: {broken!r}") from broken
        said = f"its check broke off: {broken!r}"
    few: Sequence[LeaseGranted] = granted
    while len(few) > 1:
        halves = few[: len(few) // 2], few[len(few) // 2 :]
        broken_half = next((half for half in halves if _breaks(book, cleared, half, check)), None)
        if broken_half is None:
            # It takes several of them together: the last one goes, and the rest is checked again.
            break
        few = broken_half
    return [Fault(said, few[-1].lease_id)]


def _breaks(
    book: Book, cleared: RoundCleared, granted: Sequence[LeaseGranted], check: Check
) -> bool:
    """Tell if a check breaks off with these grants alone."""
    try:
        check(book, cleared, granted)
    except Exception:
        return True
    return False


def without(book: Book, clearing: Clearing, guilty: Collection[LeaseId]) -> Clearing:
    """Return a clearing in which these grants were not made."""
    kept = tuple(fill for fill in clearing.fills if fill.lease_id not in guilty)
    gone = [fill for fill in clearing.fills if fill.lease_id in guilty]
    calendar = clearing.calendar.fork()
    for fill in gone:
        for _, uuid in fill.placement.gpus:
            calendar.drop(uuid, fill.lease_id)
    bids = tuple(book.bids.get(fill.bid.bid_id, fill.bid) for fill in gone)
    proof = clearing.proof
    if proof is not None:
        capped = sum(fill.price == fill.bid.limit for fill in gone)
        proof = replace(proof, capped=proof.capped - capped)
    return replace(
        clearing,
        fills=kept,
        refused=(*bids, *clearing.refused),
        calendar=calendar,
        left=None,
        placeless=(),
        proof=proof,
        held_back={**clearing.held_back, **{bid.bid_id: UNVERIFIED for bid in bids}},
    )
