"""Who may use how many GPUs: nominal quota, borrowing and lending within cohorts.

Kueue's meaning of the words, as a tree for one class of GPUs at one moment. The arithmetic is here
once: `Usage` asks it about one moment, `cohort_timeline` about all moments of a window together.

A business unit owns its nominal quota. What it does not use, others of its cohort may borrow, up
to their borrowing limit and its lending limit; a cohort is to its own cohort what a unit is to it.
Unset is not zero: a borrowing or lending limit that is not set (None) limits nothing, one that is 0
forbids.

All figures are in units, of which a tree says how many one GPU is: one, or more where the parts of
a card count as parts of a GPU (`card_units`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from marketplace.domain.quotas.card_units import in_words

Amount = TypeVar("Amount", int, NDArray[np.int64])
"""GPUs in units: at one moment, or at several."""


def beyond(used: Amount, kept: Amount) -> Amount:
    """Return what a node uses beyond what it keeps to itself: that counts in its cohort too."""
    return (used - kept) * (used > kept)


def borrowable(total: Amount, kept: Amount, used: Amount, borrowing: Amount) -> Amount:
    """Return what a node may take more of its cohort's, were there as much.

    total: what it has; kept: what of that it does not lend. borrowing: beyond what it has.
    """
    return total - kept - beyond(used, kept) + borrowing


def around(parents: Mapping[str, str | None], node: str | None) -> Iterator[str]:
    """Yield a node and the cohorts around it, from the inside; one that stands nowhere, alone."""
    while node is not None:
        yield node
        node = parents.get(node)


Outcome = Literal["nominal", "borrowed", "refused"]
LimitedBy = Literal["nominal-quota", "borrowing-limit", "cohort"]


@dataclass(frozen=True, slots=True)
class Quota:
    """What one unit or cohort has of one class, at one time.

    nominal: its own; None: none of its own, like 0, but does not govern the class by itself.
    borrowing, lending: at most; None: no limit. gpu_hours: guaranteed in each period; None: all
    that is within nominal quota.
    """

    nominal: int | None = None
    borrowing: int | None = None
    lending: int | None = None
    gpu_hours: int | None = None


UNSET = Quota()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether some GPUs fit, with the arithmetic of the answer.

    used, nominal: of the unit, before. available: what it could take at most. borrowed: how many
    GPUs above its quota it would then use. limited_by: what kept `available` from being more.
    unit: what one GPU counts as in these figures.
    """

    outcome: Outcome
    node: str
    gpus: int
    used: int
    nominal: int
    available: int
    borrowed: int
    limited_by: LimitedBy
    unit: int = 1

    @property
    def fits(self) -> bool:
        return self.outcome != "refused"

    def in_words(self) -> str:
        """Return the arithmetic as a sentence."""
        used, nominal, gpus = self._gpus(self.used), self._gpus(self.nominal), self._gpus(self.gpus)
        available = self._gpus(self.available)
        start = f"{used} of {nominal} GPUs used, {gpus} more asked"
        if self.outcome == "nominal":
            then = self._gpus(self.used + self.gpus)
            return f"{start}: {then} ≤ {nominal}, within the nominal quota"
        if self.outcome == "borrowed":
            return f"{start}: {self._gpus(self.borrowed)} borrowed, {available} could be had"
        return f"{start}: {gpus} > {available} that can be had ({self.limited_by})"

    def _gpus(self, units: int) -> str:
        return in_words(units, self.unit)


class Tree:
    """Units and cohorts with their quotas of one class at one moment. Does not change.

    parents: the cohort of each unit and cohort; None: it has none. quotas: of those that have any.
    unit: what one GPU counts as.
    """

    __slots__ = ("_governed", "kept", "parents", "quotas", "subtree", "unit")

    def __init__(
        self, parents: Mapping[str, str | None], quotas: Mapping[str, Quota], unit: int = 1
    ) -> None:
        self.parents = parents
        self.quotas = quotas
        self.unit = unit
        self._governed: set[str] | None = None
        self.subtree: dict[str, int] = {}
        """Nominal quota of a node and what the nodes in it lend it."""
        self.kept: dict[str, int] = {}
        """The part of it that is not lent to anybody."""
        for node in self.from_below():
            total = self.subtree[node] = self.subtree.get(node, 0) + (self.quota(node).nominal or 0)
            lending, parent = self.quota(node).lending, parents[node]
            kept = 0 if lending is None else max(0, total - lending)
            self.kept[node] = total if parent is None else kept
            if parent is not None:
                self.subtree[parent] = self.subtree.get(parent, 0) + total - kept

    def from_below(self) -> list[str]:
        """Return all nodes, each before the cohort that it is in."""
        depth = {node: sum(1 for _ in self.path(node)) for node in self.parents}
        return sorted(self.parents, key=lambda node: (-depth[node], node))

    def quota(self, node: str) -> Quota:
        return self.quotas.get(node, UNSET)

    def path(self, node: str) -> Iterator[str]:
        """Return a node and the cohorts around it, from the inside."""
        return around(self.parents, node)

    def root(self, node: str) -> str:
        return list(self.path(node))[-1]

    def governed(self, node: str) -> bool:
        """Tell if any nominal quota is set where a unit stands: else nothing binds it here."""
        if self._governed is None:
            self._governed = {
                self.root(name)
                for name, quota in self.quotas.items()
                if quota.nominal is not None and name in self.parents
            }
        return self.root(node) in self._governed


class Usage:
    """How many GPUs are used at one moment, by unit; changed by `take` and `release`.

    What a node uses beyond what it keeps to itself counts in its cohort too. Never below 0: a
    release names the use that `take` was given, and giving it back again changes nothing.
    """

    __slots__ = ("_taken", "_used", "tree")

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._used = dict.fromkeys(tree.parents, 0)
        self._taken: dict[object, tuple[str, int]] = {}

    @classmethod
    def known(cls, tree: Tree, used: Mapping[str, int]) -> Usage:
        """Return the usage of a node and the cohorts around it, to be asked about that node."""
        usage = cls.__new__(cls)
        usage.tree, usage._used, usage._taken = tree, {**used}, {}
        return usage

    def copy(self) -> Usage:
        """Return the same usage, to be changed apart."""
        twin = Usage.__new__(Usage)
        twin.tree, twin._used, twin._taken = self.tree, self._used.copy(), self._taken.copy()
        return twin

    def used(self, node: str) -> int:
        """Return how many GPUs a unit uses; of a cohort, how many its members use of its pool."""
        return self._used[node]

    def borrowed(self, node: str) -> int:
        return beyond(self._used[node], self.tree.subtree[node])

    def lent(self, node: str) -> int:
        """Return how many of a node's GPUs others could be using: what it does not use itself.

        At most what is borrowed in its outermost cohort; nobody's GPU has a name here.
        """
        tree = self.tree
        idle = max(0, tree.subtree[node] - max(self._used[node], tree.kept[node]))
        root = tree.root(node)
        inside = [each for each in tree.parents if tree.root(each) == root]
        return min(idle, sum(self.borrowed(each) for each in inside))

    def holds(self, use: object) -> bool:
        return use in self._taken

    def take(self, use: object, node: str, gpus: int) -> None:
        """Count a use of a unit, once; nothing is asked: see `fits`."""
        assert gpus >= 0
        if use not in self._taken:
            self._taken[use] = (node, gpus)
            self._add(node, gpus)

    def release(self, use: object) -> None:
        """Stop counting a use; again, or for one that is not counted, it changes nothing."""
        node, gpus = self._taken.pop(use, ("", 0))
        if gpus:
            self._add(node, -gpus)

    def _add(self, node: str, gpus: int) -> None:
        used, kept, parents = self._used, self.tree.kept, self.tree.parents
        at: str | None = node
        while at is not None and gpus:
            before = used[at]
            after = used[at] = before + gpus
            gpus = beyond(after, kept[at]) - beyond(before, kept[at])
            at = parents[at]

    def available(self, node: str) -> tuple[int, LimitedBy]:
        """Return how many more GPUs a node can take at most, and what keeps it from more."""
        tree = self.tree
        total, used, parent = tree.subtree[node], self._used[node], tree.parents[node]
        if parent is None:
            return total - used, "nominal-quota"
        kept = tree.kept[node]
        left, by = self.available(parent)
        by = "cohort"
        borrowing = tree.quota(node).borrowing
        if borrowing is not None:
            most = borrowable(total, kept, used, borrowing)
            if most < left:
                left, by = most, "borrowing-limit" if borrowing else "nominal-quota"
        return beyond(kept, used) + left, by

    def fits(self, node: str, gpus: int) -> Verdict:
        """Tell if a unit may take some GPUs more, and from whose quota."""
        available, by = self.available(node)
        used, nominal = self._used[node], self.tree.subtree[node]
        borrowed = beyond(used + gpus, nominal)
        outcome: Outcome = "borrowed" if borrowed else "nominal"
        if gpus > available:
            outcome = "refused"
        left, unit = max(0, available), self.tree.unit
        return Verdict(outcome, node, gpus, used, nominal, left, borrowed, by, unit)
