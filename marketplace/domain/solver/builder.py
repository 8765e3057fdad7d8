"""Write a round as a `Problem`, one pool and one bid at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marketplace.domain.solver.problem import MASK_WHOLE, ONE_POOL, UNLIMITED, Ints, Problem


@dataclass(frozen=True, slots=True)
class Pool:
    """GPUs of one host that are alike and free at the same times; see `Problem`.

    capacity: free units in each slot; of a divided card the free memory slices are counted from
    `taken`, and a capacity of 0 says that the card is not there.
    """

    host: int
    capacity: tuple[int, ...]
    divided: bool = False
    taken: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A pool that a bid may use, what each GPU takes there, and the floor per GPU-hour.

    masks: of a MIG profile in a divided card, its legal placements in the order they are tried.
    """

    pool: int
    floor: int
    units: int = 1
    masks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """A bid; see `Problem`.

    groups: the quotas it counts for. shares: how much each of its GPUs counts there; 1 if none.
    """

    gpus: int
    duration: int
    earliest: int
    deadline: int
    limit: int
    entries: tuple[Entry, ...]
    weight: int = 0
    spread: int = ONE_POOL
    groups: tuple[int, ...] = ()
    shares: tuple[int, ...] = ()
    gap: int = 0

    def __post_init__(self) -> None:
        if self.shares and len(self.shares) != len(self.groups):
            raise ValueError("one share for each group")


@dataclass(frozen=True, slots=True)
class Quota:
    """What a group may still have; None is no limit.

    concurrent: GPUs in each slot. gpu_ms: GPU-milliseconds, in all or between `since` and `until`.
    counted: how much a GPU counts in each pool; 1 if None. What a GPU counts for, a bid may raise
    by its share: so a limit may be GPUs of one class, memory, or money (limits as shares).
    """

    concurrent: tuple[int, ...] | None = None
    gpu_ms: int | None = None
    counted: tuple[int, ...] | None = None
    since: int = -UNLIMITED
    until: int = UNLIMITED


class WrongAsk(ValueError):
    """A bid cannot be posed, whatever the others are. number: of its ask."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ask {number} cannot be posed")
        self.number = number


def pose(
    grid: Sequence[int],
    pools: Sequence[Pool],
    asks: Sequence[Ask],
    quotas: Sequence[Quota] = (),
) -> Problem:
    """Return the problem of clearing `asks` into `pools`. Bids of like entries share a kind.

    Raises: WrongAsk, or ValueError when it is not due to one ask.
    """
    try:
        return _posed(grid, pools, asks, quotas)
    except (ValueError, OverflowError, IndexError) as wrong:
        number = _wrong(grid, pools, asks, quotas)
        if number is None:
            raise
        raise WrongAsk(number) from wrong


def _wrong(
    grid: Sequence[int], pools: Sequence[Pool], asks: Sequence[Ask], quotas: Sequence[Quota]
) -> int | None:
    """Return the first ask that cannot be posed even alone, or None."""
    since, until = 0, len(asks)
    while until - since > 1:
        middle = (since + until) // 2
        try:
            _posed(grid, pools, asks[since:middle], quotas)
        except (ValueError, OverflowError, IndexError):
            until = middle
        else:
            since = middle
    try:
        _posed(grid, pools, asks[since:until], quotas)
    except (ValueError, OverflowError, IndexError):
        return since if until > since and _sound(grid, pools, quotas) else None
    return None


def _sound(grid: Sequence[int], pools: Sequence[Pool], quotas: Sequence[Quota]) -> bool:
    """Say if a problem without bids can be posed."""
    try:
        _posed(grid, pools, (), quotas)
    except (ValueError, OverflowError, IndexError):
        return False
    return True


def _posed(
    grid: Sequence[int], pools: Sequence[Pool], asks: Sequence[Ask], quotas: Sequence[Quota]
) -> Problem:
    slots = len(grid) - 1
    divided = np.array([pool.divided for pool in pools], bool)
    capacity = np.array([pool.capacity for pool in pools], np.int32).reshape(len(pools), slots)
    taken = np.array(
        [pool.taken or (0,) * slots for pool in pools],
        np.int32,
    ).reshape(len(pools), slots)
    taken = np.where(divided[:, None] & (capacity == 0), MASK_WHOLE, taken).astype(np.int32)
    in_use = np.array([bits.bit_count() for bits in range(MASK_WHOLE + 1)], np.int32)
    capacity = np.where(divided[:, None], 8 - in_use[taken], capacity).astype(np.int32)
    # Asks alike have the same tuple mostly: comparing thousands of entries for each takes long.
    distinct = {id(ask.entries): ask.entries for ask in asks}
    kinds: dict[tuple[Entry, ...], int] = {}
    numbers = {key: kinds.setdefault(one, len(kinds)) for key, one in distinct.items()}
    kind = [numbers[id(ask.entries)] for ask in asks]
    entries = [entry for known in kinds for entry in known]
    profiles: dict[tuple[int, ...], int] = {}
    profile = [
        profiles.setdefault(entry.masks, len(profiles)) if divided[entry.pool] else -1
        for entry in entries
    ]
    units = [entry.masks[0].bit_count() if entry.masks else entry.units for entry in entries]
    return Problem(
        grid=np.array(grid, np.int64),
        capacity=capacity,
        host=np.array([pool.host for pool in pools], np.int32),
        divided=divided,
        taken=taken,
        kind_at=_starts([len(known) for known in kinds]),
        pool=np.array([entry.pool for entry in entries], np.int32),
        units=np.array(units, np.int32),
        floor=np.array([entry.floor for entry in entries], np.int64),
        profile=np.array(profile, np.int32),
        profile_at=_starts([len(masks) for masks in profiles]),
        mask=np.array([mask for masks in profiles for mask in masks], np.int32),
        kind=np.array(kind, np.int64),
        gpus=np.array([ask.gpus for ask in asks], np.int64),
        duration=np.array([ask.duration for ask in asks], np.int64),
        earliest=np.array([ask.earliest for ask in asks], np.int64),
        deadline=np.array([ask.deadline for ask in asks], np.int64),
        limit=np.array([ask.limit for ask in asks], np.int64),
        weight=np.array([ask.weight for ask in asks], np.int64),
        spread=np.array([ask.spread for ask in asks], np.int64),
        gap=np.array([ask.gap for ask in asks], np.int64),
        **_counts(asks, quotas, len(pools), slots),
    )


def _counts(
    asks: Sequence[Ask], quotas: Sequence[Quota], pools: int, slots: int
) -> dict[str, Ints]:
    """Return the columns of quotas."""
    shares = [share for ask in asks for share in ask.shares or (1,) * len(ask.groups)]
    counted = [quota.counted or (1,) * pools for quota in quotas]
    concurrent = [quota.concurrent or (UNLIMITED,) * slots for quota in quotas]
    gpu_ms = [UNLIMITED if quota.gpu_ms is None else quota.gpu_ms for quota in quotas]
    return {
        "group_at": _starts([len(ask.groups) for ask in asks]),
        "group": np.array([group for ask in asks for group in ask.groups], np.int64),
        "share": np.array(shares, np.int64),
        "counted": np.array(counted, np.int64).reshape(len(quotas), pools),
        "concurrent": np.array(concurrent, np.int64).reshape(len(quotas), slots),
        "gpu_ms": np.array(gpu_ms, np.int64),
        "since": np.array([quota.since for quota in quotas], np.int64),
        "until": np.array([quota.until for quota in quotas], np.int64),
    }


def _starts(lengths: Sequence[int]) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(lengths, np.int64))])
