"""A rented instance, from the intent to its end.

intended > provisioning > running > terminating > terminated | lost, or refused before it began.
The intent is recorded before the cloud is called, so a crash at any step leaves a record that
says what may be running.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, Literal, assert_never
from uuid import uuid5

from bursting.domain.capacity import InstancePrice, InstanceSpec
from bursting.domain.events import (
    BurstEvent,
    BurstIntended,
    BurstLaunched,
    BurstLost,
    BurstRefused,
    BurstRunning,
    BurstTerminated,
    BurstTerminating,
    InstanceId,
    Told,
)
from bursting.domain.handed_out import differences, hourly_of, hourly_told
from bursting.domain.spill import Attempt, Spill, Waiting
from ledger.domain.ids import BidId, HostId, OfferId, TenantId
from ledger.domain.money import Money
from ledger.domain.refusal import Refusal, Unknown

InstanceState = Literal[
    "intended", "refused", "provisioning", "running", "terminating", "terminated", "lost"
]
FINAL: frozenset[InstanceState] = frozenset({"refused", "terminated", "lost"})
NOT_AS_PLANNED = "not-as-planned"
"""Why an instance ends that is another one than was asked for."""


class InstanceUnknown(Unknown):
    """There is no such burst instance."""


class InstanceNotLaunched(Refusal):
    """It is not known yet whether the cloud started this instance."""


class LaunchedTwice(Refusal):
    """The cloud runs another machine for this instance than the one on record.

    The reaper ends whichever is not on record.
    """


def instance_of(bid_id: BidId, attempt: int) -> InstanceId:
    """Return the id of a bid's attempt: the same for all who decide it, so it is made once."""
    return InstanceId(uuid5(bid_id, f"burst-{attempt}"))


def host_of(instance_id: InstanceId) -> HostId:
    """Return the id of the host that an instance is: its own, so each leads to the other."""
    return HostId(instance_id)


def offer_of(instance_id: InstanceId) -> OfferId:
    """Return the id of the offer that an instance is listed as."""
    return OfferId(uuid5(instance_id, "offer"))


def intend(bid: Waiting, spill: Spill, *, owner_id: TenantId, now: datetime) -> BurstIntended:
    """Return the intent to rent what `spill` decided."""
    return BurstIntended(
        instance_id=instance_of(bid.bid_id, spill.attempt),
        bid_id=bid.bid_id,
        tenant_id=bid.tenant_id,
        owner_id=owner_id,
        market=bid.market,
        cloud=spill.offer.cloud,
        instance_type=spill.offer.spec.instance_type,
        zone=spill.offer.spec.zone,
        spot=spill.offer.spec.spot,
        region=spill.offer.region,
        token=spill.token,
        gpu_model=spill.offer.gpu_model,
        gpus=spill.offer.gpus,
        price=spill.price,
        floor=spill.floor,
        ttl_seconds=spill.ttl_seconds,
        worst=spill.worst,
        attempt=spill.attempt,
        at=now,
        gpu_memory_mib=spill.offer.gpu_memory_mib,
        hourly=spill.hourly,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstInstance:
    """What one instance's stream adds up to."""

    STREAM: ClassVar[str] = "burst"

    intent: BurstIntended
    state: InstanceState = "intended"
    cloud_ref: str | None = None
    launched_at: datetime | None = None
    listed_at: datetime | None = None
    reason: str | None = None
    over_at: datetime | None = None
    cost: Money | None = None
    told: Told | None = None
    """What its cloud says that it is; None until it was launched."""
    ended_at: datetime | None = None
    """When its cloud says that it ended; None where it did not say."""

    @property
    def spec(self) -> InstanceSpec:
        """What was asked of the cloud; the same for every try."""
        intent = self.intent
        return InstanceSpec(instance_type=intent.instance_type, zone=intent.zone, spot=intent.spot)

    @property
    def price_cap(self) -> InstancePrice:
        """The most that the instance may cost per hour: what was quoted."""
        return hourly_of(self.intent)

    @property
    def hourly(self) -> InstancePrice:
        """What it does cost per hour, as its cloud tells."""
        return hourly_told(self.intent, self.told)

    @property
    def ends_at(self) -> datetime:
        """When the cloud's own timer ends it, at the latest."""
        return (self.launched_at or self.intent.at) + timedelta(seconds=self.intent.ttl_seconds)

    @property
    def is_final(self) -> bool:
        """Test if nothing more can happen to it."""
        return self.state in FINAL

    def as_attempt(self) -> Attempt:
        """Return this instance as a past or present try for its bid."""
        return Attempt(
            number=self.intent.attempt,
            cloud=self.intent.cloud,
            spec=self.spec,
            reason=self.reason,
            over_at=self.over_at,
        )

    def cost_until(self, now: datetime, *, ended_at: datetime | None = None) -> Money:
        """Return what it costs from launch to its end, or to `now`: nothing if it never was.

        ended_at: the cloud's word, held between the launch and now, since its clock may differ.
        """
        since = self.launched_at or now
        until = now if ended_at is None else min(max(ended_at, since), now)
        return self.hourly.cost(until - since)

    def launch(
        self,
        cloud_ref: str,
        *,
        launched_at: datetime,
        now: datetime,
        told: Told | None = None,
    ) -> Sequence[BurstLaunched | BurstTerminating]:
        """Take down that the cloud runs it; nothing to do if that is known.

        What the cloud handed out is compared with the plan: another machine ends at once, and
        costs what it costs. The cloud's clock is held between the intent and now: it may differ
        from ours.

        Raises: LaunchedTwice.
        """
        if self.cloud_ref == cloud_ref:
            return []
        if self.state != "intended":
            raise LaunchedTwice(known=self.cloud_ref, found=cloud_ref)
        since = min(max(launched_at, self.intent.at), now)
        launched = BurstLaunched(
            instance_id=self.intent.instance_id,
            cloud_ref=cloud_ref,
            launched_at=since,
            at=now,
            told=told,
        )
        wrong = [] if told is None else differences(self.intent, told)
        if not wrong:
            return [launched]
        return [launched, self._not_as_planned(wrong, told=told, now=now)]

    def check(self, told: Told, *, now: datetime) -> Sequence[BurstTerminating]:
        """End an instance that its cloud now tells to be another one; its price may move."""
        wrong = differences(self.intent, told, price=False)
        if self.state not in ("provisioning", "running") or not wrong:
            return []
        return [self._not_as_planned(wrong, told=told, now=now)]

    def _not_as_planned(
        self, wrong: Sequence[str], *, told: Told | None, now: datetime
    ) -> BurstTerminating:
        return BurstTerminating(
            instance_id=self.intent.instance_id,
            reason=NOT_AS_PLANNED,
            at=now,
            detail=", ".join(wrong),
            told=told,
        )

    def refuse(self, reason: str, *, now: datetime) -> list[BurstRefused]:
        """Take down that the cloud did not rent it out; only what never ran can be refused."""
        if self.state != "intended":
            return []
        intent = self.intent
        return [
            BurstRefused(
                instance_id=intent.instance_id, bid_id=intent.bid_id, reason=reason, at=now
            )
        ]

    def run(self, *, now: datetime) -> list[BurstRunning]:
        """Take down that it is up and listed; nothing to do unless it is on its way up."""
        if self.state != "provisioning":
            return []
        instance_id = self.intent.instance_id
        return [
            BurstRunning(
                instance_id=instance_id,
                host_id=host_of(instance_id),
                offer_id=offer_of(instance_id),
                at=now,
            )
        ]

    def end(self, reason: str, *, detail: str = "", now: datetime) -> list[BurstTerminating]:
        """Decide that it shall end; the first reason stays. detail: it in words, if need be.

        Raises: InstanceNotLaunched: ask again once the launch is answered.
        """
        if self.state == "intended":
            raise InstanceNotLaunched(instance_id=self.intent.instance_id)
        if self.state not in ("provisioning", "running"):
            return []
        return [
            BurstTerminating(
                instance_id=self.intent.instance_id, reason=reason, at=now, detail=detail
            )
        ]

    def vanish(
        self, *, now: datetime, ended_at: datetime | None = None
    ) -> Sequence[BurstTerminated | BurstLost]:
        """Take down that the cloud has it no more: as we asked, or lost.

        It is booked to when the cloud says that it ended; to now where it does not say.
        """
        instance_id, cost = self.intent.instance_id, self.cost_until(now, ended_at=ended_at)
        if self.state == "terminating":
            return [BurstTerminated(instance_id=instance_id, cost=cost, at=now, ended_at=ended_at)]
        if self.state in ("provisioning", "running"):
            return [BurstLost(instance_id=instance_id, cost=cost, at=now, ended_at=ended_at)]
        return []

    @classmethod
    def evolve(cls, state: BurstInstance | None, event: BurstEvent, /) -> BurstInstance:
        """Return the instance after `event`."""
        if isinstance(event, BurstIntended):
            assert state is None
            return cls(intent=event)
        assert state is not None
        match event:
            case BurstRefused():
                return replace(state, state="refused", reason=event.reason, over_at=event.at)
            case BurstLaunched():
                return replace(
                    state,
                    state="provisioning",
                    cloud_ref=event.cloud_ref,
                    launched_at=event.launched_at,
                    told=event.told,
                )
            case BurstRunning():
                return replace(state, state="running", listed_at=event.at)
            case BurstTerminating():
                told = event.told or state.told
                return replace(state, state="terminating", reason=event.reason, told=told)
            case BurstTerminated():
                return replace(
                    state,
                    state="terminated",
                    over_at=event.at,
                    cost=event.cost,
                    ended_at=event.ended_at,
                )
            case BurstLost():
                return replace(
                    state,
                    state="lost",
                    reason="lost",
                    over_at=event.at,
                    cost=event.cost,
                    ended_at=event.ended_at,
                )
            case _:
                assert_never(event)
