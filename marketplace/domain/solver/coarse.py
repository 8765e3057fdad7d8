"""First prices for a large round: those of a small one, in which like pools are one pool.

Pools that the same kinds of bid may use compete for the same bids, so floor and scarcity price
come to about the same in all of them. A problem with a pool for each such class, in a few bands of
floors, is solved many times as fast as the round; its prices, less what a pool's own floor is
above that of its band, are where the prices of the round start.
"""

from __future__ import annotations

import numpy as np

from marketplace.domain.solver.problem import ONE_POOL, Floats, Ints, Problem

BANDS = 4
"""Bands of floors in each class of pools."""
WORTH_IT = 2
"""So many pools have to become one on the mean."""


def merged(problem: Problem) -> tuple[Problem, Ints] | None:
    """Return the problem with like pools as one, and the number of each pool there.

    None where pools cannot be added up, as cards that are divided into slices, or few are alike.
    """
    if problem.divided.any() or not len(problem.pool) or not problem.bids:
        return None
    kinds = np.repeat(np.arange(len(problem.kind_at) - 1), np.diff(problem.kind_at))
    merged_in = _classes(problem, kinds)
    first = np.unique(merged_in, return_index=True)[1]
    if len(first) * WORTH_IT > problem.pools:
        return None
    capacity = np.zeros((len(first), problem.slots), np.int64)
    np.add.at(capacity, merged_in, problem.capacity)
    keys, one, entry = np.unique(
        kinds * len(first) + merged_in[problem.pool], return_index=True, return_inverse=True
    )
    weight = problem.capacity.sum(axis=1)[problem.pool] + 1.0
    floor = np.bincount(entry, weight * problem.floor) / np.bincount(entry, weight)
    counts = np.bincount(keys // len(first), minlength=len(problem.kind_at) - 1)
    return Problem(
        grid=problem.grid,
        capacity=np.minimum(capacity, 2**30).astype(np.int32),
        host=np.arange(len(first), dtype=np.int32),
        divided=np.zeros(len(first), bool),
        taken=np.zeros((len(first), problem.slots), np.int32),
        kind_at=np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(np.int64),
        pool=(keys % len(first)).astype(np.int32),
        units=problem.units[one],
        floor=floor.astype(np.int64),
        profile=np.full(len(keys), -1, np.int32),
        kind=problem.kind,
        gpus=problem.gpus,
        duration=problem.duration,
        earliest=problem.earliest,
        deadline=problem.deadline,
        limit=problem.limit,
        weight=problem.weight,
        spread=np.full(problem.bids, ONE_POOL, np.int64),
        gap=problem.gap,
        group_at=problem.group_at,
        group=problem.group,
        share=problem.share,
        counted=np.ascontiguousarray(problem.counted[:, first]),  # as kernels are compiled for
        concurrent=problem.concurrent,
        gpu_ms=problem.gpu_ms,
        since=problem.since,
        until=problem.until,
    ), merged_in


def _classes(problem: Problem, kinds: Ints) -> Ints:
    """Return a number for each pool: the same for pools that the same bids may use as much of."""
    takes = np.zeros((problem.pools, len(problem.kind_at) - 1), np.int64)
    takes[problem.pool, kinds] = problem.units
    alike = np.concatenate([takes, problem.counted.T], axis=1)
    known = np.unique(alike, axis=0, return_inverse=True)[1].reshape(-1)
    order = np.lexsort((unit_floors(problem), known))
    sizes = np.bincount(known)
    rank = np.arange(problem.pools) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    band = np.zeros(problem.pools, np.int64)
    band[order] = rank * BANDS // np.repeat(sizes, sizes)
    classes: Ints = np.unique(known * BANDS + band, return_inverse=True)[1].reshape(-1)
    return classes.astype(np.int64)


def unit_floors(problem: Problem) -> Floats:
    """Return what owners want for a unit of each pool, on the mean over the kinds of bid."""
    counts = np.maximum(1, np.bincount(problem.pool, minlength=problem.pools))
    rates = problem.floor / problem.units
    floors: Floats = np.bincount(problem.pool, rates, minlength=problem.pools) / counts
    return floors


def spread_out(problem: Problem, small: Problem, merged_in: Ints, prices: Floats) -> Floats:
    """Return prices of the round's pools, [P, T], from those of the pools they are merged in."""
    dearer = unit_floors(small)[merged_in] - unit_floors(problem)
    level = prices[merged_in]
    found: Floats = np.where(level > 0.0, np.maximum(0.0, level + dearer[:, None]), 0.0)
    return np.where(problem.capacity > 0, found, 0.0)
