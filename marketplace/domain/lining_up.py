"""Where a bid stands among those of its group, as a loop over columns that can be compiled.

The same as `columns.Stretch.insert`, which goes column by column through views of memory.
"""

from __future__ import annotations

from marketplace.domain.columns import DEADLINE, EARLIEST, KEY, SINCE
from marketplace.domain.openings import Ints, Seconds
from marketplace.domain.optimum.compiling import compiled
from marketplace.domain.room import DURATION, GPUS, LATEST, LEVEL, SHAPE, SLOT, SOONEST


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
    soonest: int,
    latest: int,
    slot: int,
    gpus: int,
) -> None:
    """Put a bid after all rows from `start` on of its key that came no later; others move up."""
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
    asked[SOONEST, row], asked[LATEST, row] = soonest, latest
    asked[SLOT, row], asked[GPUS, row] = slot, gpus
