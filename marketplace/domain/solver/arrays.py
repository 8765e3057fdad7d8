"""A problem as kernels read it: bids sorted into lists of pools, slots in which each may start.

A list holds the pools that bids of one kind and size may use, cheapest floor first (hosts one after
the other where a bid must stay on one), so that a search ends as soon as floors are too high.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketplace.domain.solver.problem import (
    ANYWHERE,
    MILLIS_PER_HOUR,
    ONE_HOST,
    ONE_POOL,
    UNLIMITED,
    Floats,
    Ints,
    Narrow,
    Problem,
)

DENSE_MAX = 30_000_000
"""Cells of the table (list, pool) → entry; beyond, the entry is searched."""


class Layout(NamedTuple):
    """N bids, P pools, T slots, L lists, E entries of lists, R rows of ends, G groups."""

    slots: int
    pools: int
    ends: Narrow
    """[R, T]: the slot after the last one that a bid of this row holds if it starts here."""
    row: Ints
    first: Ints
    last: Ints
    """Slots in which the bid may start, both included; none if last < first."""
    gpus: Ints
    hours: Floats
    """Length of the lease."""
    limit: Floats
    worth: Floats
    """limit + weight, nano-units per GPU-hour."""
    spread: Ints
    listed: Ints
    """The list of each bid."""
    list_at: Ints
    pool: Ints
    units: Ints
    floor: Floats
    profile: Ints
    host: Ints
    """Of the entry's pool."""
    dense: Narrow
    """[L, P] the entry of a pool in a list or -1; empty if it would be too large."""
    by_pool: Ints
    """Entries of each list by pool number, for searching."""
    lists_at: Ints
    lists: Ints
    """The lists in which each pool is."""
    beside_at: Ints
    beside: Ints
    """The pools of each pool's host."""
    opens: Ints
    closes: Ints
    """Slots [opens, closes) outside of which a pool has nothing."""
    solid: NDArray[np.bool_]
    """Whole GPUs, as many in every slot between."""
    most: Ints
    """Units that a pool has at most."""
    capacity: Narrow
    divided: NDArray[np.bool_]
    profile_at: Ints
    mask: Narrow
    group_at: Ints
    group: Ints
    share: Ints
    counted: Ints
    picky: NDArray[np.bool_]
    """Bids for whose quotas it matters which pool they use, or when."""
    least_counted: Ints
    """[G] how much a GPU counts where it counts least."""
    since: Ints
    until: Ints
    grid: Ints
    earliest: Ints
    member_at: Ints
    member: Ints
    """The bids that count for each group."""
    slot_hours: Floats
    piece_at: Ints
    """[N+1] where the pieces of a bid are kept: one, or as many as its GPUs may spread over."""

    @property
    def times(self) -> tuple[Narrow, Ints, Ints, Ints]:
        """Return when bids may start, and end."""
        return self.ends, self.row, self.first, self.last


def lay_out(problem: Problem, like: Layout | None = None) -> Layout:
    """Return the arrays that kernels work on. like: of a problem with the same slots and times."""
    ends, row, first, last = _times(problem) if like is None else like.times
    spread = np.where(problem.gpus == 1, ONE_POOL, problem.spread)
    listed, list_at, entries = _lists(problem, spread)
    pool = problem.pool[entries].astype(np.int64)
    members = np.repeat(np.arange(len(list_at) - 1), np.diff(list_at))
    host_of, beside = _hosts(problem)
    grouped = np.repeat(np.arange(problem.bids), np.diff(problem.group_at))
    dense = _dense(problem, list_at, members, pool)
    opens, closes, solid = _spans(problem)
    return Layout(
        slots=problem.slots,
        pools=problem.pools,
        ends=ends,
        row=row,
        first=first,
        last=last,
        gpus=problem.gpus.astype(np.int64),
        hours=problem.duration / MILLIS_PER_HOUR,
        limit=problem.limit.astype(np.float64),
        worth=(problem.limit + problem.weight).astype(np.float64),
        spread=spread.astype(np.int64),
        listed=listed,
        list_at=list_at,
        pool=pool,
        units=problem.units[entries].astype(np.int64),
        floor=problem.floor[entries].astype(np.float64),
        profile=problem.profile[entries].astype(np.int64),
        host=host_of[pool].astype(np.int64) if len(pool) else np.zeros(0, np.int64),
        dense=dense,
        by_pool=(np.zeros(0) if dense.size else np.lexsort((pool, members))).astype(np.int64),
        lists_at=_starts(np.bincount(pool, minlength=problem.pools)),
        lists=members[_sorted(pool)].astype(np.int64),
        beside_at=_starts(np.array([len(pools) for pools in beside], np.int64)),
        beside=(np.concatenate(beside) if beside else np.zeros(0)).astype(np.int64),
        opens=opens,
        closes=closes,
        solid=solid,
        most=problem.capacity.max(axis=1, initial=0).astype(np.int64),
        capacity=problem.capacity.astype(np.int32),
        divided=problem.divided,
        profile_at=problem.profile_at,
        mask=problem.mask.astype(np.int32),
        group_at=problem.group_at,
        group=problem.group,
        share=problem.share,
        counted=problem.counted,
        picky=_picky(problem, grouped),
        least_counted=problem.counted.min(axis=1, initial=UNLIMITED if problem.pools else 0),
        since=problem.since,
        until=problem.until,
        grid=problem.grid,
        earliest=problem.earliest,
        member_at=_starts(np.bincount(problem.group, minlength=problem.groups)),
        member=grouped[_sorted(problem.group)].astype(np.int64),
        slot_hours=np.diff(problem.grid) / MILLIS_PER_HOUR,
        piece_at=_starts(_pieces(problem, spread, np.diff(list_at), listed)),
    )


def _pieces(problem: Problem, spread: Ints, lengths: Ints, listed: Ints) -> Ints:
    """Return in how many pools each bid may lie at most."""
    most = lengths[listed] if problem.bids else np.zeros(0, np.int64)
    found: Ints = np.where(spread == ONE_POOL, 1, np.maximum(1, np.minimum(problem.gpus, most)))
    return found


def _hosts(problem: Problem) -> tuple[Ints, list[Ints]]:
    """Return the host of each pool, counted from 0, and the pools of that host."""
    by_host = np.argsort(problem.host, kind="stable")
    hosts, host_of = np.unique(problem.host, return_inverse=True)
    host_at = _starts(np.bincount(host_of, minlength=len(hosts)))
    return host_of, [by_host[host_at[host] : host_at[host + 1]] for host in host_of]


def _spans(problem: Problem) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Return when each pool opens and closes, and whether it is solid between."""
    there = problem.capacity > 0
    most = problem.capacity.max(axis=1, keepdims=True)
    opens = np.argmax(there, axis=1).astype(np.int64)
    closes = np.where(most[:, 0] > 0, problem.slots - np.argmax(there[:, ::-1], axis=1), 0)
    slot = np.arange(problem.slots)
    spans = (slot >= opens[:, None]) & (slot < closes[:, None])
    solid = ~problem.divided & ((problem.capacity == most) | ~spans).all(axis=1)
    return opens, closes, solid


def _picky(problem: Problem, grouped: Ints) -> NDArray[np.bool_]:
    uneven = (problem.counted != problem.counted[:, :1]).any(axis=1)
    partly = (problem.since > problem.grid[0]) | (problem.until < problem.grid[-1])
    picky = np.zeros(problem.bids, bool)
    picky[grouped[(uneven | partly)[problem.group]]] = True
    return picky


def _sorted(numbers: Ints) -> Ints:
    """Return the stable order of small whole numbers; those of 16 bits are sorted by radix."""
    narrow = numbers.size and int(numbers.max()) < 2**16
    return np.argsort(numbers.astype(np.uint16) if narrow else numbers, kind="stable")


def _starts(lengths: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def _times(problem: Problem) -> tuple[Narrow, Ints, Ints, Ints]:
    """Return ends[R, T] and per bid its row, first and last slot to start in.

    Rows are shared: a bid whose `earliest` lies within a slot ends, in that slot only, sooner than
    one that starts at the next, and then has a row of its own.
    """
    grid, slots, held = problem.grid, problem.slots, problem.duration + problem.gap
    durations, which = np.unique(held, return_inverse=True)
    plain = np.searchsorted(grid, grid[None, :-1] + durations[:, None]).astype(np.int32)
    first = np.maximum(np.searchsorted(grid, problem.earliest, side="right") - 1, 0)
    inside = np.minimum(first, slots - 1)
    begins = np.maximum(problem.earliest, grid[inside])
    end = np.searchsorted(grid, begins + held)
    own = (first < slots) & (end != plain[which, inside])
    keys = np.stack([which, np.where(own, inside, -1), np.where(own, end, -1)], axis=1)
    rows, row = np.unique(keys.reshape(-1, 3), axis=0, return_inverse=True)
    ends = plain[rows[:, 0]] if len(rows) else np.zeros((0, slots), np.int32)
    changed = np.flatnonzero(rows[:, 1] >= 0)
    ends[changed, rows[changed, 1]] = rows[changed, 2]
    latest = np.searchsorted(grid, problem.deadline - problem.duration, side="right") - 1
    ended = np.array([np.searchsorted(line, slots, side="right") for line in ends], np.int64) - 1
    row = row.reshape(-1).astype(np.int64)
    last = np.minimum(latest, ended[row] if len(row) else latest)
    late = begins + problem.duration > problem.deadline
    return ends, row, first.astype(np.int64), np.where(late, first - 1, last).astype(np.int64)


def _lists(problem: Problem, spread: Ints) -> tuple[Ints, Ints, Ints]:
    """Return per bid its list, where lists begin, and the entries of each in the order to try."""
    most = problem.capacity.max(axis=1) if problem.pools else np.zeros(0, np.int32)
    rank = np.unique(problem.host, return_inverse=True)[1]
    keys = np.stack([problem.kind, problem.gpus, spread], axis=1).reshape(-1, 3)
    distinct, listed = np.unique(keys, axis=0, return_inverse=True)
    chosen = []
    for kind, gpus, apart in distinct:
        entry = np.arange(problem.kind_at[kind], problem.kind_at[kind + 1])
        pool = problem.pool[entry]
        asked = gpus if apart == ONE_POOL else 1
        entry = entry[most[pool] >= asked * problem.units[entry]]
        pool = problem.pool[entry]
        host = rank[pool] if apart == ONE_HOST else np.zeros(len(pool), np.int64)
        if apart == ONE_HOST:
            held = np.bincount(host, most[pool] // problem.units[entry])
            enough = held[host] >= gpus
            entry, pool, host = entry[enough], pool[enough], host[enough]
        chosen.append(entry[np.lexsort((pool, problem.floor[entry], host))])
    entries = np.concatenate([*chosen, np.zeros(0, np.int64)]).astype(np.int64)
    at = _starts(np.array([len(entry) for entry in chosen], np.int64))
    return listed.reshape(-1).astype(np.int64), at, entries


def _dense(problem: Problem, list_at: Ints, members: Ints, pool: Ints) -> Narrow:
    lists = len(list_at) - 1
    if lists * problem.pools > DENSE_MAX:
        return np.zeros((0, 0), np.int32)
    dense = np.full((lists, problem.pools), -1, np.int32)
    dense[members, pool] = np.arange(len(pool), dtype=np.int32)
    return dense


__all__ = ["ANYWHERE", "ONE_HOST", "ONE_POOL", "Layout", "lay_out"]
