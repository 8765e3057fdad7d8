"""What it costs at least to have one GPU of each of some pools for so long, where it is free."""

from __future__ import annotations

from math import inf

import numpy as np
from numpy.typing import NDArray

from marketplace.domain.kernels.jit import compiled_later
from marketplace.domain.kernels.layout import Ints

Floats = NDArray[np.float64]


def _by_pools(
    grid: Ints, paid: Floats, opens: Ints, closes: Ints, pools: Ints,
    first: int, end: int, duration: int, least: Floats,
) -> None:  # fmt: skip
    """Write down for each pool the mean price at its cheapest start; infinite where there is none.

    Args:
        grid: [T+1] rising instants. paid: [P, T+1] price × time up to each of them.
        opens, closes: [P, S] when each pool is free. pools: those asked about.
        first, end: starts are the points [first, end) of the grid.
    """
    last = grid.size - 2
    until = grid[grid.size - 1]
    for n in range(pools.size):
        p = pools[n]
        low = inf
        at = first
        for s in range(first, end):
            starts = grid[s]
            ends = starts + duration
            while at < last and grid[at + 1] <= ends:
                at += 1
            free = False
            for span in range(opens.shape[1]):
                if opens[p, span] <= starts and ends <= closes[p, span]:
                    free = True
                    break
            if not free:
                continue
            slope = (paid[p, at + 1] - paid[p, at]) / (grid[at + 1] - grid[at])
            spent = slope * (min(ends, until) - grid[at]) + paid[p, at] - paid[p, s]
            if spent < low:
                low = spent
        least[n] = low / duration


def _at_once(
    grid: Ints, paid: Floats, opens: Ints, closes: Ints, pools: Ints,
    first: int, end: int, duration: int, least: Floats,
) -> None:  # fmt: skip
    """Do the same with whole arrays."""
    starts = grid[first:end]
    ends = starts + duration
    place = np.minimum(grid.searchsorted(ends, "right") - 1, len(grid) - 2)
    line = paid[pools]
    slope = (line[:, place + 1] - line[:, place]) / (grid[place + 1] - grid[place])
    spent = slope * (np.minimum(ends, grid[-1]) - grid[place]) + line[:, place]
    spent -= line[:, first:end]
    free = np.zeros(spent.shape, bool)
    for opened, closed in zip(opens[pools].T, closes[pools].T, strict=True):
        free |= (opened[:, None] <= starts) & (ends <= closed[:, None])
    least[:] = np.where(free, spent, inf).min(axis=1) / duration


cheapest_start = compiled_later(_by_pools, _at_once)


def warm() -> None:
    """Call it as a round does, so that it is compiled."""
    spans = np.zeros((1, 1), np.int64)
    pools, least = np.zeros(1, np.int64), np.zeros(1)
    cheapest_start(
        np.array([0, 2], np.int64), np.zeros((1, 2)), spans, spans + 2, pools, 0, 1, 1, least
    )
