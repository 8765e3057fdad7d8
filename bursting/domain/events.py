"""Every fact of overflow: streams burst-<instance_id>."""

from __future__ import annotations

from datetime import datetime
from typing import NewType
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import BidId, HostId, OfferId
from ledger.domain.money import Money, Rate

InstanceId = NewType("InstanceId", UUID)


class BurstIntended(Event, name="bursting.burst-intended"):
    """We are about to rent an instance for a bid. Recorded before the cloud is called.

    token: the cloud's idempotency token, the same for every try of this intent.
    price: the cloud's, per GPU-hour. ttl_seconds: the cloud ends it by itself after that.
    """

    instance_id: InstanceId
    bid_id: BidId
    market: str
    cloud: str
    instance_type: str
    zone: str
    token: str
    gpu_model: str
    gpus: int
    price: Rate
    ttl_seconds: int
    attempt: int
    at: datetime


class BurstRefused(Event, name="bursting.burst-refused"):
    """The cloud did not rent it out: no capacity, no quota, or above the cap. Nothing runs."""

    instance_id: InstanceId
    bid_id: BidId
    reason: str
    at: datetime


class BurstLaunched(Event, name="bursting.burst-launched"):
    """The cloud accepted: the instance has the id `cloud_ref` there and costs money from now."""

    instance_id: InstanceId
    cloud_ref: str
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


BurstEvent = (
    BurstIntended
    | BurstRefused
    | BurstLaunched
    | BurstRunning
    | BurstTerminating
    | BurstTerminated
    | BurstLost
)
