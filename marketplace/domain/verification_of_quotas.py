"""Prove that a round keeps the policies of its market: quotas of cohorts, limits, permissions.

Works out from the policies as they were set what may be used at each moment, and adds up what is.
It shares nothing with the gate that let the grants through: that one asks for each grant what is
left, this one compares sums. What was over its quota before, because an override ended, is not
held against a round that does not add to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from ledger.domain.ids import LeaseId
from ledger.domain.money import MILLIS_PER_HOUR
from listings.domain.gpus import model_matches
from marketplace.domain.book import Book
from marketplace.domain.events import LeaseGranted
from marketplace.domain.faults import Fault
from marketplace.domain.governance_events import LimitSet, QuotaOverridden, QuotaSet
from marketplace.domain.moments import from_above, from_below, moment
from marketplace.domain.policies import Policies
from marketplace.domain.quota_uses import Use, gpus_of


@dataclass(frozen=True, slots=True)
class _Counted:
    """A use, and the grant that it is of; None: it was there before the round."""

    use: Use
    lease_id: LeaseId | None = None

    def during(self, starts: int, ends: int) -> int:
        """Return for how many milliseconds between two moments it lasts."""
        return max(0, min(self.use.ends, ends) - max(self.use.starts, starts))


def faults_of_quotas(book: Book, grants: Sequence[LeaseGranted]) -> Iterator[Fault]:
    """Find grants that take more than quotas and limits leave, the last ones first."""
    if book.quotas is None or book.quotas.policies is None:
        return
    policies = book.quotas.policies
    cut = {each.lease_id: from_above(each.ends_at) for g in grants for each in g.cuts}
    there = [
        _Counted(use if lease_id not in cut else _until(use, cut[lease_id]))
        for lease_id, use in book.quotas.uses.items()
    ]
    over = [_Counted(use) for use in book.quotas.over]
    new = [_Counted(use, granted.lease_id) for granted in grants for use in _use(book, granted)]
    for gpu_class in policies.classes:
        yield from _in_class(policies, gpu_class, there, new)
    yield from _permits(policies, new)
    for limit in policies.limits.values():
        yield from _limit(policies, limit, there, over, new)


def _until(use: Use, ends: int) -> Use:
    return Use(use.terms, use.gpus, use.starts, min(use.ends, ends), use.price)


def _use(book: Book, granted: LeaseGranted) -> Iterator[Use]:
    bid = book.bids.get(granted.bid_id)
    if bid is None:
        return
    gpus = [
        (gpu.model, gpu.memory_mib)
        for share in granted.shares
        if share.offer_id in book.offers
        for gpu in book.offers[share.offer_id].terms.gpus
        if gpu.uuid in share.gpu_uuids
    ]
    starts, ends = from_below(granted.window.starts_at), from_above(granted.window.ends_at)
    yield Use(bid.terms, gpus_of(gpus), starts, ends, granted.price.nanos_per_gpu_hour)


# --- quotas of cohorts ------------------------------------------------------------------------


class _Rules:
    """What units and cohorts may use of a class at one moment, as the policies say."""

    def __init__(self, policies: Policies, gpu_class: str, at: datetime) -> None:
        self.parents: dict[str, str | None] = {
            **{name: each.parent for name, each in policies.cohorts.items()},
            **{name: each.cohort for name, each in policies.units.items()},
        }
        self.said: dict[str, QuotaSet | QuotaOverridden] = {
            node: each for (node, of), each in policies.quotas.items() if of == gpu_class
        }
        for each in policies.overrides.values():
            if each.gpu_class == gpu_class and each.starts_at <= at < each.ends_at:
                self.said[each.node] = each
        self.members: dict[str, list[str]] = defaultdict(list)
        for node, parent in self.parents.items():
            if parent is not None:
                self.members[parent].append(node)
        self._grants = {name for name, each in policies.cohorts.items() if each.tenant_id}

    def own(self, node: str) -> int:
        """Return a node's nominal quota; of a tenant's grant what it has not shared out."""
        said = self.said.get(node)
        nominal = 0 if said is None or said.nominal is None else said.nominal
        if node in self._grants and nominal:
            given = (self.said.get(member) for member in self.members[node])
            nominal -= sum(each.nominal or 0 for each in given if each is not None)
        return max(0, nominal)

    def has(self, node: str) -> int:
        """Return what a node has with all that its members lend it."""
        return self.own(node) + sum(self.lends(member) for member in self.members[node])

    def lends(self, node: str) -> int:
        """Return how much of what a node has others in its cohort may use."""
        said = self.said.get(node)
        has = self.has(node)
        return has if said is None or said.lending is None else min(has, said.lending)

    def around(self, node: str) -> list[str]:
        """Return a node and the cohorts it is in, from the inside."""
        path = [node]
        while (parent := self.parents[path[-1]]) is not None:
            path.append(parent)
        return path

    def binds(self, node: str) -> bool:
        """Tell if quota is set anywhere in the outermost cohort of a unit."""
        root = self.around(node)[-1]
        return any(
            each.nominal is not None and name in self.parents and self.around(name)[-1] == root
            for name, each in self.said.items()
        )

    def used(self, direct: Mapping[str, int], node: str) -> int:
        """Return what a node uses, with what its members use beyond what is theirs alone."""
        return direct.get(node, 0) + sum(
            max(0, self.used(direct, member) - (self.has(member) - self.lends(member)))
            for member in self.members[node]
        )

    def most(self, node: str) -> int | None:
        """Return what a node may use at most; None: whatever its cohort lets it."""
        said = self.said.get(node)
        if self.parents[node] is None:
            return self.has(node)
        if said is None or said.borrowing is None:
            return None
        return self.has(node) + said.borrowing


def _in_class(
    policies: Policies, gpu_class: str, there: Sequence[_Counted], new: Sequence[_Counted]
) -> Iterator[Fault]:
    mine = [each for each in new if each.use.of_class(gpu_class) and _unit(each) in policies.units]
    if not mine:
        return
    before = [each for each in there if each.use.of_class(gpu_class)]
    changes = {from_above(at) for at in policies.changes_of(gpu_class)}
    moments = {each.use.starts for each in (*mine, *before)} | changes
    rules: dict[int, _Rules] = {}
    dropped = set[LeaseId | None]()
    for at in sorted(moments):
        now = [each for each in mine if each.use.starts <= at < each.use.ends]
        if not now:
            continue
        since = max((each for each in changes if each <= at), default=-1)
        if since not in rules:
            rules[since] = _Rules(policies, gpu_class, moment(at))
        held = [each for each in before if each.use.starts <= at < each.use.ends]
        for fault in _at_moment(policies, gpu_class, rules[since], held, now):
            if fault.lease_id not in dropped:
                dropped.add(fault.lease_id)
                yield fault


def _at_moment(
    policies: Policies,
    gpu_class: str,
    rules: _Rules,
    held: Sequence[_Counted],
    now: Sequence[_Counted],
) -> Iterator[Fault]:
    """Find at one moment whoever takes more than there is, the last of the round first."""
    direct: dict[str, int] = defaultdict(int)
    for each in held:
        if _unit(each) in rules.parents:
            direct[_unit(each)] += each.use.of_class(gpu_class)
    before = dict(direct)
    for each in now:
        direct[_unit(each)] += each.use.of_class(gpu_class)
    for each in reversed(now):
        unit = _unit(each)
        if not rules.binds(unit):
            continue
        used = rules.used(direct, unit)
        if used > rules.has(unit) and not _may(policies, "borrow", each, gpu_class):
            said = f"{gpu_class}: {used} > {rules.has(unit)}, not to be borrowed"
            yield Fault(said, each.lease_id)
        for node in rules.around(unit):
            most, takes = rules.most(node), rules.used(direct, node)
            if most is not None and max(most, rules.used(before, node)) < takes:
                direct[unit] -= each.use.of_class(gpu_class)
                said = f"{gpu_class}: {takes} used of {most} that {node} may have"
                yield Fault(said, each.lease_id)
                break


def _unit(counted: _Counted) -> str:
    return str(counted.use.terms.subscriber_id)


# --- permissions ------------------------------------------------------------------------------


def _permits(policies: Policies, new: Iterable[_Counted]) -> Iterator[Fault]:
    for each in new:
        if not _may(policies, "lease", each, None):
            yield Fault("these GPUs may not be leased by this unit", each.lease_id)


def _may(policies: Policies, what: str, counted: _Counted, gpu_class: str | None) -> bool:
    """Tell if whoever is nearest to a unit, and says anything of the model, allows it."""
    if not policies.permits:
        return True
    unit, terms = _unit(counted), counted.use.terms
    parents = {name: each.parent for name, each in policies.cohorts.items()}
    who: list[str | None] = [unit]
    cohort = policies.units[unit].cohort if unit in policies.units else None
    while cohort is not None:
        who.append(cohort)
        cohort = parents.get(cohort)
    who += [str(terms.tenant_id), None]
    models = [
        gpus.model
        for gpus in counted.use.gpus
        if gpu_class is None or gpu_class == "any" or model_matches(gpu_class, gpus.model)
    ]
    return all(_allowed(policies, what, who, model) for model in models)


def _allowed(policies: Policies, what: str, who: Sequence[str | None], model: str) -> bool:
    for one in who:
        said: dict[str, bool] = {
            of: allowed
            for (whose, kind, of), allowed in policies.permits.items()
            if whose == one and kind == what and (of == "any" or model_matches(of, model))
        }
        if said:
            named = [of for of in said if of != "any"] or ["any"]
            return said[max(named, key=lambda of: (len(of), not said[of]))]
    return True


# --- limits -----------------------------------------------------------------------------------


def _limit(
    policies: Policies,
    limit: LimitSet,
    there: Sequence[_Counted],
    over: Sequence[_Counted],
    new: Sequence[_Counted],
) -> Iterator[Fault]:
    """Check one limit for each one that it is for: it has none of its own, or this is it."""
    subjects: dict[UUID, list[_Counted]] = defaultdict(list)
    for each in new:
        subject = _subject(limit, each)
        own = policies.limits.get((limit.scope, subject), limit) if subject else None
        if subject is None or own is not limit or limit.subject not in (None, subject):
            continue
        if limit.tenant_id in (None, each.use.terms.tenant_id):
            subjects[subject].append(each)
    for subject, mine in subjects.items():
        others = [each for each in there if _subject(limit, each) == subject]
        done = [each for each in over if _subject(limit, each) == subject]
        yield from _at_once(limit, "GPUs", limit.gpus, others, mine)
        yield from _at_once(limit, "MiB", limit.memory_mib, others, mine)
        yield from _in_all(limit, [*others, *done], mine)


def _subject(limit: LimitSet, counted: _Counted) -> UUID | None:
    terms = counted.use.terms
    return {
        "bid": terms.bid_id,
        "user": terms.user_id,
        "subscriber": terms.subscriber_id,
        "tenant": terms.tenant_id,
    }[limit.scope]


def _at_once(
    limit: LimitSet,
    unit: str,
    most: int | None,
    others: Sequence[_Counted],
    mine: Sequence[_Counted],
) -> Iterator[Fault]:
    if most is None:
        return

    def size(counted: _Counted) -> int:
        return counted.use.count if unit == "GPUs" else counted.use.memory_mib

    kept = list(mine)
    for at in sorted({each.use.starts for each in (*others, *mine)}):
        total = sum(size(e) for e in others if e.use.starts <= at < e.use.ends)
        now = [each for each in kept if each.use.starts <= at < each.use.ends]
        total += sum(size(each) for each in now)
        for each in reversed(now):
            if total > most:
                yield Fault(f"limit {limit.scope}: {total} > {most} {unit}", each.lease_id)
                kept.remove(each)
                total -= size(each)


def _in_all(
    limit: LimitSet, others: Sequence[_Counted], mine: Sequence[_Counted]
) -> Iterator[Fault]:
    """Check GPU-hours and money, in the periods that the grants touch, or of a bid in all."""
    kept = list(mine)
    first, last = min(e.use.starts for e in mine), max(e.use.ends for e in mine)
    spans = [(first, last)] if limit.scope == "bid" else list(_periods(limit.period, first, last))
    for starts, ends in spans:
        for name, most in _figures(limit):
            total = sum(_part(limit, name, each, starts, ends) for each in (*others, *kept))
            for each in reversed(list(kept)):
                part = _part(limit, name, each, starts, ends)
                if total > most and part:
                    yield Fault(f"limit {limit.scope}: {total} > {most} {name}", each.lease_id)
                    kept.remove(each)
                    total -= part


def _figures(limit: LimitSet) -> Iterator[tuple[str, int]]:
    if limit.gpu_hours is not None:
        yield "GPU-milliseconds", limit.gpu_hours * MILLIS_PER_HOUR
    if limit.money is not None:
        yield f"nano-{limit.money.currency}", limit.money.nanos


def _part(limit: LimitSet, name: str, counted: _Counted, starts: int, ends: int) -> int:
    use = counted.use
    spent = counted.during(starts, ends) * use.count
    if name == "GPU-milliseconds":
        return spent
    same = limit.money is not None and limit.money.currency == use.terms.limit.currency
    return spent * use.price // MILLIS_PER_HOUR if same else 0


def _periods(period: str, starts: int, ends: int) -> Iterator[tuple[int, int]]:
    """Yield the days, weeks from Monday, or months, in UTC, that a span touches."""
    day = moment(starts).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    at = {
        "day": day,
        "week": day - timedelta(days=day.weekday()),
        "month": day.replace(day=1),
    }[period]
    while from_below(at) < ends:
        step = {"day": 1, "week": 7, "month": 32}[period]
        after = at + timedelta(days=step)
        after = after.replace(day=1) if period == "month" else after
        yield from_below(at), from_below(after)
        at = after
