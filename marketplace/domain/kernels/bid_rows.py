"""Where a bid stands among those of its group: a row that comes in moves those after it up."""

from __future__ import annotations

from marketplace.domain.kernels.jit import compiled, compiled_later
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
    Ints,
    Seconds,
)


def _moved_up(order: Ints, asked: Seconds, row: int, end: int) -> None:
    for column in range(order.shape[0]):
        for at in range(end, row, -1):
            order[column, at] = order[column, at - 1]
    for column in range(asked.shape[0]):
        for at in range(end, row, -1):
            asked[column, at] = asked[column, at - 1]


def _moved_up_at_once(order: Ints, asked: Seconds, row: int, end: int) -> None:
    order[:, row + 1 : end + 1] = order[:, row:end]
    asked[:, row + 1 : end + 1] = asked[:, row:end]


move_up = compiled_later(_moved_up, _moved_up_at_once)
"""Move the rows from one on, up to the end, one further."""


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
    move_up(order, asked, row, end)
    order[KEY, row], order[SINCE, row] = key, since
    order[EARLIEST, row], order[DEADLINE, row] = earliest, deadline
    asked[SHAPE, row], asked[LEVEL, row], asked[DURATION, row] = shape, level, duration
    asked[SOONEST, row] = min(first + duration, FAR)
    asked[LATEST, row] = max(last - duration, -FAR)
    asked[SLOT, row], asked[GPUS, row] = slot, gpus
