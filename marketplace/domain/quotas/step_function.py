"""A number over time, kept as steps: how many GPUs somebody uses, and when.

Adding a use costs as much as there are steps, however many uses made them; asking for a span costs
a look at its steps. Steps do not change: to add to them makes others, so copies share them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
