"""The room that some hosts have now, as bids in columns are compared with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from marketplace.domain.openings import FAR, Levels, Seconds, seconds_above, seconds_below

SHAPE, LEVEL, DURATION, SOONEST, LATEST, SLOT, GPUS = range(7)
"""What the columns of bids say: the number of the shape; the level of the least GPUs of one host;
in seconds, how long at least, when it ends at the soonest and starts at the latest; whose it is;
how many GPUs, 0 where more is to be looked at than whether they are free."""

Bools = npt.NDArray[np.bool_]


class Room:
    """When some hosts have room at each level; a level's spans are filled up with empty ones."""

    def __init__(self, hosts: Sequence[Levels], now: int) -> None:
        depth = max((len(levels) for levels in hosts), default=0)
        since = seconds_below(now)
        spans: list[list[tuple[int, int]]] = [
            [
                (max(seconds_below(opens), since), seconds_above(closes))
                for levels in hosts
                if number < len(levels)
                for opens, closes in levels[number]
            ]
            for number in range(depth)
        ]
        while spans and not spans[-1]:
            spans.pop()
        self._depth = depth = len(spans)
        width = max((len(some) for some in spans), default=0)
        # One level more, at which nobody has room: for bids that ask for more than there is.
        never = (FAR, -FAR)
        table = [[*some, *[never] * (width - len(some))] for some in (*spans, [])]
        self._spans = np.array(table, np.int32).reshape(depth + 1, width, 2)
        some = spans[0] if spans else []
        self._longest = max((closes - opens for opens, closes in some), default=-FAR)
        self._opens = min((opens for opens, _ in some), default=FAR)
        self._closes = max((closes for _, closes in some), default=-FAR)

    @property
    def is_empty(self) -> bool:
        """Tell if no bid at all finds room."""
        return self._longest <= 0

    def may_take(self, asked: Seconds) -> Bools:
        """Tell at a glance which bids may find room: a superset of `takes`."""
        found: Bools = asked[DURATION] <= self._longest
        found &= asked[SOONEST] <= self._closes
        found &= asked[LATEST] >= self._opens
        found &= asked[LEVEL] < self._depth
        return found

    def takes(self, asked: Seconds) -> Bools:
        """Tell which bids may find room; those it denies find none."""
        levels = np.minimum(asked[LEVEL], self._depth)
        found = np.zeros(len(levels), np.bool_)
        duration, soonest, latest = asked[DURATION], asked[SOONEST], asked[LATEST]
        for opens, closes in self._spans.transpose(1, 2, 0):
            first, last = opens[levels], closes[levels]
            fits = last - first >= duration
            fits &= soonest <= last
            fits &= latest >= first
            found |= fits
        return found
