"""Every fact of overflow: streams burst-<instance_id> and burst-budget-<month>."""

from __future__ import annotations

from datetime import datetime
from typing import NewType
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import BidId, HostId, OfferId, TenantId
from ledger.domain.money import Money, Rate

InstanceId = NewType("InstanceId", UUID)


class BurstIntended(Event, name="bursting.burst-intended"):
    """We are about to rent an instance for a bid. Recorded before the cloud is called.

    tenant_id: who bid. owner_id: who lists the instance and pays for it, the platform.
    token: the cloud's idempotency token, the same for every try of this intent.
    price: the cloud's, per GPU-hour of the instance's `gpus`. floor: what the GPUs that the bid
    needs must bring in per GPU-hour to pay for the whole instance. spot: the cloud may take it
    back. ttl_seconds: the cloud ends it by itself after that. worst: what it costs at most.
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


class BurstRefused(Event, name="bursting.burst-refused"):
    """The cloud did not rent it out: no capacity, no quota, or above the cap. Nothing runs."""

    instance_id: InstanceId
    bid_id: BidId
    reason: str
    at: datetime


class BurstLaunched(Event, name="bursting.burst-launched"):
    """The cloud accepted: the instance has the id `cloud_ref` there and costs money.

    launched_at: the cloud's word for when; `at` may be later, where an answer was lost.
    """

    instance_id: InstanceId
    cloud_ref: str
    launched_at: datetime
    at: datetime


class BurstRunning(Event, name="bursting.burst-running"):
    """The instance is up, is the host `host_id` and is listed as the offer `offer_id`."""

    instance_id: InstanceId
    host_id: HostId
    offer_id: OfferId
    at: datetime


class BurstTerminating(Event, name="bursting.burst-terminating"):
    """We want it gone, and ask the cloud until it says it is."""

    instance_id: InstanceId
    reason: str
    at: datetime


class BurstTerminated(Event, name="bursting.burst-terminated"):
    """The cloud says it is gone. `cost`: what it cost from launch to end."""

    instance_id: InstanceId
    cost: Money
    at: datetime


class BurstLost(Event, name="bursting.burst-lost"):
    """The cloud does not know it any more, and we did not ask it to end it."""

    instance_id: InstanceId
    cost: Money
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
