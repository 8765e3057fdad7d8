"""The room that some hosts have now, as bids in columns are compared with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from marketplace.domain.index.free_levels import levels_of, seconds_above, seconds_below
from marketplace.domain.kernels.layout import (
    DURATION,
    FAR,
    LATEST,
    LEVEL,
    SHAPE,
    SOONEST,
    Bools,
    Ints,
    Seconds,
)

SPANS_MAX = 64
"""Spans of a level that are compared one by one; those that open later are looked at as one."""

ANYBODY = -1

Span = tuple[int, int, int, int, int]
"""When it opens and closes and for how long at most, in seconds; its floor, and whom it fits."""


class Free(NamedTuple):
    """When each of some GPUs of one host is free, in milliseconds, for some of those that wait.

    floor: for who pays it. fits: for whom of `Hosts.fits` they are; ANYBODY: for all.
    """

    gpus: Sequence[Sequence[tuple[int, int]]]
    floor: int = 0
    fits: int = ANYBODY

    def spans(self, now: int) -> list[list[Span]]:
        """Return for each level the spans from now on in which there may be room.

        For one GPU those of each; for more, those in which that many are free, whichever, and
        for as long as that many of them are free at a stretch.
        """
        gpus = [
            [(max(opens, now), closes) for opens, closes in spans if closes > now]
            for spans in self.gpus
        ]
        longest = sorted([max([b - a for a, b in spans], default=0) for spans in gpus])
        levels = levels_of(gpus)
        levels[0] = sorted({span for spans in gpus for span in spans})
        return [
            [self._span(*span, longest[-(1 << level)]) for span in spans]
            for level, spans in enumerate(levels)
        ]

    def _span(self, opens: int, closes: int, longest: int) -> Span:
        first, last = seconds_below(opens), seconds_above(closes)
        most = min(last - first, -(-longest // 1_000) + 1)
        return first, last, most, self.floor, self.fits


class Hosts(NamedTuple):
    """What is free on some hosts. fits: a number for each shape of bid; None: all are alike."""

    free: Sequence[Free]
    fits: Ints | None = None


class Room:
    """When some hosts have room at each level; a level's spans are filled up with empty ones."""

    def __init__(self, hosts: Hosts, now: int) -> None:
        free = [each.spans(now) for each in hosts.free]
        depth = max((len(levels) for levels in free), default=0)
        spans = [
            _few([span for levels in free if number < len(levels) for span in levels[number]])
            for number in range(depth)
        ]
        while spans and not spans[-1]:
            spans.pop()
        self._depth = depth = len(spans)
        width = max((len(some) for some in spans), default=0)
        # One level more, at which nobody has room: for bids that ask for more than there is.
        never = (FAR, -FAR, -FAR, 0, ANYBODY)
        table = [[*some, *[never] * (width - len(some))] for some in (*spans, [])]
        columns = np.array(table, np.int64).reshape(depth + 1, width, 5).transpose(1, 2, 0)
        self._spans = columns[:, :3].astype(np.int32)
        self._terms = columns[:, 3:]
        self._fits = hosts.fits
        self._one_price = len({each.floor for each in hosts.free}) < 2
        some = spans[0] if spans else []
        self._longest = max((span[2] for span in some), default=-FAR)
        self._opens = min((span[0] for span in some), default=FAR)
        self._closes = max((span[1] for span in some), default=-FAR)

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

    def takes(self, asked: Seconds, reaches: Ints) -> Bools:
        """Tell which bids may find room; those it denies find none. reaches: what each pays."""
        levels = np.minimum(asked[LEVEL], self._depth)
        found = np.zeros(len(levels), np.bool_)
        duration, soonest, latest = asked[DURATION], asked[SOONEST], asked[LATEST]
        fitting = None if self._fits is None else self._fits[asked[SHAPE]]
        for (opens, closes, most), (floors, fit) in zip(self._spans, self._terms, strict=True):
            fits = most[levels] >= duration
            fits &= soonest <= closes[levels]
            fits &= latest >= opens[levels]
            if not self._one_price:
                fits &= reaches >= floors[levels]
            if fitting is not None:
                fits &= (fitting == fit[levels]) | (fit[levels] == ANYBODY)
            found |= fits
        return found


def _few(spans: list[Span]) -> list[Span]:
    """Return some spans, or where they are many the first of them and one that holds the rest."""
    if len(spans) <= SPANS_MAX:
        return spans
    spans.sort()
    opens, closes, most, floors, _ = zip(*spans[SPANS_MAX - 1 :], strict=True)
    late = (min(opens), max(closes), max(most), min(floors), ANYBODY)
    return [*spans[: SPANS_MAX - 1], late]
