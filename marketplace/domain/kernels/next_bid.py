"""Who comes next of the bids that wait, in order of price and time, and may find room."""

from __future__ import annotations

import numpy as np

from marketplace.domain.kernels.jit import compiled, compiled_later
from marketplace.domain.kernels.layout import (
    DURATION,
    FAR,
    KEY,
    LATEST,
    LEVEL,
    SHAPE,
    SINCE,
    SLOT,
    SOONEST,
    Bools,
    Ints,
    Seconds,
)

ROWS_AT_ONCE = 64
"""Bids that are compared together: the processor does several at once where nothing is skipped."""


def _any_of_them(
    levels: Seconds,
    durations: Seconds,
    soonest: Seconds,
    latest: Seconds,
    depth: np.int32,
    longest: np.int32,
    closes: np.int32,
    opens: np.int32,
) -> bool:
    found = 0  # compared several at once, for there is no way out
    for row in range(levels.size):
        found += (
            (levels[row] < depth)
            & (durations[row] <= longest)
            & (soonest[row] <= closes)
            & (latest[row] >= opens)
        )
    return found > 0


def _any_at_once(
    levels: Seconds,
    durations: Seconds,
    soonest: Seconds,
    latest: Seconds,
    depth: np.int32,
    longest: np.int32,
    closes: np.int32,
    opens: np.int32,
) -> bool:
    found = durations <= longest
    found &= levels < depth
    found &= soonest <= closes
    found &= latest >= opens
    return bool(found.any())


any_may = compiled_later(_any_of_them, _any_at_once)
"""Tell if any of some bids may find room."""


@compiled
def next_row(
    asked: Seconds,
    fits: Ints,
    waits: Bools,
    reach: Ints,
    levels: int,
    opens: int,
    closes: int,
    row: int,
    stop: int,
) -> int:
    """Return the first row from `row` on of a bid that may find room; `stop`: there is none."""
    looked = row + 1  # the first is looked at by itself: it often is the one
    while row < stop:
        if row >= looked:
            looked = min(row + ROWS_AT_ONCE, stop)
            if not any_may(
                asked[LEVEL, row:looked],
                asked[DURATION, row:looked],
                asked[SOONEST, row:looked],
                asked[LATEST, row:looked],
                np.int32(levels),
                np.int32(min(reach[2] // 1_000, FAR)),
                np.int32(min(closes, FAR)),
                np.int32(max(opens, -FAR)),
            ):
                row = looked
                continue
        level = asked[LEVEL, row]
        if (
            level < levels
            and int(asked[DURATION, row]) * 1_000 <= reach[2 + level]
            and asked[SOONEST, row] <= closes
            and asked[LATEST, row] >= opens
            and fits[asked[SHAPE, row]] != 0
            and waits[asked[SLOT, row]]
        ):
            return row
        row += 1
    return stop


@compiled
def next_part(
    order: Ints,
    asked: Seconds,
    stretches: Ints,
    fits: Ints,
    waits: Bools,
    reach: Ints,
    levels: int,
    opens: int,
    closes: int,
) -> int:
    """Move each part on to its next bid that may find room; return whose comes first; -1: none."""
    best, of = -1, -1
    for part in range(stretches.shape[0]):
        row, stop = stretches[part, 0], stretches[part, 1]
        row = next_row(asked, fits, waits, reach, levels, opens, closes, row, stop)
        stretches[part, 0] = row
        if row < stop and (
            best < 0
            or order[KEY, row] < order[KEY, best]
            or (order[KEY, row] == order[KEY, best] and order[SINCE, row] < order[SINCE, best])
        ):
            best, of = row, part
    return of


@compiled
def lay_out(order: Ints, bounds: Ints, groups: Ints, floor: int, stretches: Ints) -> int:
    """Write down the rows of groups that reach a floor, stretch by stretch; return how many.

    bounds: where the stretches of each group are; groups: which of them.
    """
    count = 0
    for group in groups:
        for part in range(2):
            start, row, high = (
                bounds[group, 2 * part],
                bounds[group, 2 * part],
                bounds[group, 2 * part + 1],
            )
            while row < high:
                middle = (row + high) // 2
                if order[KEY, middle] <= -floor:
                    row = middle + 1
                else:
                    high = middle
            if start < row:
                stretches[count, 0], stretches[count, 1] = start, row
                count += 1
    return count
