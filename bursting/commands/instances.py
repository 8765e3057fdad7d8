"""Take an instance as far as it goes: the one entry to renting and returning.

Whoever is killed between two lines leaves a record from which the next pass goes on: the intent
comes before the launch, the token makes a repeated launch the same one, the wish to terminate
comes before the call and stays until the cloud says that the instance is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from bursting.commands import renting, returning
from bursting.commands.records import instance_known
from bursting.commands.spilling import Overflow
from bursting.domain.events import InstanceId
from bursting.domain.instances import BurstInstance, InstanceState
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta

STEPS: dict[InstanceState, Callable[..., None]] = {
    "intended": renting.launch,
    "provisioning": renting.bring_up,
    "running": returning.watch,
    "terminating": returning.give_back,
}


class CloudNotConfigured(Refusal):
    """This installation no longer knows the cloud that an instance runs on.

    Configure it again until its instances have ended.
    """


def advance_instance(
    store: EventStore, *, instance_id: InstanceId, overflow: Overflow, by: Meta, now: datetime
) -> BurstInstance:
    """Take an instance as far as it goes now, and return it as it stands then.

    Raises: InstanceUnknown, CloudNotConfigured, CloudUnavailable, and what `publish_offer` raises.
    """
    instance = instance_known(store, instance_id)
    # Each step moves the state forward or not at all, so this ends.
    while not instance.is_final:
        cloud = overflow.clouds.get(instance.intent.cloud)
        if cloud is None:
            raise CloudNotConfigured(cloud=instance.intent.cloud)
        STEPS[instance.state](store, instance, cloud, overflow, by=by, now=now)
        state = instance.state
        instance = instance_known(store, instance_id)
        if instance.state == state:
            break
    return instance
