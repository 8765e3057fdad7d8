"""Prove that a round keeps the policies of its market: quotas of cohorts, limits, permissions.

Works out from the policies as they were set what may be used at each moment, and adds up what is.
It shares nothing with the gate that let the grants through: that one asks for each grant what is
left, this one compares sums. What was over its quota before, because an override ended, is not
held against a round that does not add to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from ledger.domain.ids import LeaseId
from marketplace.domain.book.book import Book
from marketplace.domain.facts.events import LeaseGranted
from marketplace.domain.facts.faults import Fault
from marketplace.domain.facts.instants import from_above, from_below, moment
from marketplace.domain.facts.policy_events import QuotaOverridden, QuotaSet
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.domain.quotas.use import Use, gpus_of
from marketplace.domain.verification.card_units import Size, belongs, gpus_in
from marketplace.domain.verification.limits import Counted, faults_of_limits, over_time


def faults_of_quotas(book: Book, grants: Sequence[LeaseGranted]) -> Iterator[Fault]:
    """Find grants that take more than quotas and limits leave, the last ones first."""
    if book.quotas is None or book.quotas.policies is None:
        return
    policies = book.quotas.policies
    cut = {each.lease_id: from_above(each.ends_at) for one in grants for each in one.cuts}
    there = [
        Counted(use if lease_id not in cut else until(use, cut[lease_id]))
        for lease_id, use in book.quotas.uses.items()
    ]
    over = [Counted(use) for use in book.quotas.over]
    new = [Counted(use, granted.lease_id) for granted in grants for use in use_of(book, granted)]
    for gpu_class in policies.classes:
        yield from _in_class(policies, gpu_class, there, new)
    yield from _permits(policies, new)
    yield from faults_of_limits(policies, there, over, new)


def until(use: Use, ends: int) -> Use:
    return Use(use.terms, use.gpus, use.starts, min(use.ends, ends), use.price)


def use_of(book: Book, granted: LeaseGranted) -> Iterator[Use]:
    """Yield what a grant takes of quotas; nothing where its bid is not open."""
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


class RulesAt:
    """What units and cohorts may use of a class at one moment, as the policies say."""

    def __init__(self, policies: Policies, gpu_class: str, at: datetime) -> None:
        self.parents: dict[str, str | None] = {
            **{name: each.parent for name, each in policies.cohorts.items()},
            **{name: each.cohort for name, each in policies.units.items()},
        }
        self.set_for: dict[str, QuotaSet | QuotaOverridden] = {
            node: each for (node, of), each in policies.quotas.items() if of == gpu_class
        }
        for each in policies.overrides.values():
            if each.gpu_class == gpu_class and each.starts_at <= at < each.ends_at:
                self.set_for[each.node] = each
        self.members: dict[str, list[str]] = defaultdict(list)
        for node, parent in self.parents.items():
            if parent is not None:
                self.members[parent].append(node)
        self.outermost = [node for node, parent in self.parents.items() if parent is None]
        self._has: dict[str, int] = {}
        self._grants = {name for name, each in policies.cohorts.items() if each.tenant_id}

    def own(self, node: str) -> int:
        """Return a node's nominal quota; of a tenant's grant what it has not shared out."""
        quota = self.set_for.get(node)
        nominal = 0 if quota is None or quota.nominal is None else quota.nominal
        if node in self._grants and nominal:
            given = (self.set_for.get(member) for member in self.members[node])
            nominal -= sum(each.nominal or 0 for each in given if each is not None)
        return max(0, nominal)

    def has(self, node: str) -> int:
        """Return what a node has with all that its members lend it."""
        if node not in self._has:
            lent = sum(self.lends(member) for member in self.members[node])
            self._has[node] = self.own(node) + lent
        return self._has[node]

    def lends(self, node: str) -> int:
        """Return how much of what a node has others in its cohort may use."""
        quota = self.set_for.get(node)
        has = self.has(node)
        return has if quota is None or quota.lending is None else min(has, quota.lending)

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
            for name, each in self.set_for.items()
        )

    def all_used(self, direct: Mapping[str, Size], root: str | None = None) -> dict[str, Size]:
        """Return what each node uses: of its own, and its members beyond what is theirs alone.

        root: of this outermost cohort only.
        """
        used: dict[str, Size] = {}

        def add_up(node: str) -> Size:
            beyond = (
                max(0, add_up(member) - (self.has(member) - self.lends(member)))
                for member in self.members[node]
            )
            used[node] = direct.get(node, 0) + sum(beyond)
            return used[node]

        for node in self.outermost if root is None else (root,):
            add_up(node)
        return used

    def exceeded(self, used: Mapping[str, Size], before: Mapping[str, Size]) -> set[str]:
        """Return the nodes that use more than they may, and more than before."""
        return {
            node
            for node, takes in used.items()
            if (most := self.most(node)) is not None and max(most, before[node]) < takes
        }

    def most(self, node: str) -> int | None:
        """Return what a node may use at most; None: whatever its cohort lets it."""
        quota = self.set_for.get(node)
        if self.parents[node] is None:
            return self.has(node)
        if quota is None or quota.borrowing is None:
            return None
        return self.has(node) + quota.borrowing


def _in_class(
    policies: Policies, gpu_class: str, there: Sequence[Counted], new: Sequence[Counted]
) -> Iterator[Fault]:
    """Add up who uses how much at each moment at which that grows or the policies change."""
    sizes = {id(each): gpus_in(policies, gpu_class, each.use) for each in (*there, *new)}
    mine = [each for each in new if sizes[id(each)] and _unit(each) in policies.units]
    if not mine:
        return
    before = [each for each in there if sizes[id(each)]]
    changes = {from_above(at) for at in policies.changes_of(gpu_class)}
    by_epoch: dict[int, RulesAt] = {}
    dropped, since = set[LeaseId | None](), -1
    held, used = defaultdict[str, Size](int), defaultdict[str, Size](int)
    now: dict[str, dict[int, Counted]] = defaultdict(dict)
    for at, steps in over_time(before, mine, changes):
        since = at if at in changes else since
        rules = by_epoch.get(since)
        if rules is None:
            rules = by_epoch[since] = RulesAt(policies, gpu_class, moment(at))
        grew = dict.fromkeys(now) if at in changes else {}
        for counted, number, begins in steps:
            unit, size = _unit(counted), sizes[id(counted)]
            root = rules.around(unit)[-1] if unit in rules.parents else unit
            used[unit] += size if begins else -size
            if number is None:
                held[unit] += size if begins else -size
            elif begins:
                now[root][number] = counted
            else:
                del now[root][number]
            if begins:
                grew[root] = None
        # Where only something ends, nobody can come to be over who was not before.
        for root in grew:
            if now[root]:
                some = _At(policies, gpu_class, rules, root, sizes)
                for fault in _at_moment(some, held, used, now[root]):
                    if fault.lease_id not in dropped:
                        dropped.add(fault.lease_id)
                        yield fault


class _At(NamedTuple):
    """One outermost cohort under the rules of a moment. sizes: of uses, by their ids."""

    policies: Policies
    gpu_class: str
    rules: RulesAt
    root: str
    sizes: Mapping[int, Size]


def _at_moment(
    here: _At, held: Mapping[str, Size], all_of: Mapping[str, Size], now: Mapping[int, Counted]
) -> Iterator[Fault]:
    """Find at one moment whoever takes more than there is, the last of the round first.

    held, all_of: what units use without the round, and with it. now: the grants that run.
    """
    policies, gpu_class, rules, root, sizes = here
    before, used = rules.all_used(held, root), rules.all_used(all_of, root)
    if not policies.permits and not rules.exceeded(used, before):
        return
    direct = dict(all_of)
    for number in sorted(now, reverse=True):
        each = now[number]
        unit = _unit(each)
        if not rules.binds(unit):
            continue
        if used[unit] > rules.has(unit) and not _may(policies, "borrow", each, gpu_class):
            said = f"{gpu_class}: {used[unit]} > {rules.has(unit)}, not to be borrowed"
            yield Fault(said, each.lease_id)
        beyond = rules.exceeded(used, before)
        node = next((node for node in rules.around(unit) if node in beyond), None)
        if node is not None:
            said = f"{gpu_class}: {used[node]} used of {rules.most(node)} that {node} may have"
            yield Fault(said, each.lease_id)
            direct[unit] -= sizes[id(each)]
            used = rules.all_used(direct, root)


def _unit(counted: Counted) -> str:
    return str(counted.use.terms.subscriber_id)


# --- permissions ------------------------------------------------------------------------------


def _permits(policies: Policies, new: Iterable[Counted]) -> Iterator[Fault]:
    for each in new:
        if not _may(policies, "lease", each, None):
            yield Fault("these GPUs may not be leased by this unit", each.lease_id)


def _may(policies: Policies, what: str, counted: Counted, gpu_class: str | None) -> bool:
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
        if gpu_class is None or belongs(policies, gpu_class, gpus.model)
    ]
    return all(_allowed(policies, what, who, model) for model in models)


def _allowed(policies: Policies, what: str, who: Sequence[str | None], model: str) -> bool:
    for one in who:
        permits: dict[str, bool] = {
            of: allowed
            for (whose, kind, of), allowed in policies.permits.items()
            if whose == one and kind == what and belongs(policies, of, model)
        }
        if permits:
            named = [of for of in permits if of != "any"] or ["any"]
            return permits[max(named, key=lambda of: (len(of), not permits[of]))]
    return True
