"""What units and cohorts use of one class of GPUs over time, and how much more each of them may.

Use is kept as steps: adding one costs as much as there are steps, however many uses made them;
asking for a span costs a look at its steps. Steps do not change: to add to them makes others, so
copies share them.

Asks the arithmetic of `cohort_tree` about a whole window: what is left to a unit is worked out for
all steps around it together, once until somebody takes some. A test compares it with
`cohort_tree.Usage`, moment by moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketplace.domain.quotas.cohort_tree import Tree, Usage, Verdict, beyond, borrowable
from marketplace.domain.quotas.use import FOREVER

Ints = NDArray[np.int64]

EVER = -(1 << 62)
"""Before anything began."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """values[i] from times[i] on, until times[i + 1]; times rise, the first is EVER."""

    times: Ints
    values: Ints

    @classmethod
    def of(cls, spans: Iterable[tuple[int, int, int]]) -> Steps:
        """Add up spans: from when, until when, how much."""
        table = np.array(list(spans), np.int64).reshape(-1, 3)
        if not len(table):
            return NOTHING
        starts, ends, sizes = table[table[:, 0] < table[:, 1]].T
        times = np.unique(np.concatenate(([EVER], starts, ends)))
        change = np.zeros(len(times), np.int64)
        np.add.at(change, times.searchsorted(starts), sizes)
        np.add.at(change, times.searchsorted(ends), -sizes)
        return cls(times, np.cumsum(change))

    def plus(self, starts: int, ends: int, more: int) -> Steps:
        """Return them with so much more from `starts` until `ends`; less, where it is negative."""
        if starts >= ends or not more:
            return self
        times, values = self.times, self.values
        first, last = int(times.searchsorted(starts)), int(times.searchsorted(ends))
        begins = first < len(times) and int(times[first]) == starts
        stops = last < len(times) and int(times[last]) == ends
        before = int(values[first - 1])
        inside = slice(first + begins, last)
        at_first = (int(values[first]) if begins else before) + more
        after = int(values[last if stops else last - 1])
        within = values[inside] + more
        # An edge at which nothing changes any more goes.
        head = () if at_first == before else ((starts, at_first),)
        at_last = int(within[-1]) if len(within) else at_first
        tail = () if at_last == after else ((ends, after),)
        return Steps(
            np.concatenate(
                (times[:first], [t for t, _ in head], times[inside], [t for t, _ in tail],
                 times[last + stops:]), dtype=np.int64, casting="unsafe",
            ),
            np.concatenate(
                (values[:first], [v for _, v in head], within, [v for _, v in tail],
                 values[last + stops:]), dtype=np.int64, casting="unsafe",
            ),
        )  # fmt: skip

    def at(self, times: Ints) -> Ints:
        found: Ints = self.values[self.times.searchsorted(times, "right") - 1]
        return found

    def value(self, at: int) -> int:
        return int(self.values[int(self.times.searchsorted(at, "right")) - 1])

    def since(self, millis: int) -> Steps:
        """Return them without what was before a moment."""
        first = int(self.times.searchsorted(millis, "right")) - 1
        if first <= 0:
            return self
        times = self.times[first:].copy()
        times[0] = EVER
        return Steps(times, self.values[first:])


NOTHING = Steps(np.array([EVER], np.int64), np.zeros(1, np.int64))


def added(many: Iterable[Steps]) -> Steps:
    all_of = list(many)
    if len(all_of) < 2:
        return all_of[0] if all_of else NOTHING
    times = np.unique(np.concatenate([each.times for each in all_of]))
    return Steps(times, np.sum([each.at(times) for each in all_of], axis=0))


UNBOUND = 1 << 40
"""More GPUs than anybody has: where a limit is not set, or nothing binds a unit."""


class Part(NamedTuple):
    """A use, or a part of one, of a class: by whom, from when, until when, how many GPUs."""

    node: str
    starts: int
    ends: int
    gpus: int


@dataclass(frozen=True, slots=True)
class WindowVerdict:
    """What quotas say to some GPUs more: the arithmetic at the moment that decides.

    again: of a refusal, when they might fit: from then on, for a moment at least, they would.
    """

    verdict: Verdict
    fits: bool
    again: int = FOREVER


class _View(NamedTuple):
    """What is left to one unit from each edge on. own: of its own quota. bound: if any is set."""

    edges: Ints
    left: Ints
    own: Ints
    bound: Ints


class Headroom:
    """One class of GPUs. A fork shares all with its origin, which must not change meanwhile."""

    __slots__ = ("_epochs", "_figures", "_trees", "_used", "_views")

    def __init__(self, trees: Sequence[tuple[int, Tree]], used: dict[str, Steps]) -> None:
        """Take trees with the moments from which on they hold, in order, the first from EVER."""
        self._epochs = np.array([since for since, _ in trees], np.int64)
        self._trees = [tree for _, tree in trees]
        self._used = used
        self._views: dict[str, _View | None] = {}
        self._figures: dict[str, tuple[Ints, Ints, Ints]] = {}

    @classmethod
    def of(cls, trees: Sequence[tuple[int, Tree]], parts: Iterable[Part]) -> Headroom:
        """Return what all these uses leave."""
        spans: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for node, starts, ends, gpus in parts:
            spans[node].append((starts, ends, gpus))
        room = cls(trees, {})
        tree = trees[0][1]
        members: dict[str, list[str]] = defaultdict(list)
        for node in tree.from_below():
            own = [Steps.of(spans[node])] if node in spans else []
            used = added([*own, *(room._beyond(member) for member in members[node])])
            if used is not NOTHING:
                room._used[node] = used
                parent = tree.parents[node]
                if parent is not None:
                    members[parent].append(node)
        return room

    def fork(self) -> Headroom:
        """Return the same, to take more in it."""
        twin = Headroom.__new__(Headroom)
        twin._epochs, twin._trees, twin._figures = self._epochs, self._trees, self._figures
        twin._used, twin._views = self._used, self._views
        return twin

    def take(self, part: Part) -> None:
        """Count a use of a unit; with a negative number of GPUs, stop counting it."""
        tree = self._trees[0]
        if part.node not in tree.parents or part.starts >= part.ends or not part.gpus:
            return
        self._used, self._views = self._used.copy(), {}
        pieces = [(part.starts, part.ends, part.gpus)]
        for node in tree.path(part.node):
            before = steps = self._used.get(node, NOTHING)
            for piece in pieces:
                steps = steps.plus(*piece)
            self._used[node] = steps
            if tree.parents[node] is not None:
                pieces = [up for piece in pieces for up in self._above(node, before, *piece)]

    def forget_before(self, millis: int) -> None:
        self._used = {node: steps.since(millis) for node, steps in self._used.items()}
        self._views = {}

    def check(
        self, node: str, starts: int, ends: int, gpus: int, *, may_borrow: bool
    ) -> WindowVerdict | None:
        """Tell if a unit may have some GPUs more over a span; None: no quota speaks of it.

        Where it may, the verdict is that of the last moment at which some are borrowed, or of the
        first moment.
        """
        view = self._view(node)
        if view is None:
            return None
        first = int(view.edges.searchsorted(starts, "right")) - 1
        last = int(view.edges.searchsorted(ends))
        borrows = view.own[first:] < gpus
        refused = view.left[first:] < gpus
        if not may_borrow:
            refused = refused | borrows
        at = int(refused[: last - first].argmax())
        if refused[at]:
            later = at + int(refused[at:].argmin())
            again = FOREVER if refused[later] else int(view.edges[first + later])
            moment = max(starts, int(view.edges[first + at]))
            return WindowVerdict(self.verdict(node, moment, gpus), fits=False, again=again)
        bound = view.bound[first:last]
        at = int(bound.argmax())
        if not bound[at]:
            return None
        borrowed = np.flatnonzero(borrows[: last - first])
        if borrowed.size:
            at = int(borrowed[-1])
        moment = max(starts, int(view.edges[first + at]))
        return WindowVerdict(self.verdict(node, moment, gpus), fits=True)

    def used(self, node: str, at: int) -> int:
        """Return how many GPUs a unit uses at one moment; of a cohort, how many of its pool."""
        return self._used.get(node, NOTHING).value(at)

    def verdict(self, node: str, at: int, gpus: int) -> Verdict:
        """Return the arithmetic for some GPUs more at one moment."""
        tree = self._trees[int(self._epochs.searchsorted(at, "right")) - 1]
        used = {each: self.used(each, at) for each in tree.path(node)}
        return Usage.known(tree, used).fits(node, gpus)

    # --- keeping ---------------------------------------------------------------------------

    def _figures_of(self, node: str) -> tuple[Ints, Ints, Ints]:
        """Return of a node in each epoch: what it has, what of it it keeps, what it may borrow."""
        known = self._figures.get(node)
        if known is None:
            quotas = [tree.quota(node).borrowing for tree in self._trees]
            known = self._figures[node] = (
                np.array([tree.subtree[node] for tree in self._trees], np.int64),
                np.array([tree.kept[node] for tree in self._trees], np.int64),
                np.array([UNBOUND if each is None else each for each in quotas], np.int64),
            )
        return known

    def _epochs_at(self, times: Ints) -> Ints:
        found: Ints = self._epochs.searchsorted(times, "right") - 1
        return found

    def _beyond(self, node: str) -> Steps:
        """Return what a node uses beyond what it keeps to itself: that counts in its cohort."""
        steps, kept = self._used[node], self._figures_of(node)[1]
        if not kept.any():
            return steps
        times = np.unique(np.concatenate((steps.times, self._epochs)))
        return Steps(times, beyond(steps.at(times), kept[self._epochs_at(times)]))

    def _above(
        self, node: str, before: Steps, starts: int, ends: int, gpus: int
    ) -> list[tuple[int, int, int]]:
        """Return what some GPUs more of a node add in its cohort. Pieces do not overlap."""
        kept = self._figures_of(node)[1]
        if not kept.any():
            return [(starts, ends, gpus)]
        edges = np.concatenate((before.times, self._epochs))
        edges = np.unique(np.append(edges[(starts < edges) & (edges < ends)], starts))
        used, own = before.at(edges), kept[self._epochs_at(edges)]
        more = beyond(used + gpus, own) - beyond(used, own)
        bounds = [*edges.tolist(), ends]
        found: list[tuple[int, int, int]] = []
        for since, until, size in zip(bounds, bounds[1:], more.tolist(), strict=False):
            if found and found[-1][1:] == (since, size):
                found[-1] = (found[-1][0], until, size)
            elif size:
                found.append((since, until, size))
        return found

    def _view(self, node: str) -> _View | None:
        if node not in self._views:
            self._views[node] = self._seen(node)
        return self._views[node]

    def _seen(self, node: str) -> _View | None:
        """Work out what is left to a unit, from the outermost cohort inwards."""
        if node not in self._trees[0].parents:
            return None
        binds = np.array([tree.governed(node) for tree in self._trees], bool)
        if not binds.any():
            return None
        path = list(self._trees[0].path(node))
        all_used = [self._used.get(each, NOTHING) for each in path]
        edges = np.unique(np.concatenate([self._epochs, *(each.times for each in all_used)]))
        epochs = self._epochs_at(edges)
        left = own = np.zeros(0, np.int64)
        for each, steps in zip(reversed(path), reversed(all_used), strict=True):
            total, kept, borrowing = (column[epochs] for column in self._figures_of(each))
            used = steps.at(edges)
            own = total - used
            if each == path[-1]:
                left = own
                continue
            left = np.minimum(left, borrowable(total, kept, used, borrowing)) + beyond(kept, used)
        bound = binds[epochs]
        free = np.where(bound, left, UNBOUND)
        return _View(edges, free, np.where(bound, own, UNBOUND), bound)
