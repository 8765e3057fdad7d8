"""Quotas and limits as the search of a round sees them: what groups of its bids may have at most.

A search that does not know them gives capacity to bids that the gate sends away again. What is
posed here never forbids what the gate would let through on the grid, but for what a lease holds
within a slot; where several models or cohorts with lending limits meet, it lets more through than
the gate. So the gate has the last word, and the sweep after it tries whoever was left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from math import gcd
from uuid import UUID

import numpy as np

from ledger.domain.ids import BidId
from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.domain.facts.instants import from_above
from marketplace.domain.facts.policy_events import LimitScope, LimitSet
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.quotas.card_units import size_in, size_of, unit_of
from marketplace.domain.quotas.cohort_tree import Tree
from marketplace.domain.quotas.limits import periods
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.domain.quotas.quota_book import QuotaBook
from marketplace.domain.quotas.use import Gpus, Use, subject_of
from marketplace.domain.rounds.pools import Pool
from marketplace.domain.solver.builder import Quota
from marketplace.domain.solver.problem import UNLIMITED, Ints

EDGES_MAX = 32
"""Moments at which quota is given back, or changes, that are put on the grid: the next ones."""
PERIODS_MAX = 7
"""Days, weeks or months for which limits of GPU-hours and money are posed: the next ones."""
COUNTED_MAX = 1 << 61
"""What all bids of a group count for in the finest unit; in a coarser one where it is more."""
SCOPES: tuple[LimitScope, ...] = ("user", "subscriber", "tenant")


@dataclass(slots=True)
class Bounds:
    """Groups of bids and what they may have. Of each bid: its groups, and how much it counts."""

    quotas: list[Quota] = field(default_factory=list)
    groups: dict[BidId, list[int]] = field(default_factory=lambda: defaultdict(list))
    shares: dict[BidId, list[int]] = field(default_factory=lambda: defaultdict(list))
    barred: set[tuple[BidId, int]] = field(default_factory=set)
    """Bids and pools (by number) of which a limit for one bid, or a permission, lets no GPU."""


def edges_of(quotas: QuotaBook, *, since: int, until: int) -> list[int]:
    """Return the next moments at which a use ends or a policy for some time begins or ends."""
    found = {use.ends for use in quotas.uses.values()}
    if quotas.policies is not None:
        for gpu_class in quotas.policies.classes:
            found.update(from_above(at) for at in quotas.policies.changes_of(gpu_class))
    return sorted(each for each in found if since < each < until)[:EDGES_MAX]


def bounds_of(
    quotas: QuotaBook, bids: Sequence[OpenBid], pools: Sequence[Pool], grid: Sequence[int]
) -> Bounds:
    """Return what quotas and limits leave to these bids.

    quotas: with all that is granted already.
    """
    if quotas.policies is None:
        return Bounds()
    return _Posing(quotas, quotas.policies, bids, pools, grid).bounds()


def kept_out(quotas: QuotaBook, bid: OpenBid, pool: Pool, *, now: int) -> bool:
    """Tell if quotas and limits alone keep a bid out of a pool, whenever it might start.

    Such a bid makes no GPU scarce: it could not have one that is free.
    """
    gpu = next(gpu for gpu in pool.listed.terms.gpus if gpu.uuid == pool.uuids[0])
    gpus = (Gpus(gpu.model, bid.gpus, bid.gpus * gpu.memory_mib),)
    for opens, closes in pool.spans:
        starts, latest = max(now, bid.earliest, opens), min(bid.latest_start, closes - bid.duration)
        if starts <= latest:
            use = Use(bid.terms, gpus, starts, starts + bid.duration, bid.limit)
            if quotas.soonest(use, latest) is not None:
                return False
    return True


class _Posing:
    """One round's bounds in the making."""

    def __init__(
        self,
        quotas: QuotaBook,
        policies: Policies,
        bids: Sequence[OpenBid],
        pools: Sequence[Pool],
        grid: Sequence[int],
    ) -> None:
        self._quotas, self._policies = quotas, policies
        self._bids, self._grid = bids, np.array(grid, np.int64)
        gpus = [
            next(gpu for gpu in pool.listed.terms.gpus if gpu.uuid == pool.uuids[0])
            for pool in pools
        ]
        self._models = [gpu.model for gpu in gpus]
        self._memory = [gpu.memory_mib for gpu in gpus]
        self._found = Bounds()
        self._uses = list(quotas.uses.values())
        self._span = _slots_of(self._uses, self._grid)
        self._sizes = np.array([use.size(policies.counts) for use in self._uses], np.int64)
        self._memories = np.array([use.memory_mib for use in self._uses], np.int64)
        self._around, self._beneath = _lineage(policies)

    def bounds(self) -> Bounds:
        """Return all of them."""
        for bid in self._bids:
            self._bar(bid)
        for gpu_class in self._policies.classes:
            self._cohorts(gpu_class)
        for scope in SCOPES:
            by_subject: dict[UUID, list[OpenBid]] = defaultdict(list)
            for bid in self._bids:
                subject = subject_of(scope, bid.terms)
                if subject is not None:
                    by_subject[subject].append(bid)
            limits = {subject: self._policies.limit(scope, subject) for subject in by_subject}
            if not any(limits.values()):
                continue
            uses: dict[UUID | None, list[int]] = defaultdict(list)
            for number, use in enumerate(self._uses):
                uses[subject_of(scope, use.terms)].append(number)
            over: dict[UUID | None, list[Use]] = defaultdict(list)
            for use in self._quotas.over:
                over[subject_of(scope, use.terms)].append(use)
            for subject, limit in limits.items():
                if limit is not None:
                    self._limit(limit, by_subject[subject], uses[subject], over[subject])
        return self._found

    # --- what one bid alone may not have ---------------------------------------------------

    def _bar(self, bid: OpenBid) -> None:
        policies, terms = self._policies, bid.terms
        limit = policies.limit("bid", bid.bid_id)
        if limit is None and not policies.permits:
            return
        may_use = {
            model: self._quotas.may("lease", terms, model) for model in dict.fromkeys(self._models)
        }
        if limit is not None and limit.tenant_id not in (None, terms.tenant_id):
            limit = None
        for number, (model, memory) in enumerate(zip(self._models, self._memory, strict=True)):
            if not may_use[model] or (limit is not None and self._over(limit, bid, model, memory)):
                self._found.barred.add((bid.bid_id, number))

    def _over(self, limit: LimitSet, bid: OpenBid, model: str, memory_mib: int) -> bool:
        """Tell if a limit for one bid lets it have none of these GPUs."""
        counts, money = self._policies.counts, limit.money
        unit, size = unit_of(counts), bid.gpus * size_of(model, counts)
        if money is not None and money.currency != bid.terms.limit.currency:
            money = None
        cost = bid.gpus * bid.duration * bid.limit // MILLIS_PER_HOUR
        hours = limit.gpu_hours
        return (
            (limit.gpus is not None and size > limit.gpus * unit)
            or (hours is not None and size * bid.duration > hours * MILLIS_PER_HOUR * unit)
            or (money is not None and cost > money.nanos)
            or (limit.memory_mib is not None and memory_mib * bid.gpus > limit.memory_mib)
        )

    # --- quotas of cohorts -----------------------------------------------------------------

    def _cohorts(self, gpu_class: str) -> None:
        counts = self._policies.counts
        counted = [size_in(gpu_class, model, counts) for model in self._models]
        if not any(counted):
            return
        units = self._policies.units
        members: dict[str, list[OpenBid]] = defaultdict(list)
        for bid in self._bids:
            unit = str(bid.terms.subscriber_id)
            if unit in units:
                members[unit].append(bid)
        inside: dict[str, list[str]] = defaultdict(list)
        for unit in members:
            for node in self._around[unit]:
                inside[node].append(unit)
        sizes = np.array([use.of_class(gpu_class, counts) for use in self._uses], np.int64)
        owned: dict[str, list[int]] = defaultdict(list)
        for number, use in enumerate(self._uses):
            owned[str(use.terms.subscriber_id)].append(number)
        for node, within in inside.items():
            most = self._most(gpu_class, within[0], node)
            if most is None:
                continue
            most -= self._held(sizes, [use for unit in self._beneath[node] for use in owned[unit]])
            bids = [bid for unit in within for bid in members[unit]]
            self._add_gpus(bids, counted, concurrent=most)

    def _most(self, gpu_class: str, unit: str, node: str) -> Ints | None:
        """Return how many GPUs all beneath a node may use in each slot; None: no limit at all."""
        slots = len(self._grid) - 1
        most = np.full(slots, UNLIMITED, np.int64)
        begins, ends = int(self._grid[0]), int(self._grid[-1])
        changes = {from_above(at) for at in self._policies.changes_of(gpu_class)}
        edges = [begins, *sorted(each for each in changes if begins < each < ends), ends]
        for since, until in pairwise(edges):
            tree = self._quotas.tree(gpu_class, unit, since)
            if tree is not None:
                first = int(np.searchsorted(self._grid, since, side="right")) - 1
                end = int(np.searchsorted(self._grid, until, side="left"))
                total = _most_in(tree, node, self._beneath[node])
                most[first:end] = np.minimum(most[first:end], total)
        return None if (most == UNLIMITED).all() else most

    def _held(self, sizes: Ints, uses: Sequence[int]) -> Ints:
        """Return what uses, by their numbers, take in each slot that they share any time with."""
        taken = np.zeros(len(self._grid), np.int64)
        (first, end), some = self._span, np.array(uses, np.int64)
        np.add.at(taken, first[some], sizes[some])
        np.subtract.at(taken, end[some], sizes[some])
        held: Ints = np.cumsum(taken[:-1])
        return held

    # --- limits ----------------------------------------------------------------------------

    def _limit(
        self,
        limit: LimitSet,
        members: Sequence[OpenBid],
        uses: Sequence[int],
        over: Sequence[Use],
    ) -> None:
        """Pose a limit. members, uses, over: of its subject; its uses by their numbers."""
        mine = [bid for bid in members if limit.tenant_id in (None, bid.terms.tenant_id)]
        if not mine:
            return
        counts = self._policies.counts
        unit, sizes = unit_of(counts), [size_of(model, counts) for model in self._models]
        if limit.gpus is not None:
            left = limit.gpus * unit - self._held(self._sizes, uses)
            self._add_gpus(mine, sizes, concurrent=left)
        if limit.memory_mib is not None:
            left = limit.memory_mib - self._held(self._memories, uses)
            self._add(mine, self._memory, concurrent=left)
        since, until = int(self._grid[0]), int(self._grid[-1])
        counted_uses = [*(self._uses[number] for number in uses), *over]
        if limit.gpu_hours is None and limit.money is None:
            return
        for starts, ends in islice(periods(limit.period, since, until), PERIODS_MAX):
            if limit.gpu_hours is not None:
                used = sum(use.size(counts) * use.during(starts, ends) for use in counted_uses)
                left_ms = limit.gpu_hours * MILLIS_PER_HOUR * unit - used
                self._add_gpus(mine, sizes, total=(left_ms, starts, ends))
            self._money(limit, mine, counted_uses, starts, ends)

    def _money(
        self,
        limit: LimitSet,
        members: Sequence[OpenBid],
        uses: Sequence[Use],
        starts: int,
        ends: int,
    ) -> None:
        money = limit.money
        if money is None:
            return
        paying = [bid for bid in members if bid.terms.limit.currency == money.currency]
        paid = sum(
            use.within(starts, ends) * use.price
            for use in uses
            if use.terms.limit.currency == money.currency
        )
        left = (money.nanos + 1) * MILLIS_PER_HOUR - 1 - paid
        self._add(
            paying,
            [1] * len(self._models),
            total=(left, starts, ends),
            weigh=lambda bid: bid.limit,
        )

    def _add_gpus(
        self,
        members: Sequence[OpenBid],
        counted: Sequence[int],
        *,
        concurrent: Ints | None = None,
        total: tuple[int, int, int] | None = None,
    ) -> None:
        """Add a group of what GPUs count as, in the largest unit of which all of them are so many.

        So where there are no parts, the search sees the same numbers however parts are counted.
        """
        unit = max(1, gcd(*counted))
        if concurrent is not None:
            endless = concurrent >= UNLIMITED // 2
            concurrent = np.where(endless, concurrent, concurrent // unit)
        if total is not None:
            total = (total[0] // unit, *total[1:])
        self._add(members, [each // unit for each in counted], concurrent=concurrent, total=total)

    def _add(
        self,
        members: Sequence[OpenBid],
        counted: Sequence[int],
        *,
        concurrent: Ints | None = None,
        total: tuple[int, int, int] | None = None,
        weigh: Callable[[OpenBid], int] | None = None,
    ) -> None:
        """Add a group, unless all its bids together cannot come to its limit."""
        largest = max(counted, default=0)
        weights = [1 if weigh is None else weigh(bid) for bid in members]
        wanted = [one * bid.gpus * largest for one, bid in zip(weights, members, strict=True)]
        use = sum(one * bid.duration for one, bid in zip(wanted, members, strict=True))
        unit = 1 + use // COUNTED_MAX
        if concurrent is not None:
            if not members or sum(wanted) <= concurrent.min():
                return
            quota = Quota(
                concurrent=tuple(np.maximum(concurrent // unit, 0).tolist()),
                counted=tuple(-(-each // unit) for each in counted),
            )
            shares = [1] * len(members)
        else:
            assert total is not None
            left, since, until = total
            if not members or use <= left:
                return
            # What is weighed has a pool count of 1: the unit makes its weights coarser, upwards.
            # What is not is made coarser in its pools, downwards: the gate counts it in full.
            if weigh is None:
                counted = [each // unit for each in counted]
            quota = Quota(
                gpu_ms=max(0, left) // unit, counted=tuple(counted), since=since, until=until
            )
            shares = [1 if weigh is None else -(-one // unit) for one in weights]
        number = len(self._found.quotas)
        self._found.quotas.append(quota)
        for bid, share in zip(members, shares, strict=True):
            self._found.groups[bid.bid_id].append(number)
            self._found.shares[bid.bid_id].append(share)


def _slots_of(uses: Sequence[Use], grid: Ints) -> tuple[Ints, Ints]:
    """Return the slots in which uses begin and end: all of each that they share any time with.

    Those that share no time with the grid have both in the same slot: they come to nothing.
    """
    starts = np.array([use.starts for use in uses], np.int64)
    ends = np.array([use.ends for use in uses], np.int64)
    first = np.maximum(0, np.searchsorted(grid, starts, side="right") - 1)
    end = np.minimum(np.searchsorted(grid, ends, side="left"), len(grid) - 1)
    apart = (starts >= grid[-1]) | (ends <= grid[0])
    return first, np.where(apart, first, end)


def _lineage(policies: Policies) -> tuple[dict[str, list[str]], dict[str, set[str]]]:
    """Return of each unit and cohort who is around it, itself first, and who is beneath it."""
    tree, beneath = Tree(policies.parents, {}), defaultdict[str, set[str]](set)
    around = {name: list(tree.path(name)) for name in policies.parents}
    for name, path in around.items():
        for node in path:
            beneath[node].add(name)
    return around, beneath


def _most_in(tree: Tree, node: str, beneath: Iterable[str]) -> int:
    """Return how many GPUs all units beneath a node may use together at most; at least so many.

    Those that keep some of their quota to themselves may use that beside all others.
    """
    most = tree.subtree[node]
    if tree.parents[node] is not None:
        borrowing = tree.quota(node).borrowing
        if borrowing is None:
            return UNLIMITED
        most += borrowing
    return most + sum(tree.kept[name] for name in beneath if name != node)
