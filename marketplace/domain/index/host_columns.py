"""What the hosts of a market are and when they have room, as columns, and the rows a bid can use.

Hosts have a slot each: there is a column of facts for each of them, and rows in the levels of
`free_levels` for each span.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from marketplace.domain.index.free_levels import NOWHERE, Level, Levels, Rows, asked_for, seen
from marketplace.domain.kernels.layout import (
    CLOSES,
    FLOOR,
    KIND,
    KNOWN_FROM,
    KNOWN_UNTIL,
    LONGEST,
    OPENS,
    Bools,
    Ints,
)
from marketplace.domain.kernels.scan_hosts import room_on

SLOTS_START = 256
ALWAYS = 1 << 62

NO_OFFERS = (0, 0, ALWAYS, -ALWAYS, ALWAYS, ALWAYS, -ALWAYS, 0)


class Asked(NamedTuple):
    """What a bid asks for: the number of its shape, and milliseconds.

    duration: for how long at least; longest: at most.
    """

    shape: int
    earliest: int
    deadline: int
    duration: int
    longest: int


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
        seconds = asked_for(asked.earliest, asked.deadline, asked.duration)
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
            asked.shape,
            asked.longest,
            *seconds,
            self._found,
        )
        if not count:
            return NOWHERE
        rows = self._found[:count].copy()
        return rows[:, 0], rows[:, 1]

    def with_windows(self, table: Bools, asked: Asked) -> list[int]:
        """Return the slots of hosts with a window that may be long enough, the longest first."""
        facts = self._facts[:, : self._count]
        found = facts[LONGEST] >= asked.duration
        found &= facts[OPENS] <= asked.deadline - asked.duration
        found &= facts[CLOSES] >= asked.earliest + asked.duration
        if self.loose:
            found |= facts[KNOWN_UNTIL] < asked.deadline
            found |= facts[KNOWN_FROM] > asked.earliest
        found &= table[facts[KIND], asked.shape]
        slots = found.nonzero()[0]
        longest_first: list[int] = slots[np.argsort(-facts[LONGEST, slots])].tolist()
        return longest_first
