"""Where a bid stands among those of its group, as loops over columns that can be compiled.

The same as `bid_columns.Stretch.insert`, which goes column by column through views of memory, and
as `bid_columns.Group._joined`, which puts all of them in order anew.
"""

from __future__ import annotations

from marketplace.domain.kernels.jit import compiled
from marketplace.domain.kernels.layout import (
    DEADLINE,
    DURATION,
    EARLIEST,
    FAR,
    GPUS,
    KEY,
    LATEST,
    LEVEL,
    SHAPE,
    SINCE,
    SLOT,
    SOONEST,
    ZERO,
    Bools,
    Ints,
    Seconds,
)


@compiled
def stand(
    order: Ints,
    asked: Seconds,
    start: int,
    end: int,
    key: int,
    since: int,
    earliest: int,
    deadline: int,
    shape: int,
    level: int,
    duration: int,
    slot: int,
    gpus: int,
) -> None:
    """Put a bid after all rows from `start` on of its key that came no later; others move up."""
    first = min(max(earliest // 1_000 - ZERO, -FAR), FAR)
    last = min(max(-(-deadline // 1_000) - ZERO, -FAR), FAR)
    row, high = start, end
    while row < high:
        middle = (row + high) // 2
        if order[KEY, middle] <= key:
            row = middle + 1
        else:
            high = middle
    while row > start and order[KEY, row - 1] == key and order[SINCE, row - 1] > since:
        row -= 1
    for column in range(order.shape[0]):
        for at in range(end, row, -1):
            order[column, at] = order[column, at - 1]
    for column in range(asked.shape[0]):
        for at in range(end, row, -1):
            asked[column, at] = asked[column, at - 1]
    order[KEY, row], order[SINCE, row] = key, since
    order[EARLIEST, row], order[DEADLINE, row] = earliest, deadline
    asked[SHAPE, row], asked[LEVEL, row], asked[DURATION, row] = shape, level, duration
    asked[SOONEST, row] = min(first + duration, FAR)
    asked[LATEST, row] = max(last - duration, -FAR)
    asked[SLOT, row], asked[GPUS, row] = slot, gpus


@compiled
def join(
    order: Ints,
    asked: Seconds,
    early: int,
    early_end: int,
    late: int,
    late_end: int,
    waits: Bools,
    order_kept: Ints,
    asked_kept: Seconds,
    places: Ints,
) -> tuple[int, int]:
    """Join two stretches of rows, each in order; return how many are kept, and how many are not.

    Args:
        waits: by slot, whether a bid still does: the rows of others are not kept.
        order_kept, asked_kept: the rows that are.
        places: to work with; left with the slots of the others, from its end.
    """
    kept = gone = 0
    while early < early_end or late < late_end:
        first = late == late_end or (
            early < early_end
            and (
                order[KEY, early] < order[KEY, late]
                or (
                    order[KEY, early] == order[KEY, late]
                    and order[SINCE, early] <= order[SINCE, late]
                )
            )
        )
        row = early if first else late
        early, late = (early + 1, late) if first else (early, late + 1)
        slot = asked[SLOT, row]
        if waits[slot]:
            places[kept] = row
            kept += 1
        else:
            gone += 1
            places[places.size - gone] = slot
    for column in range(order.shape[0]):
        for at in range(kept):
            order_kept[column, at] = order[column, places[at]]
    for column in range(asked.shape[0]):
        for at in range(kept):
            asked_kept[column, at] = asked[column, places[at]]
    return kept, gone
