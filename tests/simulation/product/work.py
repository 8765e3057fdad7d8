"""A job and its leases, as who plays the trace knows them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ledger.domain.ids import BidId, HostId, LeaseId
from marketplace.domain.facts.events import LeaseScheduled


@dataclass(eq=False, slots=True)
class Running:
    """A lease of a job as its agents see it. works: from when it makes progress."""

    job: int
    scheduled: LeaseScheduled
    starts: float
    ends: float
    works: float = 0.0
    told: bool = False
    begun: bool = False
    over: bool = False
    hosts: tuple[HostId, ...] = ()

    @property
    def lease_id(self) -> LeaseId:
        return self.scheduled.lease_id

    @property
    def is_own(self) -> bool:
        return not self.scheduled.price.nanos_per_gpu_hour


@dataclass(slots=True)
class Job:
    """What is still to be done of a job, in seconds, and what was asked for it."""

    remaining: float
    begun: bool = False
    asked: BidId | None = None
    running: Running | None = None
    following: Running | None = None
    tries: int = 0
    bids: list[BidId] = field(default_factory=list)
    """All that were placed for it: what follows one looks at those before it."""
