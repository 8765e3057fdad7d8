"""Columns of whole numbers in which bids stand group by group, each group in two stretches.

Most of a group stands in one long stretch, and who came last in a short one: so a bid that comes
moves few others. When the short one is full, both are joined. A group that grows out of its long
stretch moves to one of twice the length; the old one is used again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from marketplace.domain.index.free_levels import seen
from marketplace.domain.kernels.bid_rows import stand
from marketplace.domain.kernels.layout import (
    KEY,
    SINCE,
    SLOT,
    Bools,
    Ints,
    Seconds,
)

LENGTH_MIN = 64
GONE_MIN = 64
"""Rows of bids that wait no longer, up to which a group keeps them all; and a fourth of all."""
LATE_MAX = 256
"""Rows of a short stretch at most; it has an eighth of those of the long one."""

GROUPS_START = 64


class Columns:
    """The columns of all groups: `order` in 64 bits, `asked` (`SHAPE` to `GPUS`) in 32."""

    def __init__(self) -> None:
        self.order: Ints = np.zeros((4, LENGTH_MIN), np.int64)
        self.asked: Seconds = np.zeros((7, LENGTH_MIN), np.int32)
        self._end = 0
        self.keys = seen(self.order[KEY])
        self.bounds: Ints = np.zeros((GROUPS_START, 4), np.int64)
        """For each group, the first row of its long stretch and the one after the last; then of
        its short one."""
        self._bounds = seen(self.bounds)
        self._groups = 0
        self._groups_unused: list[int] = []
        self._unused: dict[int, list[int]] = defaultdict(list)

    def stretch(self, length: int) -> int:
        """Return the first row of an unused stretch."""
        if self._unused[length]:
            return self._unused[length].pop()
        start, self._end = self._end, self._end + length
        while self._end > self.order.shape[1]:
            self.order = np.concatenate([self.order, np.zeros_like(self.order)], axis=1)
            self.asked = np.concatenate([self.asked, np.zeros_like(self.asked)], axis=1)
            self.keys = seen(self.order[KEY])
        return start

    def group(self) -> int:
        """Return an unused row of `bounds`."""
        if self._groups_unused:
            return self._groups_unused.pop()
        if self._groups == len(self.bounds):
            self.bounds = np.concatenate([self.bounds, np.zeros_like(self.bounds)])
            self._bounds = seen(self.bounds)
        self._groups += 1
        return self._groups - 1

    def note(self, group: int, part: int, start: int, count: int) -> None:
        """Write down where a stretch of a group is: 0, the long one, or 1."""
        self._bounds[group, 2 * part], self._bounds[group, 2 * part + 1] = start, start + count

    def end_group(self, group: int) -> None:
        """Let a row of `bounds` be used again."""
        self._groups_unused.append(group)

    def give_back(self, start: int, length: int) -> None:
        """Let a stretch be used again."""
        self._unused[length].append(start)


class Stretch:
    """Rows of the columns, in order of price and time."""

    def __init__(self, columns: Columns, length: int) -> None:
        self.count = 0
        self.start = columns.stretch(length)
        self.length = length
        self._columns = columns

    @property
    def order(self) -> Ints:
        """Return KEY to DEADLINE of its bids."""
        return self._columns.order[:, self.start : self.start + self.count]

    @property
    def asked(self) -> Seconds:
        """Return what its bids ask for."""
        return self._columns.asked[:, self.start : self.start + self.count]

    def insert(self, order: Sequence[int], asked: Sequence[int]) -> None:
        """Put a new row in its place; those after it move up by one.

        asked: what `layout` says of it, without SOONEST and LATEST.
        """
        columns, end = self._columns, self.start + self.count
        stand(columns.order, columns.asked, self.start, end, *order, *asked)
        self.count += 1

    def reaching(self, least: int) -> tuple[int, int]:
        """Return the first row with a limit of `least` and more, and the one after the last."""
        end = self.start + self.count
        return self.start, bisect_right(self._columns.keys, -least, self.start, end)

    def hold(self, order: Ints, asked: Seconds) -> None:
        """Have these rows and no others."""
        count = order.shape[1]
        if count > self.length:
            self.end()
            while count > self.length:
                self.length *= 2
            self.start = self._columns.stretch(self.length)
        self.count = count
        self.order[:], self.asked[:] = order, asked

    def end(self) -> None:
        """Give back its rows: nobody waits here any more."""
        self._columns.give_back(self.start, self.length)


class Group:
    """Bids in order of price and time; of equals, those of `early` come first.

    A bid that waits no longer keeps its row until there are many such rows: see `gone`.
    """

    def __init__(self, columns: Columns) -> None:
        self.gone, self.gone_max = 0, GONE_MIN
        self.number = columns.group()
        self.early = Stretch(columns, LENGTH_MIN)
        self.late = Stretch(columns, LENGTH_MIN)
        self._columns = columns
        self._note()

    def _note(self) -> None:
        for part, stretch in enumerate((self.early, self.late)):
            self._columns.note(self.number, part, stretch.start, stretch.count)

    @property
    def count(self) -> int:
        """Return how many rows it has."""
        return self.early.count + self.late.count

    @property
    def is_full(self) -> bool:
        """Tell if `tidy` has to come before the next bid."""
        return self.late.count == self.late.length

    def insert(self, order: Sequence[int], asked: Sequence[int]) -> None:
        """Let a bid wait: KEY to DEADLINE, and what it asks for, as `Stretch.insert` is told."""
        late = self.late
        late.insert(order, asked)
        self._columns.note(self.number, 1, late.start, late.count)

    def tidy(self, waits: Bools) -> list[int]:
        """Join both stretches, without those who wait no longer; return the slots of these."""
        order, asked, gone = self._joined(waits)
        self.early.hold(order, asked)
        self.late.count = self.gone = 0
        self.gone_max = GONE_MIN + self.early.count // 4
        if self.late.length < min(LATE_MAX, self.early.length // 8):
            self.late.end()
            self.late = Stretch(self._columns, 2 * self.late.length)
        self._note()
        return gone

    def _joined(self, waits: Bools) -> tuple[Ints, Seconds, list[int]]:
        """Return the rows of those who wait, and the slots of those who do no longer."""
        early, late = self.early, self.late
        order = np.concatenate([early.order, late.order], axis=1)
        asked = np.concatenate([early.asked, late.asked], axis=1)
        places = _in_turn(order, early.count)
        slots = asked[SLOT, places]
        kept = waits[slots]
        gone: list[int] = slots[~kept].tolist()
        places = places[kept]
        return order.take(places, axis=1), asked.take(places, axis=1), gone

    def end(self) -> None:
        """Give back its rows: nobody waits here any more."""
        self.early.end()
        self.late.end()
        self._columns.end_group(self.number)


def _in_turn(order: Ints, early: int) -> Ints:
    """Return the places of rows in order, of which the first `early` are, and then the others."""
    keys, since = order[KEY], order[SINCE]
    after = keys[:early].searchsorted(keys[early:], side="right")
    # Who comes later in the log is mostly added later, so hardly any goes back.
    before = np.maximum(after - 1, 0)
    ties = (after > 0) & (keys[before] == keys[early:]) & (since[before] > since[early:])
    for late in ties.nonzero()[0].tolist():
        row, end = early + late, int(after[late])
        first = int(keys[:early].searchsorted(keys[row]))
        after[late] = first + since[first:end].searchsorted(since[row])
    return np.insert(np.arange(early), after, np.arange(early, len(keys)))
