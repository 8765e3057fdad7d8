"""Every fact of overflow.

Streams burst-<instance_id>, burst-stray-<stray_id>, burst-budget-<month>, burst-home-<lease_id> and
burst-policy-<tenant_id>.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NewType
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import BidId, HostId, LeaseId, OfferId, TenantId
from ledger.domain.money import Money, Rate

InstanceId = NewType("InstanceId", UUID)
StrayId = NewType("StrayId", UUID)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A machine as its cloud tells it, whatever was asked for.

    gpu_model: empty where the cloud says nothing of it. hourly: what the whole machine costs per
    hour; None where the cloud does not tell.
    """

    instance_type: str
    zone: str
    spot: bool
    gpus: int
    gpu_model: str = ""
    hourly: Money | None = None


class BurstIntended(Event, name="bursting.burst-intended", version=2, grown_from=1):
    """We are about to rent an instance for a bid. Recorded before the cloud is called.

    tenant_id: who bid. owner_id: who lists the instance and pays for it, the platform.
    token: the cloud's idempotency token, the same for every try of this intent.
    price: the cloud's, per GPU-hour of the instance's `gpus`. floor: what the GPUs that the bid
    needs must bring in per GPU-hour to pay for the whole instance. spot: the cloud may take it
    back. ttl_seconds: the cloud ends it by itself after that. worst: what it costs at most.
    gpu_memory_mib: of each GPU; 0: not known. hourly: what the whole instance was quoted at per
    hour; None: `price` of all its GPUs.
    """

    instance_id: InstanceId
    bid_id: BidId
    tenant_id: TenantId
    owner_id: TenantId
    market: str
    cloud: str
    instance_type: str
    zone: str
    spot: bool
    region: str
    token: str
    gpu_model: str
    gpus: int
    price: Rate
    floor: Rate
    ttl_seconds: int
    worst: Money
    attempt: int
    at: datetime
    gpu_memory_mib: int = 0
    hourly: Money | None = None


class BurstRefused(Event, name="bursting.burst-refused"):
    """The cloud did not rent it out: no capacity, no quota, or above the cap. Nothing runs."""

    instance_id: InstanceId
    bid_id: BidId
    reason: str
    at: datetime


class BurstLaunched(Event, name="bursting.burst-launched", version=2, grown_from=1):
    """The cloud accepted: the instance has the id `cloud_ref` there and costs money.

    launched_at: the cloud's word for when; `at` may be later, where an answer was lost. told: what
    the cloud handed out; None in records from before that was compared with the intent.
    """

    instance_id: InstanceId
    cloud_ref: str
    launched_at: datetime
    at: datetime
    told: Told | None = None


class BurstRunning(Event, name="bursting.burst-running"):
    """The instance is up, is the host `host_id` and is listed as the offer `offer_id`."""

    instance_id: InstanceId
    host_id: HostId
    offer_id: OfferId
    at: datetime


class BurstTerminating(Event, name="bursting.burst-terminating", version=2, grown_from=1):
    """We want it gone, and ask the cloud until it says it is.

    detail: the reason in words, where the word alone does not tell. told: what the cloud says the
    instance is, where that is why.
    """

    instance_id: InstanceId
    reason: str
    at: datetime
    detail: str = ""
    told: Told | None = None


class BurstTerminated(Event, name="bursting.burst-terminated", version=2, grown_from=1):
    """The cloud says it is gone. `cost`: what it cost from launch to end.

    ended_at: the cloud's word for when it ended; None: it did not say, and `at` stands for it.
    """

    instance_id: InstanceId
    cost: Money
    at: datetime
    ended_at: datetime | None = None


class BurstLost(Event, name="bursting.burst-lost", version=2, grown_from=1):
    """The cloud has it no more, and we did not ask it to end it.

    ended_at: as for one that was terminated; None where the cloud just does not show it.
    """

    instance_id: InstanceId
    cost: Money
    at: datetime
    ended_at: datetime | None = None


class StrayFound(Event, name="bursting.stray-found"):
    """A machine runs, or ran, under our tags that no record counts on: it is ended and booked.

    stray_id: follows from the cloud and its id for the machine. tenant_id, bid_id, instance_id: as
    its tags tell; None where they tell nothing that is known. owner_id: who pays, the platform.
    booked: what an instance on record has booked of this very machine already.
    """

    stray_id: StrayId
    owner_id: TenantId
    tenant_id: TenantId | None
    bid_id: BidId | None
    instance_id: InstanceId | None
    cloud: str
    cloud_ref: str
    told: Told
    launched_at: datetime
    booked: Money
    at: datetime


class StrayEnded(Event, name="bursting.stray-ended"):
    """A machine outside the record has ended.

    cost: what it cost besides what was booked before; below zero where that was too much. ended_at:
    as for an instance.
    """

    stray_id: StrayId
    cost: Money
    ended_at: datetime | None
    at: datetime


class BurstDeferred(Event, name="bursting.burst-deferred"):
    """A bid that may burst could not be served by a cloud now, and why; it is looked at again.

    reason: the refusal's code. words: what a person reads of it. tries: how often in a row, for the
    bid as it stands (bid_version). next_at: clouds are not asked for it before then.
    """

    bid_id: BidId
    tenant_id: TenantId
    reason: str
    words: str
    tries: int
    bid_version: int
    next_at: datetime
    at: datetime


class BudgetReserved(Event, name="bursting.budget-reserved"):
    """Part of a month's budget was set aside for what an instance may cost at most."""

    month: str
    instance_id: InstanceId
    money: Money
    at: datetime


class BudgetSettled(Event, name="bursting.budget-settled"):
    """An instance is over: it cost `money`, the rest of its part is free again."""

    month: str
    instance_id: InstanceId
    money: Money
    at: datetime


class HomeMoveAsked(Event, name="bursting.home-move-asked"):
    """Work that runs on a rented machine shall move home: a place for its rest is bid for.

    Recorded before the bid `bid_id` is placed. number: the try for this lease. safe_at: the
    checkpoint it goes on from at the latest. starts_at, seconds, gpus: the place. limit: the most
    per GPU-hour at which it pays; quoted: what local supply asked then. cloud: what ending the
    lease saves there; egress: what the cloud takes for what leaves it; again_seconds: how much
    longer the place is needed than the rest of the lease is, since the move takes time.
    """

    lease_id: LeaseId
    bid_id: BidId
    instance_id: InstanceId
    tenant_id: TenantId
    owner_id: TenantId
    number: int
    safe_at: datetime
    starts_at: datetime
    seconds: int
    gpus: int
    limit: Rate
    quoted: Rate
    cloud: Money
    egress: Money
    again_seconds: int
    at: datetime


class HomeMoveEnded(Event, name="bursting.home-move-ended"):
    """A try to move home is over: the work moved to `home_lease_id`, or stayed where it was.

    reason: a word of `home_moves.ENDED`, or the code of a refusal. saved: what the move saves if
    all of the place at home is used; None where it stayed.
    """

    lease_id: LeaseId
    number: int
    moved: bool
    reason: str
    home_lease_id: LeaseId | None
    saved: Money | None
    at: datetime


class HomePolicySet(Event, name="bursting.home-policy-set"):
    """An organisation said whether its work in clouds moves home.

    margin_percent: how much of what the rest costs in the cloud a move has to save at least; None:
    as the platform has it.
    """

    tenant_id: TenantId
    moves: bool
    margin_percent: int | None
    at: datetime


HomeMoveEvent = HomeMoveAsked | HomeMoveEnded
BudgetEvent = BudgetReserved | BudgetSettled
BurstEvent = (
    BurstIntended
    | BurstRefused
    | BurstLaunched
    | BurstRunning
    | BurstTerminating
    | BurstTerminated
    | BurstLost
)
StrayEvent = StrayFound | StrayEnded
