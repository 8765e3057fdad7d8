"""Columns of whole numbers in which bids stand group by group, each group in a stretch of its own.

A group that grows out of its stretch moves to one of twice the length; the old one is used again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from marketplace.domain.openings import Ints, Seconds
from marketplace.domain.room import Bools

LENGTH_MIN = 64

KEY, SINCE, EARLIEST, DEADLINE = range(4)
"""Rows of `order`: what bids are sorted by, the limit, negative so that it rises, and the store
position; then when they may start and have to be over, in milliseconds."""


class Columns:
    """The columns of all groups: `order` in 64 bits, `asked` (`room.SHAPE` to `GPUS`) in 32."""

    def __init__(self) -> None:
        self.order: Ints = np.zeros((4, LENGTH_MIN), np.int64)
        self.asked: Seconds = np.zeros((7, LENGTH_MIN), np.int32)
        self._end = 0
        self.views = self._views()
        self._unused: dict[int, list[int]] = defaultdict(list)

    def stretch(self, length: int) -> int:
        """Return the first row of an unused stretch."""
        if self._unused[length]:
            return self._unused[length].pop()
        start, self._end = self._end, self._end + length
        while self._end > self.order.shape[1]:
            self.order = np.concatenate([self.order, np.zeros_like(self.order)], axis=1)
            self.asked = np.concatenate([self.asked, np.zeros_like(self.asked)], axis=1)
            self.views = self._views()
        return start

    def _views(self) -> list[memoryview]:
        return [memoryview(column) for of_all in (self.order, self.asked) for column in of_all]

    def insert(self, at: int, end: int, numbers: Iterable[int]) -> None:
        """Move the rows from `at` to before `end` up by one, and write a new one: order, asked."""
        # Through views of memory: several times cheaper than NumPy, which copies what overlaps.
        for view, number in zip(self.views, numbers, strict=True):
            view[at + 1 : end + 1] = view[at:end]
            view[at] = number

    def give_back(self, start: int, length: int) -> None:
        """Let a stretch be used again."""
        self._unused[length].append(start)


class Group:
    """Bids in order of price and time.

    A bid that waits no longer keeps its row until there are many such rows: see `gone`.
    """

    def __init__(self, columns: Columns) -> None:
        self.count = 0
        self.gone = 0
        self.start = columns.stretch(LENGTH_MIN)
        self._length = LENGTH_MIN
        self._columns = columns

    @property
    def order(self) -> Ints:
        """Return KEY to DEADLINE of its bids."""
        return self._columns.order[:, self.start : self.start + self.count]

    @property
    def asked(self) -> Seconds:
        """Return what its bids ask for."""
        return self._columns.asked[:, self.start : self.start + self.count]

    def insert(self, row: int, order: Sequence[int], asked: Sequence[int]) -> None:
        """Put a bid in a row; those from there on move up by one."""
        if self.count == self._length:
            self._move(2 * self._length)
        self._columns.insert(self.start + row, self.start + self.count, (*order, *asked))
        self.count += 1

    def _move(self, length: int) -> None:
        columns, old = self._columns, self.start
        new = columns.stretch(length)
        for of_all in (columns.order, columns.asked):
            of_all[:, new : new + self.count] = of_all[:, old : old + self.count]
        columns.give_back(old, self._length)
        self.start, self._length = new, length

    def row_of(self, key: int, since: int) -> int:
        """Return the row of a new bid: after all of its key that came no later."""
        keys, positions = self._columns.views[KEY], self._columns.views[SINCE]
        row = bisect_right(keys, key, self.start, self.start + self.count)
        # Who comes later in the log is mostly added later, so this hardly ever goes back.
        while row > self.start and keys[row - 1] == key and positions[row - 1] > since:
            row -= 1
        return row - self.start

    def is_at(self, row: int, key: int, since: int) -> bool:
        """Tell if the bid in a row has this key and this position."""
        at, views = self.start + row, self._columns.views
        return views[SINCE][at] == since and views[KEY][at] == key

    def until(self, least: int) -> int:
        """Return how many of its rows have a limit of `least` and more."""
        return int(self.order[KEY].searchsorted(-least, "right"))

    def keep(self, kept: Bools) -> None:
        """Drop all other rows."""
        order, asked = self.order[:, kept], self.asked[:, kept]
        self.count, self.gone = order.shape[1], 0
        self.order[:], self.asked[:] = order, asked

    def end(self) -> None:
        """Give back its rows: nobody waits here any more."""
        self._columns.give_back(self.start, self._length)
