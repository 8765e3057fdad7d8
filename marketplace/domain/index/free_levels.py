"""What the hosts of a market are and when they have room, as columns, and the rows a bid can use.

Hosts have a slot each: there is a column of facts for each of them, and for each span during which
1, 2, 4, 8, … of their GPUs are free a row in the columns of that level. A bid that some host can
serve has such a span there: long enough, at the level of the greatest power of two that is not more
than the GPUs it asks for. So one pass of NumPy over the columns of that level leaves few hosts out
of thousands, and never one too few; what is left is looked at GPU by GPU. Times here are whole
seconds, rounded so that a span only ever looks longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from marketplace.domain.kernels.layout import (
    CLOSES,
    FAR,
    FLOOR,
    KIND,
    KNOWN_FROM,
    KNOWN_UNTIL,
    LONGEST,
    OPENS,
    ZERO,
    Bools,
    Ints,
    Seconds,
)
from marketplace.domain.kernels.scan_hosts import room_on

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
        for span in rows.keys() - spans if rows else ():
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


SLOTS_START = 256
ALWAYS = 1 << 62

NO_OFFERS = (0, 0, ALWAYS, -ALWAYS, ALWAYS, ALWAYS, -ALWAYS, 0)


Asked = tuple[int, int, int, int, int]
"""What a bid asks for: the number of its shape; in milliseconds, from when and until when, for how
long at least and at most. Made of every bid, so it is a plain tuple."""


class HostColumns:
    """Written by the catalogue alone. loose: how many hosts have windows that are not all known."""

    def __init__(self) -> None:
        self.loose = 0
        self._count = 0
        self._unused: list[int] = []
        self._facts: Ints = np.zeros((8, SLOTS_START), np.int64)
        self._levels: list[Level] = [Level()]
        self._found: Ints = np.zeros((0, 2), np.int64)

    def copy(self) -> HostColumns:
        """Return the same columns, to be changed apart."""
        other = HostColumns()
        other.loose, other._count = self.loose, self._count
        other._unused, other._facts = list(self._unused), self._facts.copy()
        other._levels = [level.copy() for level in self._levels]
        return other

    # --- writing ---------------------------------------------------------------------------

    def slot(self) -> int:
        """Return an unused slot."""
        if self._unused:
            return self._unused.pop()
        self._count += 1
        if self._count > self._facts.shape[1]:
            self._facts = np.concatenate([self._facts, np.zeros_like(self._facts)], axis=1)
        return self._count - 1

    def give_back(self, slot: int) -> None:
        """Let a slot be used again."""
        self._unused.append(slot)

    def describe(self, slot: int, facts: tuple[int, ...]) -> None:
        """Write down KIND to LONGEST of a host."""
        view = seen(self._facts)
        for which, fact in enumerate(facts):  # number by number: cheaper than NumPy
            view[which, slot] = fact

    def fact(self, slot: int, which: int) -> int:
        """Return one of KIND to LONGEST."""
        return int(self._facts[which, slot])

    def write(self, slot: int, rows: list[Rows], levels: Levels) -> None:
        """Write down when a host has room; `rows` it has so far, at each level, are kept up."""
        floor = self.fact(slot, FLOOR)
        while len(self._levels) < len(levels):
            self._levels.append(Level())
        while len(rows) < len(levels):
            rows.append({})
        for number, of_level in enumerate(rows):
            spans = levels[number] if number < len(levels) else ()
            if of_level or spans:
                self._levels[number].put(of_level, slot, floor, spans)

    # --- finding ---------------------------------------------------------------------------

    def with_room(self, number: int, table: Bools, asked: Asked) -> tuple[Ints, Ints]:
        """Return the slots and lowest floors of hosts that fit, with room at a level.

        table: which kinds fit which shapes.
        """
        shape, earliest, deadline, duration, longest = asked
        seconds = asked_for(earliest, deadline, duration)
        if number >= len(self._levels) or seconds is None:
            return NOWHERE
        level = self._levels[number]
        if len(self._found) < level.count:
            self._found = np.zeros((len(level.slots), 2), np.int64)
        count = room_on(
            level.opens,
            level.closes,
            level.lengths,
            level.slots,
            level.floors,
            level.count,
            self._facts,
            table,
            shape,
            longest,
            *seconds,
            self._found,
        )
        if not count:
            return NOWHERE
        rows = self._found[:count].copy()
        return rows[:, 0], rows[:, 1]

    def with_windows(self, table: Bools, asked: Asked) -> list[int]:
        """Return the slots of hosts with a window that may be long enough, the longest first."""
        shape, earliest, deadline, duration, _ = asked
        facts = self._facts[:, : self._count]
        found = facts[LONGEST] >= duration
        found &= facts[OPENS] <= deadline - duration
        found &= facts[CLOSES] >= earliest + duration
        if self.loose:
            found |= facts[KNOWN_UNTIL] < deadline
            found |= facts[KNOWN_FROM] > earliest
        found &= table[facts[KIND], shape]
        slots = found.nonzero()[0]
        longest_first: list[int] = slots[np.argsort(-facts[LONGEST, slots])].tolist()
        return longest_first
