"""When work in a cloud moves home: a rented machine is dear, and local supply may have come free.

It is weighed at each checkpoint that is kept, for what is moved goes on from there. What the rest
costs in the cloud is set against what it costs at home, with all that the move takes: the time
since the checkpoint is worked twice, the work stands still while it stops, is fetched and starts,
and what leaves a cloud is paid for. It moves only where that saves more than a margin, and neither
too soon after it came, nor again and again, nor so late that its deadline were at risk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Literal
from uuid import uuid5

from bursting.domain.capacity import InstancePrice
from bursting.domain.events import HomeMoveAsked, HomeMoveEnded, HomeMoveEvent, InstanceId
from bursting.domain.spill import PPM
from ledger.domain.ids import BidId, LeaseId, TenantId
from ledger.domain.money import Money, Rate
from ledger.domain.refusal import Refusal

SECOND = timedelta(seconds=1)
MILLI = timedelta(milliseconds=1)
GIB = 1024**3
BID_WAITS = timedelta(seconds=30)
"""So long the market may take to answer a bid for a place at home; then the work stays."""

Why = Literal[
    "off",
    "not-resumed",
    "not-running",
    "no-checkpoint",
    "checkpoint-known",
    "too-soon",
    "rest-too-short",
    "deadline",
    "no-gain",
]
"""Why work stays in its cloud; none of them is told to anybody, since it is the rule."""


ENDED: dict[str, str] = {
    "moved": "It goes on at home.",
    "not-granted": "The place at home went to somebody else.",
    "place-gone": "The place at home fell away before the work came.",
    "work-ended": "The work ended before it moved.",
    "too-late": "It was too late to move when the market was asked.",
}
"""How a try to move home ended, besides the code by which its bid was refused."""
REFUSED = "The bid for a place at home was not taken, as where the account covers no second hold."


class HomeMoveUnderWay(Refusal):
    """That work moves home already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Billing:
    """How a cloud counts time: in steps, each paid for as soon as it begins, and some at least."""

    step_seconds: int = 1
    seconds_min: int = 60

    def __post_init__(self) -> None:
        assert self.step_seconds > 0
        assert self.seconds_min >= 0

    def billed(self, span: timedelta) -> timedelta:
        """Return how much of a machine's time is paid for that ran for `span`."""
        seconds = max(-(-span // SECOND), self.seconds_min)
        return -(-seconds // self.step_seconds) * self.step_seconds * SECOND


BY_THE_SECOND = Billing()
BY_THE_HOUR = Billing(step_seconds=3_600, seconds_min=3_600)
"""Taken of a cloud of which nothing is known: the dearest that is usual."""
BILLING: Mapping[str, Billing] = {"ec2": BY_THE_SECOND, "fake": BY_THE_SECOND}
"""By the name of the cloud. EC2: seconds, a minute at least (EC2 on-demand pricing, Linux)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeRules:
    """How willingly work moves home.

    lead_seconds: from the decision to the move; the work saves itself then. move_seconds: what the
    move itself takes of the work's time: to stop, to be fetched and to start. again_seconds: so
    long after it came to the cloud, and after each try, it is left alone. spare_seconds: kept up
    to its deadline. margin_ppm: of what the rest costs in the cloud, saved at least.
    egress_nanos_per_gib: what a cloud takes for what leaves it.
    """

    is_on: bool = True
    margin_ppm: int = 100_000
    lead_seconds: int = 180
    move_seconds: int = 300
    again_seconds: int = 900
    spare_seconds: int = 600
    egress_nanos_per_gib: int = 0

    def __post_init__(self) -> None:
        assert 0 <= self.margin_ppm <= PPM
        assert min(self.lead_seconds, self.move_seconds, self.spare_seconds) >= 0
        assert self.again_seconds > 0
        assert self.egress_nanos_per_gib >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InCloud:
    """Work that runs on a rented machine, as far as its way home needs to know it.

    price: what its consumer pays per GPU-hour. limit: the most they would. ends_at: of its lease.
    safe_at: its last checkpoint. deadline: by when it has to be done. is_free: it runs, and neither
    its owner nor the market takes anything from it. grace: between the signal to stop and the kill.
    hourly, billing, launched_at: of the whole machine. volume_bytes: what it has in volumes.
    """

    gpus: int
    price: Rate
    limit: Rate
    starts_at: datetime
    ends_at: datetime
    deadline: datetime
    safe_at: datetime | None
    resumes: bool
    is_free: bool
    grace: timedelta
    hourly: InstancePrice
    billing: Billing
    launched_at: datetime
    volume_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A move that pays if a place at home costs no more than `limit` per GPU-hour.

    seconds: how long that place is needed; again_seconds: so much of it is the move's. cloud: what
    is saved in the cloud. egress: what the move costs there. margin: the least that has to be left.
    """

    safe_at: datetime
    starts_at: datetime
    seconds: int
    again_seconds: int
    gpus: int
    limit: Rate
    cloud: Money
    egress: Money
    margin: Money

    def at_home(self, price: Rate) -> Money:
        """Return what the place at home costs at a price, if all of it is used."""
        return price.charge(self.gpus * self.seconds * 1_000)

    def saved(self, price: Rate) -> Money:
        """Return what the move saves at a price at home; below zero where it costs more."""
        nanos = self.cloud.nanos - self.egress.nanos - self.at_home(price).nanos
        return Money(nanos, self.cloud.currency)


def plan(work: InCloud, tries: HomeMoves | None, *, rules: HomeRules, now: datetime) -> Plan | Why:
    """Decide up to which price it pays to move work home now, or why it stays where it is.

    What is saved is the lesser of what its consumer would pay for the rest and of what the cloud
    takes for the machine's time: where a cloud counts started hours nobody shall pay for the
    saving of another.

    tries: the earlier ones of this lease; None: there were none.
    """
    why = _stays(work, tries, rules, now)
    if why is not None:
        return why
    assert work.safe_at is not None
    starts_at = _up(now + max(rules.lead_seconds * SECOND, 2 * work.grace))
    rest = -(-(work.ends_at - work.safe_at) // SECOND)
    seconds = rest + rules.move_seconds
    if work.ends_at - starts_at <= (rules.move_seconds + rules.lead_seconds) * SECOND:
        return "rest-too-short"
    if starts_at + (seconds + rules.spare_seconds) * SECOND > work.deadline:
        return "deadline"
    cloud = _saved_in_cloud(work, starts_at)
    egress = -(-work.volume_bytes * rules.egress_nanos_per_gib // GIB)
    margin = -(-cloud.nanos * rules.margin_ppm // PPM)
    left = cloud.nanos - egress - margin
    nanos = left * 3_600 // (work.gpus * seconds)
    if left <= 0 or nanos <= 0:
        return "no-gain"
    return Plan(
        safe_at=work.safe_at,
        starts_at=starts_at,
        seconds=seconds,
        again_seconds=seconds - (work.ends_at - starts_at) // SECOND,
        gpus=work.gpus,
        limit=Rate(min(nanos, work.limit.nanos_per_gpu_hour), work.limit.currency),
        cloud=cloud,
        egress=Money(egress, cloud.currency),
        margin=Money(margin, cloud.currency),
    )


def _stays(work: InCloud, tries: HomeMoves | None, rules: HomeRules, now: datetime) -> Why | None:
    """Return why work stays whatever local supply costs, None where that is what counts."""
    again = timedelta(seconds=rules.again_seconds)
    if not rules.is_on:
        return "off"
    if not work.resumes:
        return "not-resumed"
    if not work.is_free:
        return "not-running"
    if work.safe_at is None:
        return "no-checkpoint"
    if tries is not None and work.safe_at <= tries.last.safe_at:
        return "checkpoint-known"
    since = work.starts_at if tries is None else max(work.starts_at, tries.last_at)
    return "too-soon" if now < since + again else None


def _saved_in_cloud(work: InCloud, starts_at: datetime) -> Money:
    left = (work.ends_at - starts_at) // MILLI
    paid = work.price.charge(left * work.gpus)
    whole = work.hourly.cost(work.billing.billed(work.ends_at - work.launched_at))
    part = work.hourly.cost(work.billing.billed(starts_at - work.launched_at))
    return min(paid, Money(whole.nanos - part.nanos, whole.currency))


def _up(at: datetime) -> datetime:
    """Round up to a whole second."""
    return at if not at.microsecond else at.replace(microsecond=0) + SECOND


def home_bid_of(lease_id: LeaseId, number: int) -> BidId:
    """Return the id of the bid for a place at home: so each try is placed once."""
    return BidId(uuid5(lease_id, f"home-{number}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeMoves:
    """What the tries of one lease's work to move home add up to."""

    STREAM: ClassVar[str] = "burst-home"

    last: HomeMoveAsked
    ended: HomeMoveEnded | None = None

    @property
    def last_at(self) -> datetime:
        """When it was tried last, or that try ended."""
        return self.last.at if self.ended is None else self.ended.at

    @classmethod
    def evolve(cls, state: HomeMoves | None, event: HomeMoveEvent, /) -> HomeMoves:
        """Return them after `event`."""
        if isinstance(event, HomeMoveAsked):
            return cls(last=event)
        assert state is not None
        return cls(last=state.last, ended=event)

    def end(
        self, reason: str, *, home_lease_id: LeaseId | None, price: Rate | None, now: datetime
    ) -> list[HomeMoveEnded]:
        """Take down what became of the last try, once.

        home_lease_id, price: where it moved, and what that costs; None: it stayed.
        """
        if self.ended is not None:
            return []
        asked = self.last
        saved = None
        if price is not None:
            at_home = price.charge(asked.gpus * asked.seconds * 1_000)
            nanos = asked.cloud.nanos - asked.egress.nanos - at_home.nanos
            saved = Money(nanos, asked.cloud.currency)
        return [
            HomeMoveEnded(
                lease_id=asked.lease_id,
                number=asked.number,
                moved=price is not None,
                reason=reason,
                home_lease_id=home_lease_id,
                saved=saved,
                at=now,
            )
        ]


def ask(
    tries: HomeMoves | None,
    decided: Plan,
    *,
    lease_id: LeaseId,
    instance_id: InstanceId,
    tenant_id: TenantId,
    owner_id: TenantId,
    price: Rate,
    now: datetime,
) -> list[HomeMoveAsked]:
    """Take down that work shall move home, before its bid is placed.

    price: what local supply asks as the book stands. Raises: HomeMoveUnderWay.
    """
    if tries is not None and tries.ended is None:
        raise HomeMoveUnderWay(lease_id=lease_id)
    number = 1 if tries is None else tries.last.number + 1
    return [
        HomeMoveAsked(
            lease_id=lease_id,
            bid_id=home_bid_of(lease_id, number),
            instance_id=instance_id,
            tenant_id=tenant_id,
            owner_id=owner_id,
            number=number,
            safe_at=decided.safe_at,
            starts_at=decided.starts_at,
            seconds=decided.seconds,
            gpus=decided.gpus,
            limit=decided.limit,
            quoted=price,
            cloud=decided.cloud,
            egress=decided.egress,
            again_seconds=decided.again_seconds,
            at=now,
        )
    ]
