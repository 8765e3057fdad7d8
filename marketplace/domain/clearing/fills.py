"""What a pass over the book decides: one `Fill` for each grant, and the `Clearing` of them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal
from uuid import UUID

from ledger.domain.ids import BidId, LeaseId, named, text_of
from ledger.domain.making import made_quickly, maker
from ledger.domain.money import MILLIS_PER_HOUR
from ledger.domain.span import Window
from marketplace.domain.facts.events import Cut, Share
from marketplace.domain.facts.instants import Millis, moment
from marketplace.domain.index.own_supply import is_own
from marketplace.domain.orderbook.calendar import Calendar
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.placement.placement import Placement

Lane = Literal["instant", "round"]

_window = maker(Window)


@made_quickly
@dataclass(frozen=True, slots=True)
class Fill:
    """One bid's grant. price: nano-units per GPU-hour.

    weight: what the bid counted more in its round for having waited, per GPU-hour; never paid.
    cuts: leases that end sooner for it. shares: what each offer gives, where that is not what
    the placement says: rests of leases are named after the offers of their owners.
    """

    bid: OpenBid
    lease_id: LeaseId
    placement: Placement
    price: int
    weight: int = 0
    cuts: tuple[Cut, ...] = ()
    shares: tuple[Share, ...] = ()

    @property
    def ends(self) -> Millis:
        """Return when the lease ends."""
        return Millis(self.placement.starts + self.bid.duration)

    @property
    def window(self) -> Window:
        """Return the span of the lease."""
        starts = self.placement.starts
        return _window(moment(starts), moment(starts + self.bid.duration))

    @property
    def own(self) -> bool:
        """Tell if the bidder's own GPUs serve it: no trade, and no part of any statistic."""
        return is_own(self.bid, self.placement)

    @property
    def worth(self) -> int:
        """Return (limit − floor) × GPU-time in nano-units, rounded down; 0 of own use."""
        if self.own:
            return 0
        floors = sum(listed.floor for listed, _ in self.placement.gpus)
        value = self.bid.limit * len(self.placement.gpus) - floors
        return value * self.bid.duration // MILLIS_PER_HOUR

    @property
    def weighs(self) -> int:
        """Return weight × GPU-time in nano-units, rounded down."""
        return self.weight * len(self.placement.gpus) * self.bid.duration // MILLIS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Proof:
    """What a round knows of its own quality; see `Certificate` for the meanings."""

    seed: int
    bound: int = 0
    steps: tuple[tuple[str, int], ...] = ()
    slots: int = 0
    pools: int = 0
    capped: int = 0
    paradoxical: int = 0
    paradoxical_nanos: int = 0
    aside: tuple[BidId, ...] = ()

    def plus(
        self,
        *,
        bound: int,
        steps: Iterable[tuple[str, int]],
        slots: int,
        pools: int,
        capped: int,
    ) -> Proof:
        """Add a service class that was cleared after the others."""
        return replace(
            self,
            bound=self.bound + bound,
            steps=(*self.steps, *steps),
            slots=max(self.slots, slots),
            pools=max(self.pools, pools),
            capped=self.capped + capped,
        )

    def regretting(self, regrets: tuple[int, int]) -> Proof:
        """Add how many refused bids would have gained at the round's prices, and how much."""
        count, nanos = self.paradoxical + regrets[0], self.paradoxical_nanos + regrets[1]
        return replace(self, paradoxical=count, paradoxical_nanos=nanos)


@dataclass(frozen=True, slots=True)
class Clearing:
    """What one pass over the book decided: fills in the order made, and who got nothing."""

    fills: tuple[Fill, ...]
    refused: tuple[OpenBid, ...]
    calendar: Calendar
    """As it stands with the fills in it."""
    proof: Proof | None = None
    """Of a round; None in the instant lane."""
    passed_over: int = 0
    """Waiting bids that could pay, but for which there was no room at a glance."""
    held_back: Mapping[BidId, str] = field(default_factory=dict)
    """Why bids that had a place were not let through: a quota or a limit."""

    @property
    def considered(self) -> int:
        """Return how many bids were looked at."""
        return len(self.fills) + len(self.refused) + self.passed_over


def lease_id_of(round_id: UUID, bid: OpenBid) -> LeaseId:
    """Return the id of the lease that a bid gets in a round."""
    return lease_ids_of(round_id)(bid)


def lease_ids_of(round_id: UUID) -> Callable[[OpenBid], LeaseId]:
    """Return what gives the ids of a round's leases."""
    id_of = named(round_id)
    return lambda bid: LeaseId(id_of(text_of(bid.terms.bid_id)))
