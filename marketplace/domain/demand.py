"""A bid as it stands in the book."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ledger.domain.ids import BidId
from marketplace.domain.events import BidAmended, BidPlaced, GpuRequest
from marketplace.domain.moments import Millis, from_below

CLASS_RANK = {"reserved": 0, "on-demand": 1, "interruptible": 2}


class Shape(NamedTuple):
    """What decides which offers fit; bids of one shape share an index."""

    request: GpuRequest
    kind: str
    currency: str


@dataclass(frozen=True, slots=True, eq=False)
class OpenBid:
    """A bid that waits. since: store position at which it was placed or last amended.

    Times in milliseconds; limit in nano-units per GPU-hour.
    """

    terms: BidPlaced
    shape: Shape
    since: int
    limit: int
    earliest: Millis
    deadline: Millis
    duration: int

    @classmethod
    def of(cls, placed: BidPlaced, *, since: int) -> OpenBid:
        """Return a bid as it was placed."""
        return cls(
            terms=placed,
            shape=Shape(placed.request, placed.workload.kind, placed.limit.currency),
            since=since,
            limit=placed.limit.nanos_per_gpu_hour,
            earliest=from_below(placed.earliest_start),
            deadline=from_below(placed.deadline),
            duration=placed.duration_seconds * 1000,
        )

    def amended(self, event: BidAmended, *, since: int) -> OpenBid:
        """Return the bid with a new limit and deadline, at the end of the queue."""
        return replace(
            self,
            since=since,
            limit=event.limit.nanos_per_gpu_hour,
            deadline=from_below(event.deadline),
        )

    @property
    def bid_id(self) -> BidId:
        """Return the bid's id."""
        return self.terms.bid_id

    @property
    def gpus(self) -> int:
        """Return how many GPUs it asks for."""
        return self.terms.gpus

    @property
    def latest_start(self) -> int:
        """Return the last moment at which it can still be met."""
        return self.deadline - self.duration

    @property
    def price_time(self) -> tuple[int, int, str]:
        """Return the place in the queue of the instant lane: highest limit, then first come."""
        return (-self.limit, self.since, str(self.terms.bid_id))

    @property
    def round_order(self) -> tuple[int, int, int, str]:
        """Return the place in a round: service class, then limit, then age."""
        return (CLASS_RANK[self.terms.service_class], *self.price_time)
