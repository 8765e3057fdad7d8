"""The bounds of what may be asked, and the refusals of what lies beyond them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from ledger.domain.money import NANOS_MAX, NANOS_PER_UNIT, CurrencyUnknown, Money, Rate
from ledger.domain.refusal import Invalid
from listings.domain.sandboxes import LEVELS, NETWORKS
from marketplace.domain.bids.images import check_image
from marketplace.domain.bids.query_language import (
    DRIVER,
    HOSTS_MAX,
    LINKED_MAX,
    MOST_ASKED,
    PREFERENCE,
    PREFERENCES_MAX,
    fits,
)
from marketplace.domain.bids.workload_profiles import workload_named
from marketplace.domain.facts.events import GoodTill, GpuRequest, Patience, Seeks, Workload
from marketplace.domain.files.outputs import need_outputs
from marketplace.domain.secrets.secret import SecretsInContainer, need_named

GPUS_MAX = 1024
DURATION_MIN = timedelta(minutes=1)
DURATION_MAX = timedelta(days=28)
DEADLINE_AHEAD_MAX = timedelta(days=28)
"""How far ahead the book knows every window, so that a bid that fits nothing now cannot start to
fit because time goes by (see Book)."""
REPEAT_AHEAD_MAX = timedelta(days=366)
DEADLINE_ROOM = timedelta(days=1)
"""How long a bid that names no deadline may wait for its start."""
START_PAST_MAX = timedelta(minutes=5)
"""A start that lies this far back is a slow request or clock and means now."""
LIMIT_MAX_NANOS = 10_000 * NANOS_PER_UNIT
COMMAND_WORDS_MAX = 256
COMMAND_CHARS_MAX = 8_192
ENVIRONMENT_MAX = 64
LABELS_MAX = 16
REGIONS_MAX = 12
TEXT_MAX = 64
RESUMES_LEASE = "OFFPEAK_RESUMES_LEASE"
"""Tells the work of a bid that follows another which lease came before: where to look for its
checkpoint."""
RESUMES_FROM = "OFFPEAK_RESUMES_FROM"
"""Tells it the moment of that lease up to which it was safe, where one was reported."""
CHECKPOINT_SECONDS_MAX = 86_400

_CURRENCY = re.compile(r"[A-Z]{3}")
_MARKET = re.compile(r"[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,63}")
_CAPABILITY = re.compile(r"[1-9][0-9]?\.[0-9]")


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


class MinimumOutOfBounds(Invalid):
    """The least a bid makes do with lies between one GPU or one minute and what it asks for.

    Leave it out where nothing less will do.
    """


class GoodTillUnfit(Invalid):
    """A bid is good till a moment between now and its deadline, or without one of another kind."""


class NeverWaits(Invalid):
    """A bid that is filled at once or never does not wait for a round.

    Leave `patience` at immediate, or let the bid wait.
    """


class FillOrKillIsWhole(Invalid):
    """Fill or kill takes all of it or nothing, so there can be no minimum.

    Say immediate-or-cancel to take what can be had at once.
    """


class BudgetOutOfBounds(Invalid):
    """A budget is more than nothing, in the currency of the limit."""


class ExtensionOutOfBounds(Invalid):
    """A lease is extended until a moment after its earliest end, at most 28 days ahead."""


class RepeatOutOfBounds(Invalid):
    """A bid is placed again until a moment after its earliest end, at most 366 days ahead."""


class RepeatWaits(Invalid):
    """A bid that is placed again waits as long as it can be met.

    Leave `good_till` at deadline.
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


class SoonestIsAtOnce(Invalid):
    """Bids of a round start when it is worth the most: the soonest start is for immediate ones."""


class CheckpointsOutOfBounds(Invalid):
    """Work that goes on from where it was says how much it loses: one second to one day."""


class EnvironmentUnreadable(Invalid):
    """An environment has at most 64 variables with plain names and 8,192 characters in all."""


class MarketUnreadable(Invalid):
    """A market is a lower-case name such as eu-west."""


class CostCentreUnreadable(Invalid):
    """A cost centre is a printable text of at most 64 characters."""


class RequestUnreadable(Invalid):
    """What is asked of the GPUs is not described as it must be: `field` says what is wrong."""


def check_size(
    *, gpus: int, gpus_min: int | None, seconds: int, seconds_min: int | None
) -> tuple[int | None, int | None]:
    """Return the least numbers of GPUs and seconds, None where that is all that is asked for.

    Raises: GpuCountOutOfBounds, DurationOutOfBounds, MinimumOutOfBounds.
    """
    if not 1 <= gpus <= GPUS_MAX:
        raise GpuCountOutOfBounds(gpus=gpus, gpus_max=GPUS_MAX)
    shortest, longest = (each // timedelta(seconds=1) for each in (DURATION_MIN, DURATION_MAX))
    if not shortest <= seconds <= longest:
        raise DurationOutOfBounds(seconds_min=shortest, seconds_max=longest)
    if gpus_min is not None and not 1 <= gpus_min <= gpus:
        raise MinimumOutOfBounds(gpus_min=gpus_min, gpus=gpus)
    if seconds_min is not None and not shortest <= seconds_min <= seconds:
        raise MinimumOutOfBounds(duration_min_seconds=seconds_min, duration_seconds=seconds)
    return (None if gpus_min == gpus else gpus_min, None if seconds_min == seconds else seconds_min)


def check_lasting(
    good_till: GoodTill,
    good_until: datetime | None,
    *,
    patience: Patience,
    has_ranges: bool,
    deadline: datetime,
    now: datetime,
) -> datetime | None:
    """Return the moment a bid is good till, if it has one.

    Raises: GoodTillUnfit, NeverWaits, FillOrKillIsWhole, TimeWithoutZone.
    """
    if (good_until is not None) != (good_till == "good-till-moment"):
        raise GoodTillUnfit(good_till=good_till)
    if good_until is not None:
        good_until = in_utc(good_until)
        if not now < good_until <= deadline:
            raise GoodTillUnfit(good_till=good_until, deadline=deadline)
    if good_till in ("immediate-or-cancel", "fill-or-kill") and patience == "patient":
        raise NeverWaits(good_till=good_till)
    if good_till == "fill-or-kill" and has_ranges:
        raise FillOrKillIsWhole()
    return good_until


def check_extension(
    until: datetime | None, *, earliest_end: datetime, now: datetime
) -> datetime | None:
    """Return until when a lease is extended by itself, if it is.

    Raises: ExtensionOutOfBounds, TimeWithoutZone.
    """
    if until is None:
        return None
    until = in_utc(until)
    if not earliest_end < until <= now + DEADLINE_AHEAD_MAX:
        raise ExtensionOutOfBounds(
            auto_extend_until=until, earliest_end=earliest_end, latest=now + DEADLINE_AHEAD_MAX
        )
    return until


def check_repeat(
    until: datetime | None, good_till: GoodTill, *, earliest_end: datetime, now: datetime
) -> datetime | None:
    """Return until when a bid is placed again, if it is.

    Raises: RepeatOutOfBounds, RepeatWaits, TimeWithoutZone.
    """
    if until is None:
        return None
    until = in_utc(until)
    if not earliest_end <= until <= now + REPEAT_AHEAD_MAX:
        raise RepeatOutOfBounds(
            repeat_until=until, earliest_end=earliest_end, latest=now + REPEAT_AHEAD_MAX
        )
    if good_till != "good-till-deadline":
        raise RepeatWaits(good_till=good_till)
    return until


def check_seeks(seeks: Seeks, patience: Patience) -> Seeks:
    """Return which places a bid takes first.

    Raises: SoonestIsAtOnce.
    """
    if seeks == "soonest" and patience == "patient":
        raise SoonestIsAtOnce()
    return seeks


def check_account(*, market: str, cost_centre: str) -> None:
    """Refuse names that cannot be.

    Raises: MarketUnreadable, CostCentreUnreadable.
    """
    if not _MARKET.fullmatch(market):
        raise MarketUnreadable(market=market[:TEXT_MAX])
    if len(cost_centre) > TEXT_MAX or not cost_centre.isprintable():
        raise CostCentreUnreadable()


def check_start(earliest_start: datetime, now: datetime) -> None:
    """Refuse a start that is long over.

    Raises: StartInThePast.
    """
    if earliest_start < now - START_PAST_MAX:
        raise StartInThePast(earliest_start=earliest_start, now=now)


def in_utc(moment: datetime) -> datetime:
    """Return the instant in UTC, in whole milliseconds.

    Raises: TimeWithoutZone.
    """
    if moment.utcoffset() is None:
        raise TimeWithoutZone(given=moment.isoformat())
    moment = moment.astimezone(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def check_deadline(
    earliest_start: datetime, duration: timedelta, deadline: datetime, now: datetime
) -> None:
    """Refuse a deadline by which the least that is asked for cannot be done, or too far ahead.

    Raises: DeadlineTooSoon, DeadlineUnreachable, DeadlineTooFarAhead.
    """
    if deadline < earliest_start + duration and earliest_start >= now:
        raise DeadlineTooSoon(deadline=deadline, deadline_min=earliest_start + duration)
    if deadline < now + duration:
        raise DeadlineUnreachable(deadline=deadline, now=now)
    if deadline > now + DEADLINE_AHEAD_MAX:
        raise DeadlineTooFarAhead(deadline=deadline, deadline_max=now + DEADLINE_AHEAD_MAX)


def check_money(limit: Rate, budget: Money | None = None) -> None:
    """Refuse a limit price that no market has, and a budget that is none.

    Raises: LimitOutOfBounds, BudgetOutOfBounds, CurrencyUnknown.
    """
    if not _CURRENCY.fullmatch(limit.currency):
        raise CurrencyUnknown(given=limit.currency[:TEXT_MAX])
    if not 0 < limit.nanos_per_gpu_hour <= LIMIT_MAX_NANOS:
        raise LimitOutOfBounds(most=Rate(LIMIT_MAX_NANOS, limit.currency))
    if budget is not None and (
        budget.currency != limit.currency or not 0 < budget.nanos <= NANOS_MAX
    ):
        raise BudgetOutOfBounds(most=Money(NANOS_MAX, limit.currency))


def check_workload(workload: Workload) -> None:
    """Refuse a workload that cannot be handed to a host.

    Raises: WorkloadUnknown, CommandTooLong, CommandWithoutProgram, EnvironmentUnreadable,
        CheckpointsOutOfBounds, ImageWithoutDigest, OutputsUnreadable, SecretsUnclear,
        SecretNameUnfit.
    """
    workload_named(workload.kind)
    check_image(workload.image)
    need_outputs(workload.outputs)
    if workload.image and workload.secrets:
        raise SecretsInContainer()
    need_named(workload.secrets, workload.secret_variables, dict(workload.environment))
    every = workload.checkpoint_seconds
    if every is not None and not 1 <= every <= CHECKPOINT_SECONDS_MAX:
        raise CheckpointsOutOfBounds(seconds_max=CHECKPOINT_SECONDS_MAX)
    words = workload.command
    chars = sum(map(len, words))
    if len(words) > COMMAND_WORDS_MAX or chars > COMMAND_CHARS_MAX or "\0" in "".join(words):
        raise CommandTooLong(words=len(words), chars=chars)
    if words and not words[0]:
        raise CommandWithoutProgram()
    # What the market adds itself takes no room of the bidder's.
    names = [name for name, _ in workload.environment if name not in (RESUMES_LEASE, RESUMES_FROM)]
    chars = sum(len(name) + len(value) for name, value in workload.environment)
    if (
        len(names) > ENVIRONMENT_MAX
        or len(set(names)) != len(names)
        or chars > COMMAND_CHARS_MAX
        or not all(_VARIABLE.fullmatch(name) for name in names)
        or any("\0" in value for _, value in workload.environment)
    ):
        raise EnvironmentUnreadable(variables=len(names), chars=chars)


def check_request(request: GpuRequest) -> None:
    """Refuse a request that the query language could not write.

    Raises: RequestUnreadable.
    """
    texts = (
        *(*request.models, *request.not_models, request.isolation),
        *(request.region, *request.other_regions, *request.not_regions),
    )
    labels = (*request.labels, *request.not_labels)
    memory, capability = request.memory_mib_min, request.compute_capability_min
    faults = {
        "models": len(request.models) > LABELS_MAX or any("," in name for name in request.models),
        "not_models": len(request.not_models) > LABELS_MAX
        or any("," in name for name in request.not_models),
        "regions": max(len(request.regions), len(request.not_regions)) > REGIONS_MAX
        or any("," in name for name in (*request.regions, *request.not_regions))
        or (request.region is None and bool(request.other_regions)),
        "memory_mib_min": memory is not None and not 0 < memory <= 16 * 1024 * 1024,
        "compute_capability_min": capability is not None and not _CAPABILITY.fullmatch(capability),
        "compute_percent_min": request.compute_percent_min is not None
        and not 1 <= request.compute_percent_min <= 100,
        "driver_min": request.driver_min is not None and not DRIVER.fullmatch(request.driver_min),
        "nvlink_min": request.nvlink_min is not None
        and not (request.nvlink and 2 <= request.nvlink_min <= LINKED_MAX),
        "hosts": max(len(request.hosts), len(request.not_hosts)) > HOSTS_MAX,
        "prefer": len(request.prefer) > PREFERENCES_MAX
        or not all(map(PREFERENCE.fullmatch, request.prefer)),
        **{name: not fits(getattr(request, name), most) for name, most in MOST_ASKED.items()},
        "sandbox_min": request.sandbox_min is not None and request.sandbox_min not in LEVELS,
        "network": request.network is not None and request.network not in NETWORKS,
        "labels": len(labels) > LABELS_MAX or not all(_LABEL.fullmatch(name) for name, _ in labels),
        "text": not all(
            0 < len(text) <= TEXT_MAX and text.isprintable() and '"' not in text
            for text in (*texts, *(part for label in labels for part in label))
            if text is not None
        ),
    }
    for field, wrong in faults.items():
        if wrong:
            raise RequestUnreadable(field=field)


GOOD_TILL_WORDS: dict[str, GoodTill] = {
    "deadline": "good-till-deadline",
    "immediate-or-cancel": "immediate-or-cancel",
    "fill-or-kill": "fill-or-kill",
}
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?\S{1,6}")


class GoodTillUnreadable(Invalid):
    """A bid is good till its deadline, a moment such as 2026-01-05T18:00:00Z, or not at all.

    Write deadline, immediate-or-cancel, fill-or-kill or a moment.
    """


def read_good_till(text: str) -> tuple[GoodTill, datetime | None]:
    """Return how long a bid waits, and until which moment if it is one.

    Raises: GoodTillUnreadable, TimeWithoutZone.
    """
    known = GOOD_TILL_WORDS.get(text)
    if known is not None:
        return known, None
    try:
        if not _MOMENT.fullmatch(text):
            raise ValueError
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise GoodTillUnreadable(given=text[:40]) from None
    return "good-till-moment", in_utc(moment)


def write_good_till(good_till: str, good_until: datetime | None) -> str:
    """Write it so that it reads back the same."""
    if good_until is not None:
        return good_until.isoformat().replace("+00:00", "Z")
    return next(word for word, known in GOOD_TILL_WORDS.items() if known == good_till)
