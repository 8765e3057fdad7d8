"""What a new fact may have made possible: what the engine looks at next."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.domain.ids import BidId, HostId, LeaseId
from marketplace.domain.facts.events import BidMoveAsked, ExtensionRequested


@dataclass(frozen=True, slots=True)
class BidCame:
    """An immediate bid is new, or queues anew."""

    bid_id: BidId


@dataclass(frozen=True, slots=True)
class SupplyGrew:
    """On these hosts something can be leased that could not be before.

    freed: those of them that have more room; on the others only quotas leave more than before.
    None: all of them have. rests: the rest of a lease there, which is for sale, may be, too.
    again: a bid that waits again, since its grant was refused; it may fit elsewhere as well.
    """

    hosts: frozenset[HostId]
    freed: frozenset[HostId] | None = None
    rests: bool = False
    again: BidId | None = None


@dataclass(frozen=True, slots=True)
class ExtensionAsked:
    """A lease wants to go on until `ends_at`."""

    lease_id: LeaseId
    asked: ExtensionRequested


@dataclass(frozen=True, slots=True)
class ResaleCame:
    """What is left of a lease is for sale."""

    lease_id: LeaseId


@dataclass(frozen=True, slots=True)
class MoveAsked:
    """A bid that waits here is wanted in another market."""

    asked: BidMoveAsked


Trigger = BidCame | SupplyGrew | ExtensionAsked | ResaleCame | MoveAsked
