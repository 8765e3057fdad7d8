"""What a bidder asks for, and a bid's life: open until it is filled, cancelled or expired."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Literal, assert_never

from ledger.domain.ids import AccountId, BidId, HoldId, LeaseId, SubscriberId, TenantId, UserId
from ledger.domain.money import NANOS_PER_UNIT, CurrencyUnknown, Money, Rate
from ledger.domain.refusal import Invalid, Refusal, Unknown
from marketplace.domain.events import (
    BidAmended,
    BidCancelled,
    BidEvent,
    BidExpired,
    BidFilled,
    BidPlaced,
    GpuRequest,
    Patience,
    Placement,
    ServiceClass,
    Workload,
)
from marketplace.domain.workloads import complete, workload_named

BidState = Literal["open", "filled", "cancelled", "expired"]

GPUS_MAX = 1024
DURATION_MIN = timedelta(minutes=1)
DURATION_MAX = timedelta(days=28)
DEADLINE_AHEAD_MAX = timedelta(days=28)
"""How far ahead the book knows every window, so that a bid that fits nothing now cannot start to
fit because time goes by (see Book)."""
DEADLINE_ROOM = timedelta(days=1)
"""How long a bid that names no deadline may wait for its start."""
START_PAST_MAX = timedelta(minutes=5)
"""A start that lies this far back is a slow request or clock and means now."""
LIMIT_MAX_NANOS = 10_000 * NANOS_PER_UNIT
COMMAND_WORDS_MAX = 256
COMMAND_CHARS_MAX = 8_192
ENVIRONMENT_MAX = 64
LABELS_MAX = 16
TEXT_MAX = 64

_CURRENCY = re.compile(r"[A-Z]{3}")
_MARKET = re.compile(r"[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,63}")
_CAPABILITY = re.compile(r"[1-9][0-9]?\.[0-9]")


class BidUnknown(Unknown):
    """There is no such bid."""


class BidNotOpen(Refusal):
    """That bid is no longer open: `state` says what became of it."""


class BidTermsDiffer(Refusal):
    """A bid with this id exists already, with other terms."""


class BidStillPossible(Refusal):
    """That bid can still be met by its deadline."""


class GpuCountOutOfBounds(Invalid):
    """A bid asks for 1 to 1,024 GPUs."""


class DurationOutOfBounds(Invalid):
    """A bid asks for a whole number of seconds between one minute and 28 days."""


class TimeWithoutZone(Invalid):
    """A time must say its offset from UTC, such as 2026-01-05T18:00:00Z."""


class DeadlineTooSoon(Invalid):
    """Between the earliest start and the deadline there is less time than the bid asks for.

    Set the deadline at `deadline_min` or later, or ask for less time.
    """


class StartInThePast(Invalid):
    """The earliest start lies in the past."""


class DeadlineUnreachable(Invalid):
    """The time asked for no longer fits between now and the deadline."""


class DeadlineTooFarAhead(Invalid):
    """The deadline of a bid lies at most 28 days ahead."""


class LimitOutOfBounds(Invalid):
    """A limit price lies above 0 and is at most 10,000 per GPU-hour."""


class LimitCurrencyDiffers(Invalid):
    """The limit of a bid stays in the currency it was placed in."""


class CommandTooLong(Invalid):
    """A command has at most 256 words and 8,192 characters, without zero bytes."""


class CommandWithoutProgram(Invalid):
    """The first word of a command names the program to run; it cannot be empty.

    Leave the command out altogether to hold the GPUs without running anything.
    """


class EnvironmentUnreadable(Invalid):
    """An environment has at most 64 variables with plain names and 8,192 characters in all."""


class MarketUnreadable(Invalid):
    """A market is a lower-case name such as eu-west."""


class CostCentreUnreadable(Invalid):
    """A cost centre is a printable text of at most 64 characters."""


class RequestUnreadable(Invalid):
    """What is asked of the GPUs is not described as it must be: `field` says what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BidTerms:
    """Everything a bidder chooses. `account_id` pays; see BidPlaced for the rest.

    earliest_start None: at once. deadline None: DEADLINE_ROOM after the earliest possible end.
    """

    bid_id: BidId
    tenant_id: TenantId
    subscriber_id: SubscriberId
    user_id: UserId | None
    account_id: AccountId
    market: str
    request: GpuRequest
    gpus: int
    placement: Placement
    duration_seconds: int
    earliest_start: datetime | None = None
    deadline: datetime | None = None
    limit: Rate
    service_class: ServiceClass
    patience: Patience
    workload: Workload
    cost_centre: str = ""
    burst_allowed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bid:
    """What one bid stream adds up to. limit, deadline: as last amended."""

    STREAM: ClassVar[str] = "bid"

    terms: BidPlaced
    limit: Rate
    deadline: datetime
    state: BidState = "open"
    lease_id: LeaseId | None = None
    version: int = 1

    @property
    def hold(self) -> Money:
        """Return the most the bid can cost: what its hold sets aside."""
        return cost_at_most(self.limit, self.terms.gpus, self.terms.duration_seconds)

    def need_open(self) -> None:
        """Refuse unless the bid still waits for a lease.

        Raises: BidNotOpen.
        """
        if self.state != "open":
            raise BidNotOpen(bid_id=self.terms.bid_id, state=self.state)

    def amend(self, *, limit: Rate, deadline: datetime, now: datetime) -> list[BidAmended]:
        """Decide whether limit and deadline may change; the same again changes nothing.

        Raises: BidNotOpen, LimitCurrencyDiffers, and the bounds of `check_money`, `check_time`.
        """
        self.need_open()
        deadline = _in_utc(deadline)
        if (limit, deadline) == (self.limit, self.deadline):
            return []
        if limit.currency != self.limit.currency:
            raise LimitCurrencyDiffers(currency=self.limit.currency)
        check_money(limit)
        duration = timedelta(seconds=self.terms.duration_seconds)
        _check_deadline(max(self.terms.earliest_start, now), duration, deadline, now)
        return [BidAmended(bid_id=self.terms.bid_id, limit=limit, deadline=deadline, at=now)]

    def cancel(self, *, now: datetime) -> list[BidCancelled]:
        """Decide whether the bidder may withdraw: until it is filled; again changes nothing.

        Raises: BidNotOpen.
        """
        if self.state == "cancelled":
            return []
        self.need_open()
        return [BidCancelled(bid_id=self.terms.bid_id, at=now)]

    def expire(self, *, now: datetime) -> list[BidExpired]:
        """End a bid that can no longer be met; one that is over already stays as it is.

        Raises: BidStillPossible.
        """
        if self.state != "open":
            return []
        latest_start = self.deadline - timedelta(seconds=self.terms.duration_seconds)
        if now <= latest_start:
            raise BidStillPossible(bid_id=self.terms.bid_id, latest_start=latest_start)
        return [BidExpired(bid_id=self.terms.bid_id, at=now)]

    def fill(self, *, lease_id: LeaseId, now: datetime) -> list[BidFilled]:
        """Take up the engine's grant; the same grant again changes nothing.

        Raises: BidNotOpen: it was withdrawn or expired at the same moment.
        """
        if self.state == "filled" and self.lease_id == lease_id:
            return []
        self.need_open()
        return [BidFilled(bid_id=self.terms.bid_id, lease_id=lease_id, at=now)]

    @classmethod
    def evolve(cls, state: Bid | None, event: BidEvent, /) -> Bid:
        """Return the bid after `event`."""
        if isinstance(event, BidPlaced):
            assert state is None
            return cls(terms=event, limit=event.limit, deadline=event.deadline)
        assert state is not None
        version = state.version + 1
        match event:
            case BidAmended():
                return replace(state, limit=event.limit, deadline=event.deadline, version=version)
            case BidCancelled():
                return replace(state, state="cancelled", version=version)
            case BidExpired():
                return replace(state, state="expired", version=version)
            case BidFilled():
                return replace(state, state="filled", lease_id=event.lease_id, version=version)
            case _:
                assert_never(event)


def cost_at_most(limit: Rate, gpus: int, duration_seconds: int) -> Money:
    """Return limit × GPUs × duration."""
    return limit.charge(gpus * duration_seconds * 1000)


def place(terms: BidTerms, *, now: datetime) -> BidPlaced:
    """Decide whether this may be asked at all, and return the bid in its normal form.

    Times come out in UTC and whole milliseconds, an earliest start just gone by as `now`, and a
    request that says nothing of models or memory is completed from the workload's envelope.

    Raises: a refusal for each bound in this module, WorkloadUnknown, CurrencyUnknown.
    """
    if not 1 <= terms.gpus <= GPUS_MAX:
        raise GpuCountOutOfBounds(gpus=terms.gpus, gpus_max=GPUS_MAX)
    duration = timedelta(seconds=terms.duration_seconds)
    if not DURATION_MIN <= duration <= DURATION_MAX:
        raise DurationOutOfBounds(
            seconds_min=DURATION_MIN // timedelta(seconds=1),
            seconds_max=DURATION_MAX // timedelta(seconds=1),
        )
    earliest_start = _in_utc(terms.earliest_start or now)
    deadline = _in_utc(
        terms.deadline or min(earliest_start + duration + DEADLINE_ROOM, now + DEADLINE_AHEAD_MAX)
    )
    if earliest_start < now - START_PAST_MAX:
        raise StartInThePast(earliest_start=earliest_start, now=now)
    _check_deadline(earliest_start, duration, deadline, now)
    check_money(terms.limit)
    if not _MARKET.fullmatch(terms.market):
        raise MarketUnreadable(market=terms.market[:TEXT_MAX])
    if len(terms.cost_centre) > TEXT_MAX or not terms.cost_centre.isprintable():
        raise CostCentreUnreadable()
    _check_request(terms.request)
    check_workload(terms.workload)
    return BidPlaced(
        bid_id=terms.bid_id,
        tenant_id=terms.tenant_id,
        subscriber_id=terms.subscriber_id,
        user_id=terms.user_id,
        account_id=terms.account_id,
        hold_id=HoldId(terms.bid_id),
        market=terms.market,
        request=complete(terms.request, terms.workload.kind, gpus=terms.gpus),
        gpus=terms.gpus,
        placement=terms.placement,
        duration_seconds=terms.duration_seconds,
        earliest_start=earliest_start,
        deadline=deadline,
        limit=terms.limit,
        service_class=terms.service_class,
        patience=terms.patience,
        workload=terms.workload,
        cost_centre=terms.cost_centre,
        burst_allowed=terms.burst_allowed,
        at=now,
    )


def same_terms(placed: BidPlaced, terms: BidTerms) -> bool:
    """Tell if a bid that is there is what `terms` would have made at that moment."""
    return place(terms, now=placed.at) == placed


def _in_utc(moment: datetime) -> datetime:
    if moment.utcoffset() is None:
        raise TimeWithoutZone(given=moment.isoformat())
    moment = moment.astimezone(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def _check_deadline(
    earliest_start: datetime, duration: timedelta, deadline: datetime, now: datetime
) -> None:
    if deadline < earliest_start + duration and earliest_start >= now:
        raise DeadlineTooSoon(deadline=deadline, deadline_min=earliest_start + duration)
    if deadline < now + duration:
        raise DeadlineUnreachable(deadline=deadline, now=now)
    if deadline > now + DEADLINE_AHEAD_MAX:
        raise DeadlineTooFarAhead(deadline=deadline, deadline_max=now + DEADLINE_AHEAD_MAX)


def check_money(limit: Rate) -> None:
    """Refuse a limit price that no market has.

    Raises: LimitOutOfBounds, CurrencyUnknown.
    """
    if not _CURRENCY.fullmatch(limit.currency):
        raise CurrencyUnknown(given=limit.currency[:TEXT_MAX])
    if not 0 < limit.nanos_per_gpu_hour <= LIMIT_MAX_NANOS:
        raise LimitOutOfBounds(nanos_max=LIMIT_MAX_NANOS)


def check_workload(workload: Workload) -> None:
    """Refuse a workload that cannot be handed to a host.

    Raises: WorkloadUnknown, CommandTooLong, CommandWithoutProgram, EnvironmentUnreadable.
    """
    workload_named(workload.kind)
    words = workload.command
    chars = sum(map(len, words))
    if len(words) > COMMAND_WORDS_MAX or chars > COMMAND_CHARS_MAX or "\0" in "".join(words):
        raise CommandTooLong(words=len(words), chars=chars)
    if words and not words[0]:
        raise CommandWithoutProgram()
    names = [name for name, _ in workload.environment]
    chars = sum(len(name) + len(value) for name, value in workload.environment)
    if (
        len(names) > ENVIRONMENT_MAX
        or len(set(names)) != len(names)
        or chars > COMMAND_CHARS_MAX
        or not all(_VARIABLE.fullmatch(name) for name in names)
        or any("\0" in value for _, value in workload.environment)
    ):
        raise EnvironmentUnreadable(variables=len(names), chars=chars)


def _check_request(request: GpuRequest) -> None:
    texts = (*request.models, request.region, request.isolation)
    memory, capability = request.memory_mib_min, request.compute_capability_min
    faults = {
        "models": len(request.models) > LABELS_MAX or any("," in name for name in request.models),
        "memory_mib_min": memory is not None and not 0 < memory <= 16 * 1024 * 1024,
        "compute_capability_min": capability is not None and not _CAPABILITY.fullmatch(capability),
        "labels": len(request.labels) > LABELS_MAX
        or not all(_LABEL.fullmatch(name) for name, _ in request.labels),
        "text": not all(
            0 < len(text) <= TEXT_MAX and text.isprintable() and '"' not in text
            for text in (*texts, *(part for label in request.labels for part in label))
            if text is not None
        ),
    }
    for field, wrong in faults.items():
        if wrong:
            raise RequestUnreadable(field=field)
