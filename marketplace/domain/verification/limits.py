"""Prove that a round keeps the limits of bids, users, business units and tenants.

Adds up what each of them has, at one time and in each period; asks nobody what is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from itertools import chain
from typing import NamedTuple
from uuid import UUID

from ledger.domain.ids import LeaseId
from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.domain.facts.faults import Fault
from marketplace.domain.facts.instants import from_below, moment
from marketplace.domain.facts.policy_events import LimitSet
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.domain.quotas.use import Use
from marketplace.domain.verification.card_units import Size, gpus_of_all


@dataclass(frozen=True, slots=True)
class Counted:
    """A use, and the grant that it is of; None: it was there before the round."""

    use: Use
    lease_id: LeaseId | None = None

    def during(self, starts: int, ends: int) -> int:
        """Return for how many milliseconds between two moments it lasts."""
        return max(0, min(self.use.ends, ends) - max(self.use.starts, starts))


class Step(NamedTuple):
    """A use begins, or ends. number: of a grant, in its round; None: it was there before."""

    counted: Counted
    number: int | None
    begins: bool


def over_time(
    before: Sequence[Counted], mine: Sequence[Counted], changes: Iterable[int]
) -> Iterator[tuple[int, Sequence[Step]]]:
    """Yield the moments at which anything begins, ends or changes, with what ends and begins."""
    ends: dict[int, list[Step]] = defaultdict(list)
    begins: dict[int, list[Step]] = defaultdict(list)
    numbered = chain(((None, each) for each in before), enumerate(mine))
    for number, each in numbered:
        if each.use.starts < each.use.ends:
            begins[each.use.starts].append(Step(each, number, begins=True))
            ends[each.use.ends].append(Step(each, number, begins=False))
    for at in sorted({*begins, *ends, *changes}):
        yield at, (*ends.get(at, ()), *begins.get(at, ()))


def faults_of_limits(
    policies: Policies, there: Sequence[Counted], over: Sequence[Counted], new: Sequence[Counted]
) -> Iterator[Fault]:
    """Find grants of a round that go beyond a limit, the last of them first.

    there: what runs or will, of earlier rounds; over: what has ended. new: of the round.
    """
    for limit in policies.limits.values():
        yield from _limit(policies, limit, there, over, new)


def _limit(
    policies: Policies,
    limit: LimitSet,
    there: Sequence[Counted],
    over: Sequence[Counted],
    new: Sequence[Counted],
) -> Iterator[Fault]:
    """Check one limit for each one that it is for: it has none of its own, or this is it."""
    subjects: dict[UUID, list[Counted]] = defaultdict(list)
    for each in new:
        subject = _subject(limit, each)
        own = policies.limits.get((limit.scope, subject), limit) if subject else None
        if subject is None or own is not limit or limit.subject not in (None, subject):
            continue
        if limit.tenant_id in (None, each.use.terms.tenant_id):
            subjects[subject].append(each)
    held, ended = _by_subject(limit, there), _by_subject(limit, over)
    for subject, mine in subjects.items():
        others, done = held[subject], ended[subject]
        yield from _at_once(policies, limit, "GPUs", others, mine)
        yield from _at_once(policies, limit, "MiB", others, mine)
        yield from _in_all(policies, limit, [*others, *done], mine)


def _by_subject(limit: LimitSet, all_of: Iterable[Counted]) -> dict[UUID | None, list[Counted]]:
    found: dict[UUID | None, list[Counted]] = defaultdict(list)
    for each in all_of:
        found[_subject(limit, each)].append(each)
    return found


def _subject(limit: LimitSet, counted: Counted) -> UUID | None:
    terms = counted.use.terms
    match limit.scope:
        case "bid":
            return terms.bid_id
        case "user":
            return terms.user_id
        case "subscriber":
            return terms.subscriber_id
        case "tenant":
            return terms.tenant_id


def _at_once(
    policies: Policies,
    limit: LimitSet,
    unit: str,
    others: Sequence[Counted],
    mine: Sequence[Counted],
) -> Iterator[Fault]:
    most = limit.gpus if unit == "GPUs" else limit.memory_mib
    if most is None:
        return

    def size(counted: Counted) -> Size:
        return gpus_of_all(policies, counted.use) if unit == "GPUs" else counted.use.memory_mib

    total: Size = 0
    now = dict[int, Counted]()
    for _, steps in over_time(others, mine, ()):
        for counted, number, begins in steps:
            if number is not None and begins:
                now[number] = counted
            elif number is not None and now.pop(number, None) is None:
                continue  # it was at fault, and counts no more
            total += size(counted) if begins else -size(counted)
        for number in sorted(now, reverse=True):
            if total <= most:
                break
            each = now.pop(number)
            yield Fault(f"limit {limit.scope}: {total} > {most} {unit}", each.lease_id)
            total -= size(each)


def _in_all(
    policies: Policies, limit: LimitSet, others: Sequence[Counted], mine: Sequence[Counted]
) -> Iterator[Fault]:
    """Check GPU-hours and money, in the periods that the grants touch, or of a bid in all."""
    kept = list(mine)
    first, last = min(e.use.starts for e in mine), max(e.use.ends for e in mine)
    spans = [(first, last)] if limit.scope == "bid" else list(_periods(limit.period, first, last))
    for starts, ends in spans:
        for name, most in _figures(limit):
            total = sum(
                _part(policies, limit, name, each, starts, ends) for each in (*others, *kept)
            )
            for each in reversed(list(kept)):
                part = _part(policies, limit, name, each, starts, ends)
                if total > most and part:
                    yield Fault(f"limit {limit.scope}: {total} > {most} {name}", each.lease_id)
                    kept.remove(each)
                    total -= part


def _figures(limit: LimitSet) -> Iterator[tuple[str, int]]:
    if limit.gpu_hours is not None:
        yield "GPU-milliseconds", limit.gpu_hours * MILLIS_PER_HOUR
    if limit.money is not None:
        yield f"nano-{limit.money.currency}", limit.money.nanos


def _part(
    policies: Policies, limit: LimitSet, name: str, counted: Counted, starts: int, ends: int
) -> Size:
    use, lasts = counted.use, counted.during(starts, ends)
    if name == "GPU-milliseconds":
        return lasts * gpus_of_all(policies, use)
    same = limit.money is not None and limit.money.currency == use.terms.limit.currency
    return lasts * use.count * use.price // MILLIS_PER_HOUR if same else 0


def _periods(period: str, starts: int, ends: int) -> Iterator[tuple[int, int]]:
    """Yield the days, weeks from Monday, or months, in UTC, that a span touches."""
    day = moment(starts).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    monday = day - timedelta(days=day.weekday())
    at = {"day": day, "week": monday, "month": day.replace(day=1)}[period]
    while from_below(at) < ends:
        step = {"day": 1, "week": 7, "month": 32}[period]
        after = at + timedelta(days=step)
        after = after.replace(day=1) if period == "month" else after
        yield from_below(at), from_below(after)
        at = after
