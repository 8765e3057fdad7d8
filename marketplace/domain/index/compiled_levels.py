"""When a host with one offer has room, level by level, as a loop that can be compiled.

The same as `free_levels.levels_of` of what is free of its GPUs: from what is taken, in one step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marketplace.domain.index.free_levels import Levels, level_of
from marketplace.domain.kernels.jit import compiled
from marketplace.domain.kernels.layout import Ints
from marketplace.domain.orderbook.calendar import Taken

LENGTH_START = 256
LEVELS_MAX = 32


@compiled
def in_order(numbers: Ints, count: int) -> None:
    """Sort the first of some numbers (Shell 1959): those of each GPU are in order already."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for place in range(gap, count):
            number, at = numbers[place], place
            while at >= gap and numbers[at - gap] > number:
                numbers[at] = numbers[at - gap]
                at -= gap
            numbers[at] = number
        gap //= 3


@compiled
def room_of(windows: Ints, taken: Ints, counts: Ints, turns: Ints, since: Ints, rows: Ints) -> int:
    """Write down when 1, 2, 4, … of some GPUs are free, in order; return how many spans.

    Args:
        windows: from when until when all are on offer, in milliseconds, in order of time.
        taken: the same of what is taken, one GPU after the other; counts: how many of each.
        turns, since: to work with.
        rows: one for each span: its level, its start and its end.
    """
    first = turn = 0
    for gpu in range(counts.size):
        end = first + counts[gpu]
        for window in range(windows.shape[0]):
            at, closes = windows[window, 0], windows[window, 1]
            span = first
            while at < closes:
                while span < end and taken[span, 1] <= at:
                    span += 1
                until = min(taken[span, 0], closes) if span < end else closes
                opens = -(-at // 1_000) * 1_000
                if opens < until:
                    turns[turn], turns[turn + 1] = 2 * opens, 2 * until + 1
                    turn += 2
                at = taken[span, 1] if span < end else closes
        first = end
    in_order(turns, turn)
    free = count = 0
    for each in range(turn):
        at = turns[each]
        if not at & 1:
            free += 1
        if free & (free - 1) == 0:  # a power of two is reached, or left
            level = 0
            while 2 << level <= free:
                level += 1
            if at & 1:
                rows[count, 0], rows[count, 1], rows[count, 2] = level, since[level], at >> 1
                count += 1
            else:
                since[level] = at >> 1
        if at & 1:
            free -= 1
    return count


class Levelling:
    """Arrays that `room_of` works on, kept from one host to the next."""

    def __init__(self) -> None:
        self._since: Ints = np.zeros(LEVELS_MAX, np.int64)
        self._make_room(LENGTH_START)

    def _make_room(self, length: int) -> None:
        self._turns: Ints = np.zeros(2 * length, np.int64)
        self._rows: Ints = np.zeros((length, 3), np.int64)

    def __call__(
        self, windows: Sequence[tuple[int, int]], taken: Sequence[tuple[Taken, ...]]
    ) -> Levels:
        """Return when how many GPUs are free. taken: what is taken of each."""
        counts = [len(spans) for spans in taken]
        table = [*windows, *[(starts, ends) for spans in taken for starts, ends, _ in spans]]
        most = len(table) + len(windows) * len(counts)
        if most > len(self._rows):
            self._make_room(2 * most)
        spans, first = np.array(table, np.int64).reshape(-1, 2), len(windows)
        of_gpus = np.array(counts, np.int64)
        found = room_of(spans[:first], spans[first:], of_gpus, self._turns, self._since, self._rows)
        levels: Levels = [[] for _ in range(level_of(len(counts)) + 1)]
        for level, opens, closes in self._rows[:found].tolist():
            levels[level].append((opens, closes))
        return levels
