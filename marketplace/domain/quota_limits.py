"""The limits of a bid, user, business unit and tenant: GPUs and memory at once, use in periods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.domain.governance_events import LimitScope, LimitSet
from marketplace.domain.moments import from_below, moment
from marketplace.domain.quota_uses import FOREVER, Answer, Use


def subject_of(scope: LimitScope, use: Use) -> UUID | None:
    terms = use.terms
    match scope:
        case "bid":
            return terms.bid_id
        case "user":
            return terms.user_id
        case "subscriber":
            return terms.subscriber_id
        case "tenant":
            return terms.tenant_id


def at_once(limit: LimitSet, use: Use, mine: Sequence[Use]) -> Answer | None:
    during = [each for each in mine if each.starts < use.ends and use.starts < each.ends]
    moments = sorted({use.starts, *(e.starts for e in during if e.starts > use.starts)})
    for at in moments:
        there = [each for each in during if each.starts <= at < each.ends]
        for name, most, asked, used in (
            ("GPUs", limit.gpus, use.count, sum(each.count for each in there)),
            ("MiB", limit.memory_mib, use.memory_mib, sum(each.memory_mib for each in there)),
        ):
            if most is not None and used + asked > most:
                again = min((each.ends for each in there), default=FOREVER)
                return _refused(limit, f"{used} + {asked} > {most} {name} at one time", again)
    return None


def in_periods(limit: LimitSet, use: Use, mine: Sequence[Use]) -> Answer | None:
    hours, money = limit.gpu_hours, limit.money
    if money is not None and money.currency != use.terms.limit.currency:
        money = None
    if hours is None and money is None:
        return None
    spans = [(use.starts, use.ends)]
    if limit.scope != "bid":
        spans = list(periods(limit.period, use.starts, use.ends))
    for starts, ends in spans:
        asked, used = use.within(starts, ends), sum(each.within(starts, ends) for each in mine)
        again = ends if limit.scope != "bid" else FOREVER
        if hours is not None and used + asked > hours * MILLIS_PER_HOUR:
            said = f"{_hours(used)} + {_hours(asked)} > {hours} GPU-hours in the {limit.period}"
            return _refused(limit, said, again)
        if money is not None:
            paid = sum(
                each.within(starts, ends) * each.price // MILLIS_PER_HOUR
                for each in mine
                if each.terms.limit.currency == money.currency
            )
            cost = asked * use.price // MILLIS_PER_HOUR
            if paid + cost > money.nanos:
                said = f"{paid} + {cost} > {money.nanos} nano-{money.currency}"
                return _refused(limit, f"{said} in the {limit.period}", again)
    return None


def _hours(gpu_millis: int) -> str:
    return f"{gpu_millis / MILLIS_PER_HOUR:g}"


def _refused(limit: LimitSet, said: str, again: int) -> Answer:
    return Answer("refused", f"limit-{limit.scope}", said, again)


def periods(period: str, starts: int, ends: int) -> Iterator[tuple[int, int]]:
    """Yield the days, weeks (from Monday) or months, in UTC, that a span touches."""
    at = moment(starts).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "week":
        at -= timedelta(days=at.weekday())
    elif period == "month":
        at = at.replace(day=1)
    while from_below(at) < ends:
        after = _next(period, at)
        yield from_below(at), from_below(after)
        at = after


def _next(period: str, at: datetime) -> datetime:
    if period == "month":
        return (at + timedelta(days=32)).replace(day=1)
    return at + timedelta(days=7 if period == "week" else 1)


@dataclass(frozen=True, slots=True)
class LimitUse:
    """What is used of a limit: at one moment, and in the period around it. money: nano-units."""

    gpus: int
    memory_mib: int
    gpu_millis: int
    money: int


def use_of_limit(limit: LimitSet, counted: Iterable[Use], at: int, subject: UUID) -> LimitUse:
    """Return what a subject uses of a limit at a moment."""
    mine = [use for use in counted if subject_of(limit.scope, use) == subject]
    now = [use for use in mine if use.starts <= at < use.ends]
    [(starts, ends)] = periods(limit.period, at, at + 1)
    currency = None if limit.money is None else limit.money.currency
    return LimitUse(
        gpus=sum(use.count for use in now),
        memory_mib=sum(use.memory_mib for use in now),
        gpu_millis=sum(use.within(starts, ends) for use in mine),
        money=sum(
            use.within(starts, ends) * use.price // MILLIS_PER_HOUR
            for use in mine
            if use.terms.limit.currency == currency
        ),
    )
