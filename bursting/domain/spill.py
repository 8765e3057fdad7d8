"""Which bid spills over to a cloud, when, and to which offer there.

A bid waits for local supply first; what is rented costs money whether it is used or not. So it
spills only once it has waited long enough or would miss its deadline, one instance at a time, a
bounded number of times, and only where the whole instance costs no more than the bid would pay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from bursting.domain.capacity import CloudOffer, GpuNeed, InstancePrice, InstanceSpec, version
from ledger.domain.ids import BidId, TenantId
from ledger.domain.money import Money, Rate
from ledger.domain.refusal import Refusal

MILLIS_PER_SECOND = 1_000
PPM = 1_000_000

NOTICE_SECONDS = 120
"""What clouds give before they take a machine back; our lease passes it on."""
GRACE_SECONDS_MAX = 60
"""Of that, what a bid may ask for between the signal to stop and the kill: the rest is ours, to
hear of it and to pass it on."""
ZONE_REASONS = frozenset({"capacity", "price", "token", "not-as-planned"})
"""Why the very type, zone and market of an attempt is not tried again for the same bid."""
TYPE_REASONS = frozenset({"quota", "refused"})
"""Why the whole type is not tried again for the same bid: no other zone would help."""


class BidNotWaiting(Refusal):
    """The bid is filled, cancelled or expired: it needs no capacity any more."""


class BurstNotAllowed(Refusal):
    """The bid does not allow bursting.

    Place it with burst allowed to let it run in a cloud when local supply runs out.
    """


class NoCloudWillDo(Refusal):
    """No rented machine can be what the bid asks for: `conditions` says what stands in the way."""


class BurstNotDue(Refusal):
    """The bid still waits for local supply."""


class DeadlineOutOfReach(Refusal):
    """Rented capacity would come up too late to end by the bid's deadline."""


class BurstUnderWay(Refusal):
    """An instance for this bid is on its way or up already."""


class BurstBackingOff(Refusal):
    """The last attempt failed a short while ago; the next one waits."""


class AttemptsExhausted(Refusal):
    """As many attempts as allowed have failed; no more are made for this bid."""


class NoCloudOffer(Refusal):
    """No cloud offers what the bid asks for, or has any of it left."""


class CloudTooDear(Refusal):
    """What clouds offer costs more than the bid's limit.

    A limit of at least `limit_needed` would do.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class SpillRules:
    """How patient and how spendthrift overflow is."""

    wait_seconds: int = 900
    """How long a bid waits for local supply."""
    boot_seconds: int = 600
    """How long an instance may take from launch to being listed."""
    risk_seconds: int = 300
    """How long before its last chance a bid spills without waiting any longer."""
    idle_seconds_max: int = 900
    """How long an instance may be listed without a lease."""
    drain_seconds: int = 60
    """How long after the end of a lease its agent may send its last measurements."""
    keep_seconds_max: int = 900
    """How long after that a machine waits for the last version of a volume at most."""
    spare_seconds: int = 600
    """What the cloud's own timer grants beyond all that."""
    attempts_max: int = 4
    backoff_seconds: int = 60
    """Pause after the first failed attempt; doubles with each."""
    margin_ppm: int = 0
    """What is added to the cloud's price to make the floor."""
    driver: str = ""
    """The NVIDIA driver of the image that machines start from; empty: nobody said."""

    def __post_init__(self) -> None:
        assert self.attempts_max > 0
        assert min(self.wait_seconds, self.boot_seconds, self.risk_seconds) >= 0
        assert min(self.idle_seconds_max, self.drain_seconds, self.spare_seconds) >= 0
        assert self.backoff_seconds >= 0
        assert self.margin_ppm >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A bid, as far as overflow needs to know it. since: when it was placed.

    not_labels: labels it leaves out. driver_min: the oldest driver it takes; empty: any. at_home:
    conditions that no rented machine meets, as in the query language.
    """

    bid_id: BidId
    tenant_id: TenantId
    market: str
    need: GpuNeed
    labels: tuple[tuple[str, str], ...]
    duration_seconds: int
    earliest_start: datetime
    deadline: datetime
    limit: Rate
    burst_allowed: bool
    is_open: bool
    since: datetime
    not_labels: tuple[tuple[str, str], ...] = ()
    driver_min: str = ""
    at_home: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An earlier try for the same bid. reason: why it failed; None while it is under way."""

    number: int
    cloud: str
    spec: InstanceSpec
    reason: str | None
    over_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spill:
    """The decision to rent: what, at which floor it is listed, and for how long at most."""

    attempt: int
    offer: CloudOffer
    floor: Rate
    ttl_seconds: int
    token: str

    @property
    def price(self) -> Rate:
        """The cloud's price per GPU-hour."""
        return Rate(self.offer.nanos_per_gpu_hour, self.offer.price.currency)

    @property
    def hourly(self) -> Money:
        """The cloud's price of the whole instance per hour."""
        return Money(self.offer.price.nanos_per_instance_hour, self.offer.price.currency)

    @property
    def worst(self) -> Money:
        """What it costs if it runs until the cloud ends it by itself."""
        return self.price.charge(self.offer.gpus * self.ttl_seconds * MILLIS_PER_SECOND)


def due_at(bid: Waiting, rules: SpillRules) -> datetime:
    """Return from when on a bid may spill.

    That is when it has waited long enough, but not so early that the instance would idle before
    the bid may start, and not so late that its deadline is at risk.
    """
    boot = timedelta(seconds=rules.boot_seconds)
    patient = max(bid.since + timedelta(seconds=rules.wait_seconds), bid.earliest_start - boot)
    at_risk = last_chance(bid, rules) - timedelta(seconds=rules.risk_seconds)
    return max(bid.since, min(patient, at_risk))


def last_chance(bid: Waiting, rules: SpillRules) -> datetime:
    """Return the last moment at which a launch can still serve the bid by its deadline."""
    return bid.deadline - timedelta(seconds=bid.duration_seconds + rules.boot_seconds)


def check_due(
    bid: Waiting, attempts: Sequence[Attempt], *, rules: SpillRules, now: datetime
) -> None:
    """Refuse a bid that must not spill now, whatever clouds offer; costs no call to a cloud.

    Raises: BurstNotAllowed, NoCloudWillDo, BidNotWaiting, BurstUnderWay, AttemptsExhausted,
        BurstBackingOff, DeadlineOutOfReach, BurstNotDue.
    """
    if not bid.burst_allowed:
        raise BurstNotAllowed(bid_id=bid.bid_id)
    # Whatever is rented for these waits in vain until it is given back.
    unmet = bid.at_home
    if bid.driver_min and (not rules.driver or version(rules.driver) < version(bid.driver_min)):
        unmet = (*unmet, "driver")
    if unmet:
        raise NoCloudWillDo(conditions=list(unmet))
    if not bid.is_open:
        raise BidNotWaiting(bid_id=bid.bid_id)
    for attempt in attempts:
        if attempt.over_at is None:
            raise BurstUnderWay(bid_id=bid.bid_id, attempt=attempt.number)
    if len(attempts) >= rules.attempts_max:
        reasons = [attempt.reason for attempt in attempts]
        raise AttemptsExhausted(attempts_max=rules.attempts_max, reasons=reasons)
    if now > last_chance(bid, rules):
        raise DeadlineOutOfReach(deadline=bid.deadline, last_chance=last_chance(bid, rules))
    if attempts and attempts[-1].over_at is not None:
        pause = timedelta(seconds=rules.backoff_seconds * 2 ** (len(attempts) - 1))
        if now < attempts[-1].over_at + pause:
            raise BurstBackingOff(until=attempts[-1].over_at + pause)
    if now < due_at(bid, rules):
        raise BurstNotDue(due_at=due_at(bid, rules))


def choose(
    bid: Waiting,
    offers: Sequence[CloudOffer],
    attempts: Sequence[Attempt],
    *,
    rules: SpillRules,
    now: datetime,
) -> Spill:
    """Decide what to rent for a bid now: the offer that serves it at the lowest floor.

    offers: in any order; those that do not serve the bid are passed over.
    attempts: the earlier ones for this bid, oldest first.

    Raises: what `check_due` raises; NoCloudOffer, CloudTooDear.
    """
    check_due(bid, attempts, rules=rules, now=now)
    priced = sorted(
        (
            (floor_of(offer.price, bid.need.gpus, rules), offer)
            for offer in offers
            if offer.serves(bid.need)
            and _bears(offer, bid)
            and offer.price.currency == bid.limit.currency
            and not _was_tried(offer, attempts)
        ),
        key=lambda pair: (pair[0], pair[1].cloud, pair[1].spec),
    )
    if not priced:
        raise NoCloudOffer(bid_id=bid.bid_id)
    floor, offer = priced[0]
    if floor.nanos_per_gpu_hour > bid.limit.nanos_per_gpu_hour:
        raise CloudTooDear(limit=bid.limit, limit_needed=floor)
    attempt = len(attempts) + 1
    early = max(timedelta(0), bid.earliest_start - now)
    return Spill(
        attempt=attempt,
        offer=offer,
        floor=floor,
        ttl_seconds=rules.boot_seconds
        + -(-early // timedelta(seconds=1))
        + bid.duration_seconds
        + rules.idle_seconds_max
        + rules.drain_seconds
        + rules.spare_seconds,
        token=token_of(bid.bid_id, attempt, offer),
    )


def _bears(offer: CloudOffer, bid: Waiting) -> bool:
    labels = set(offered_labels(offer.cloud, offer.spec.instance_type, offer.spec.zone))
    return labels >= set(bid.labels) and labels.isdisjoint(bid.not_labels)


def floor_of(price: InstancePrice, gpus_needed: int, rules: SpillRules) -> Rate:
    """Return what each needed GPU must bring in per hour to pay for the whole instance.

    Clouds rent whole instances: eight GPUs for a bid of two cost that bid four times the price
    of a GPU. Rounds up, so that a lease of the whole span never brings in less than it costs.
    """
    dividend = price.nanos_per_instance_hour * (PPM + rules.margin_ppm)
    return Rate(-(-dividend // (PPM * gpus_needed)), price.currency)


def token_of(bid_id: BidId, attempt: int, offer: CloudOffer) -> str:
    """Return the cloud's idempotency token: 64 hexadecimal digits, EC2's longest.

    It names type and zone too, since a cloud refuses a token that comes back with others.
    """
    spec = offer.spec
    parts = (bid_id, attempt, offer.cloud, spec.instance_type, spec.zone, spec.spot)
    return hashlib.sha256("\n".join(str(part) for part in parts).encode()).hexdigest()


def offered_labels(cloud: str, instance_type: str, zone: str) -> tuple[tuple[str, str], ...]:
    """Return the labels that the host of such an instance bears, in order."""
    return (("cloud", cloud), ("instance-type", instance_type), ("zone", zone))


def _was_tried(offer: CloudOffer, attempts: Sequence[Attempt]) -> bool:
    """Test if an earlier attempt showed that this offer will not do."""
    return any(
        attempt.cloud == offer.cloud
        and (
            (attempt.reason in ZONE_REASONS and attempt.spec == offer.spec)
            or (
                attempt.reason in TYPE_REASONS
                and attempt.spec.instance_type == offer.spec.instance_type
                and attempt.spec.spot == offer.spec.spot
            )
        )
        for attempt in attempts
    )
