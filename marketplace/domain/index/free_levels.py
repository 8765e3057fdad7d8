"""When hosts have room: spans during which 1, 2, 4, 8, … of their GPUs are free, as columns.

A bid that some host can serve has such a span there: long enough, at the level of the greatest
power of two that is not more than the GPUs it asks for. So one pass of NumPy over the columns of
that level leaves few hosts out of thousands, and never one too few; what is left is looked at
GPU by GPU. Times here are whole seconds, rounded so that a span only ever looks longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from marketplace.domain.kernels.layout import FAR, ZERO, Ints, Seconds

ROWS_START = 256


def seconds_below(millis: int) -> int:
    """Return the second of a column that is not after an instant."""
    return min(max(millis // 1_000 - ZERO, -FAR), FAR)


def seconds_above(millis: int) -> int:
    """Return the second of a column that is not before an instant."""
    return min(max(-(-millis // 1_000) - ZERO, -FAR), FAR)


def level_of(gpus: int) -> int:
    """Return the level at which a bid for so many GPUs of one host is looked up."""
    return gpus.bit_length() - 1


Levels = list[list[tuple[int, int]]]
Rows = dict[tuple[int, int], int]
"""The row of each span of a host at a level."""


def levels_of(gpus: Sequence[Sequence[tuple[int, int]]]) -> Levels:
    """Return for each level the spans in which that many of the GPUs are free, in order.

    gpus: the free spans of each GPU, in milliseconds, in order.
    """
    count, first = len(gpus), gpus[0]
    if all(spans is first for spans in gpus):
        return [list(first)] * (level_of(count) + 1)
    # Ends after starts at the same instant: what touches is one span, which only looks longer.
    turns = [2 * opens for spans in gpus for opens, _ in spans]
    turns += [2 * closes + 1 for spans in gpus for _, closes in spans]
    turns.sort()
    levels: Levels = [[] for _ in range(level_of(count) + 1)]
    since = [0] * len(levels)
    free = 0
    for turn in turns:
        if not turn & 1:
            free += 1
            if free & (free - 1) == 0:  # a power of two is reached
                since[free.bit_length() - 1] = turn >> 1
        else:
            if free & (free - 1) == 0:
                level = free.bit_length() - 1
                levels[level].append((since[level], turn >> 1))
            free -= 1
    return levels


class Level:
    """The rows of one level. A row that belongs to nobody closes before everything."""

    def __init__(self) -> None:
        self.count = 0
        self.opens: Seconds = np.zeros(ROWS_START, np.int32)
        self.closes: Seconds = np.zeros(ROWS_START, np.int32)
        self.lengths: Seconds = np.zeros(ROWS_START, np.int32)
        self.floors: Ints = np.zeros(ROWS_START, np.int64)
        self.slots: Seconds = np.zeros(ROWS_START, np.int32)
        self._views = self._seen()
        self._unused: list[int] = []

    def _seen(self) -> list[memoryview]:
        seconds = (self.opens, self.closes, self.lengths, self.slots)
        return [*map(seen, seconds), seen(self.floors)]

    def copy(self) -> Level:
        """Return the same rows, to be changed apart."""
        other = Level()
        other.count, other._unused = self.count, list(self._unused)
        other.opens, other.closes = self.opens.copy(), self.closes.copy()
        other.lengths, other.slots = self.lengths.copy(), self.slots.copy()
        other.floors = self.floors.copy()
        other._views = other._seen()
        return other

    def put(self, rows: Rows, slot: int, floor: int, spans: Iterable[tuple[int, int]]) -> None:
        """Write down a host's spans that have no row yet, and forget others; `rows` is kept up."""
        for span in rows.keys() - spans:
            row = rows.pop(span)
            self._fill(row, FAR, -FAR, -2 * FAR, 0, 0)
            self._unused.append(row)
        for span in spans:
            if span not in rows:
                row = rows[span] = self._row()
                first, last = seconds_below(span[0]), seconds_above(span[1])
                self._fill(row, first, last, last - first, slot, floor)

    def _fill(self, row: int, first: int, last: int, length: int, slot: int, floor: int) -> None:
        opens, closes, lengths, slots, floors = self._views
        opens[row], closes[row], lengths[row] = first, last, length
        slots[row], floors[row] = slot, floor

    def _row(self) -> int:
        if self._unused:
            return self._unused.pop()
        if self.count == len(self.slots):
            self.opens, self.closes = _twice(self.opens), _twice(self.closes)
            self.lengths = _twice(self.lengths)
            self.floors, self.slots = _twice(self.floors), _twice(self.slots)
            self._views = self._seen()
        self.count += 1
        return self.count - 1


def asked_for(earliest: int, deadline: int, duration: int) -> tuple[int, int, int] | None:
    """Return how long, from when and until when a span has to be free; None: that cannot be.

    The shared time of two spans is long enough if both are, and each end is far enough from the
    other's start: comparisons alone, several times cheaper than arithmetic.
    """
    seconds = duration // 1_000
    first, last = seconds_below(earliest), seconds_above(deadline)
    return None if last - first < seconds else (seconds, last - seconds, first + seconds)


NOWHERE: tuple[Ints, Ints] = (np.zeros(0, np.int64), np.zeros(0, np.int64))

Column = TypeVar("Column", Ints, Seconds)


def seen(column: Any) -> memoryview:
    """Return a view of an array: single numbers are written several times faster so."""
    return memoryview(column)


def _twice(column: Column) -> Column:
    return np.concatenate([column, np.zeros_like(column)])
