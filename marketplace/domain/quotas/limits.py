"""The limits of a bid, user, business unit and tenant: GPUs and memory at once, use in periods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from ledger.domain.money import MILLIS_PER_HOUR, Money
from marketplace.domain.facts.instants import from_below, moment
from marketplace.domain.facts.policy_events import LimitSet
from marketplace.domain.facts.values import Counts
from marketplace.domain.quotas.card_units import in_gpus, in_words, unit_of
from marketplace.domain.quotas.derived_totals import Held
from marketplace.domain.quotas.use import FOREVER, Answer, Use, subject_of

SpentIn = Callable[[int, int], tuple[int, int]]


def at_once(limit: LimitSet, use: Use, held: Held, counts: Counts) -> Answer | None:
    """Return why a use is over a limit at some moment of it; None: it is not.

    held: what its subject has already.
    """
    found: list[tuple[int, int, str]] = []
    for name, unit, allowed, asked, steps in (
        ("GPUs", unit_of(counts), limit.gpus, use.size(counts), held.gpus),
        ("MiB", 1, limit.memory_mib, use.memory_mib, held.memory),
    ):
        if allowed is None:
            continue
        most = allowed * unit
        first = int(steps.times.searchsorted(use.starts, "right")) - 1
        last = int(steps.times.searchsorted(use.ends))
        over = steps.values[first:] > most - asked
        at = int(over[: last - first].argmax())
        if over[at]:
            later = at + int(over[at:].argmin())
            again = FOREVER if over[later] else int(steps.times[first + later])
            had = in_words(int(steps.values[first + at]), unit)
            figures = f"{had} + {in_words(asked, unit)} > {allowed} {name} at one time"
            found.append((max(use.starts, int(steps.times[first + at])), again, figures))
    if not found:
        return None
    _, again, figures = min(found, key=lambda one: one[0])
    return _refused(limit, figures, again)


def in_periods(limit: LimitSet, use: Use, spent: SpentIn, counts: Counts) -> Answer | None:
    """Return why a use is over a limit in some period that it touches; None: it is not.

    spent: what its subject has already in a period, in units × milliseconds and in nano-units.
    """
    hours, money = limit.gpu_hours, limit.money
    if money is not None and money.currency != use.terms.limit.currency:
        money = None
    if hours is None and money is None:
        return None
    spans = [(use.starts, use.ends)]
    if limit.scope != "bid":
        spans = list(periods(limit.period, use.starts, use.ends))
    size, hour = use.size(counts), MILLIS_PER_HOUR * unit_of(counts)
    for starts, ends in spans:
        lasts, (used, paid) = use.during(starts, ends), spent(starts, ends)

        def again(most: int, of_each: int, ends: int = ends) -> int:
            # Started later, less of it lies in the period: from then on, no more than is left.
            return FOREVER if limit.scope == "bid" else ends - max(0, most) // of_each

        if hours is not None and used + size * lasts > hours * hour:
            figures = f"{used / hour:g} + {size * lasts / hour:g} > {hours} GPU-hours"
            return _refused(
                limit, f"{figures} in the {limit.period}", again(hours * hour - used, size)
            )
        if money is not None:
            cost = use.count * lasts * use.price // MILLIS_PER_HOUR
            if cost and paid + cost > money.nanos:
                figures = f"{Money(paid, money.currency)} + {Money(cost, money.currency)} > {money}"
                most = ((money.nanos - paid + 1) * MILLIS_PER_HOUR - 1) // use.price
                return _refused(limit, f"{figures} in the {limit.period}", again(most, use.count))
    return None


def _refused(limit: LimitSet, figures: str, again: int) -> Answer:
    return Answer("refused", f"limit-{limit.scope}", figures, again)


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
    """What is used of a limit: at one moment, and in the period around it. money: nano-units.

    gpus, gpu_millis: as they are counted, with at most three decimals.
    """

    gpus: float
    memory_mib: int
    gpu_millis: int
    money: int


def use_of_limit(
    limit: LimitSet, counted: Iterable[Use], at: int, subject: UUID, counts: Counts
) -> LimitUse:
    """Return what a subject uses of a limit at a moment."""
    mine = [use for use in counted if subject_of(limit.scope, use.terms) == subject]
    now = [use for use in mine if use.starts <= at < use.ends]
    [(starts, ends)] = periods(limit.period, at, at + 1)
    currency, unit = None if limit.money is None else limit.money.currency, unit_of(counts)
    return LimitUse(
        gpus=in_gpus(sum(use.size(counts) for use in now), unit),
        memory_mib=sum(use.memory_mib for use in now),
        gpu_millis=sum(use.size(counts) * use.during(starts, ends) for use in mine) // unit,
        money=sum(
            use.within(starts, ends) * use.price // MILLIS_PER_HOUR
            for use in mine
            if use.terms.limit.currency == currency
        ),
    )
