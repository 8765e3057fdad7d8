"""Small made-up rounds with everything in them: gangs, MIG, quotas, odd hours, uneven slots."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np

from marketplace.domain.quotas.card_units import UNITS, part_of
from marketplace.domain.solver import (
    ANYWHERE,
    MASK_WHOLE,
    ONE_HOST,
    ONE_POOL,
    Ask,
    Entry,
    Pool,
    Problem,
    Quota,
    pose,
)

HOUR = 3_600_000
CENT = 10_000_000
"""Nano-units."""
MONEY = 5
"""The quota of picky rounds that counts limits, in cents."""

PROFILES = {
    "1g.10gb": tuple(1 << at for at in range(7)),
    "1g.20gb": (0x03, 0x0C, 0x30, 0xC0),
    "2g.20gb": (0x03, 0x0C, 0x30),
    "3g.40gb": (0x0F, 0xF0),
    "4g.40gb": (0x0F,),
    "7g.80gb": (MASK_WHOLE,),
}
"""Placements of MIG profiles on cards of 80 GB (NVIDIA MIG user guide)."""


def small_round(
    bids: int,
    seed: int,
    *,
    hosts: int = 4,
    slots: int = 8,
    picky: bool = False,
    parts: bool = False,
) -> Problem:
    """Return a round with so many bids for a few hosts; the same for the same seed.

    picky: with quotas of one class of GPUs, of memory, of money, and of a part of the time.
    parts: with quotas that count a GPU of a pool as the part of its card that it is.
    """
    chance = Random(seed)
    grid = [0]
    for _ in range(slots):
        grid.append(grid[-1] + chance.choice([HOUR, HOUR, HOUR, HOUR // 2, 2 * HOUR]))
    pools = [pool for host in range(hosts) for pool in _pools(host, slots, chance)]
    floors = [chance.randint(20, 90) * CENT for _ in pools]
    quotas = [
        Quota(
            concurrent=tuple([chance.randint(2, 8)] * slots) if chance.random() < 0.6 else None,
            gpu_ms=chance.randint(5, 40) * HOUR if chance.random() < 0.5 else None,
        )
        for _ in range(3)
    ]
    if picky:
        quotas += _picky_quotas(pools, grid, chance)
    if parts:
        quotas += _quotas_of_parts(pools, grid, chance)
    money = MONEY if picky or not parts else None
    asks = [_ask(pools, floors, grid, len(quotas), chance, money) for _ in range(bids)]
    return pose(grid, pools, asks, quotas)


def _picky_quotas(pools: list[Pool], grid: list[int], chance: Random) -> list[Quota]:
    slots = len(grid) - 1
    in_class = tuple(chance.choice([0, 0, 1]) for _ in pools)
    memory_gb = tuple(10 if pool.divided else chance.choice([16, 24, 80]) for pool in pools)
    noon = grid[slots // 2]
    return [
        Quota(concurrent=(chance.randint(1, 6),) * slots, counted=in_class),
        Quota(concurrent=(chance.randint(80, 400),) * slots, counted=memory_gb),
        Quota(gpu_ms=chance.randint(5, 40) * 100 * HOUR, until=noon),
        Quota(gpu_ms=chance.randint(2, 20) * HOUR, counted=in_class, since=noon),
    ]


def _quotas_of_parts(pools: list[Pool], grid: list[int], chance: Random) -> list[Quota]:
    slots, sizes = len(grid) - 1, [part_of(f"H100-{name}") for name in PROFILES]
    counted = tuple(chance.choice(sizes) if chance.random() < 0.6 else UNITS for _ in pools)
    in_class = tuple(size if chance.random() < 0.6 else 0 for size in counted)
    return [
        Quota(concurrent=(chance.randint(1, 4) * UNITS,) * slots, counted=in_class),
        Quota(concurrent=(chance.randint(2, 5) * UNITS,) * slots, counted=counted),
        Quota(gpu_ms=chance.randint(3, 20) * UNITS * HOUR, counted=counted),
    ]


def _pools(host: int, slots: int, chance: Random) -> list[Pool]:
    if chance.random() < 0.25:
        taken = [chance.choice([0, 0, 0, 0x0F, 0x01])] * slots
        return [Pool(host, (1,) * slots, divided=True, taken=tuple(taken))]
    begin = chance.randint(0, slots // 2)
    end = chance.randint(begin + slots // 3, slots)
    gpus = chance.choice([1, 2, 4, 8])
    whole = tuple(gpus if begin <= slot < end else 0 for slot in range(slots))
    found = [Pool(host, whole)]
    if chance.random() < 0.4:
        found.append(Pool(host, tuple(chance.randint(0, 2) for _ in range(slots))))
    return found


def _ask(
    pools: list[Pool],
    floors: list[int],
    grid: list[int],
    groups: int,
    chance: Random,
    money: int | None,
) -> Ask:
    entries = []
    profile = PROFILES[chance.choice(list(PROFILES))]
    small = chance.random() < 0.3
    for pool, (held, floor) in enumerate(zip(pools, floors, strict=True)):
        if chance.random() < 0.3:
            continue
        if held.divided:
            masks = profile if small else PROFILES["7g.80gb"]
            entries.append(Entry(pool, floor * masks[0].bit_count() // 8, masks=masks))
        elif not small:
            entries.append(Entry(pool, floor, units=1 if chance.random() < 0.9 else 2))
    duration = chance.randint(1, 12) * HOUR // 2
    earliest = chance.randrange(0, grid[-1] // 2, HOUR // 4)
    slack = 0 if chance.random() < 0.3 else chance.randrange(0, 4 * HOUR, HOUR // 4)
    gpus = chance.choice([1, 1, 1, 2, 2, 3, 4, 6])
    limit = chance.randint(30, 200)
    counts_for = tuple(group for group in range(groups) if chance.random() < 0.3)
    return Ask(
        gpus=gpus,
        duration=duration,
        earliest=earliest,
        deadline=earliest + duration + slack,
        limit=limit * CENT,
        entries=tuple(entries),
        weight=chance.choice([0, 0, 0, 20 * CENT]),
        spread=chance.choice([ONE_POOL, ONE_POOL, ONE_HOST, ANYWHERE]),
        groups=counts_for,
        shares=tuple(limit if group == money else 1 for group in counts_for),
    )


def without_quotas(problem: Problem) -> Problem:
    """Return the round as if nobody had a quota."""
    none = np.zeros(0, np.int64)
    return replace(
        problem,
        group_at=np.zeros(problem.bids + 1, np.int64),
        group=none,
        share=none,
        gpu_ms=none,
        since=none,
        until=none,
        counted=np.zeros((0, problem.pools), np.int64),
        concurrent=np.zeros((0, problem.slots), np.int64),
    )
