"""Made-up rounds of the kinds that clearing is measured on: thick and thin markets, seeded.

Seven GPU models in four regions, windows of 1, 2, 4 or 8 GPUs in a day of hourly slots. Bids take
1, 2, 4 or 8 GPUs on one host for a log-normal time; a third must have one model, the others any
with as much memory; 40 % want one region; 35 % have a fixed window, the others about as much slack
as they are long. Limits scatter log-normally around what the model costs, floors lie below.
`loose` has two bids per window and demand of 1.2 times supply; `tight` has ten bids per window,
demand of twice the supply, and windows of sixteen hours and more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from marketplace.domain.solver import ONE_POOL, Problem

HOUR = 3_600_000
NANOS = 1_000_000_000
SLOTS = 24
REGIONS = 4
MEMORY_GB = np.array([16, 24, 32, 40, 80, 80, 24])
"""T4, A10, V100, A100-40, A100-80, H100, L4."""
COSTS = np.array([0.30, 0.75, 0.85, 1.30, 1.80, 3.00, 0.60])
MIX = np.array([0.15, 0.15, 0.15, 0.15, 0.15, 0.15, 0.10])

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of market. load: GPU-hours asked for per GPU-hour on offer."""

    name: str
    bids_per_pool: int
    load: float
    window_slots_min: int
    median_hours: float


LOOSE = Family("loose", 2, 1.2, 4, 3.0)
TIGHT = Family("tight", 10, 2.0, 16, 2.0)


def draw(family: Family, bids: int, seed: int) -> Problem:
    """Return a round of the family with so many bids."""
    chance = np.random.default_rng(seed)
    pools = max(5, bids // family.bids_per_pool)
    model = chance.choice(7, pools, p=MIX)
    region = chance.integers(0, REGIONS, pools)
    gpus = chance.choice([1, 2, 4, 8], pools, p=[0.15, 0.15, 0.25, 0.45])
    length = chance.integers(family.window_slots_min, SLOTS + 1, pools)
    begin = chance.integers(0, SLOTS - length + 1)
    slot = np.arange(SLOTS)
    inside = (slot >= begin[:, None]) & (slot < (begin + length)[:, None])
    floor = np.round(COSTS[model] * chance.uniform(0.35, 0.95, pools), 3)
    asked, duration = _sizes(family, bids, int((gpus * length).sum()), chance)
    slack = np.round(duration * chance.exponential(1.0, bids)).astype(int)
    span = np.minimum(duration + np.where(chance.random(bids) < 0.35, 0, slack), SLOTS)
    earliest = chance.integers(0, SLOTS - span + 1)
    wanted = chance.choice(7, bids, p=MIX)
    strict = chance.random(bids) < 0.33
    near = np.where(chance.random(bids) < 0.6, -1, chance.integers(0, REGIONS, bids))
    limit = np.round(COSTS[wanted] * chance.lognormal(0.05, 0.35, bids), 3)
    kinds, kind = np.unique(np.stack([strict, wanted, near], 1), axis=0, return_inverse=True)
    usable = [
        np.flatnonzero(
            ((model == want) if only else (MEMORY_GB[model] >= MEMORY_GB[want]))
            & ((place < 0) | (region == place))
        )
        for only, want, place in kinds
    ]
    pool = np.concatenate(usable)
    return Problem(
        grid=np.arange(SLOTS + 1, dtype=np.int64) * HOUR,
        capacity=(inside * gpus[:, None]).astype(np.int32),
        host=np.arange(pools, dtype=np.int32),
        divided=np.zeros(pools, bool),
        taken=np.zeros((pools, SLOTS), np.int32),
        kind_at=np.concatenate([[0], np.cumsum([len(one) for one in usable])]).astype(np.int64),
        pool=pool.astype(np.int32),
        units=np.ones(len(pool), np.int32),
        floor=np.round(floor[pool] * NANOS).astype(np.int64),
        profile=np.full(len(pool), -1, np.int32),
        kind=kind.reshape(-1).astype(np.int64),
        gpus=asked.astype(np.int64),
        duration=duration.astype(np.int64) * HOUR,
        earliest=earliest.astype(np.int64) * HOUR,
        deadline=(earliest + span).astype(np.int64) * HOUR,
        limit=np.round(limit * NANOS).astype(np.int64),
        weight=np.zeros(bids, np.int64),
        spread=np.full(bids, ONE_POOL, np.int64),
    )


def _sizes(family: Family, bids: int, supply: int, chance: Generator) -> tuple[Ints, Ints]:
    """Return GPUs and slots of each bid, stretched until demand is `load` times supply."""
    gpus = chance.choice([1, 2, 4, 8], bids, p=[0.55, 0.15, 0.15, 0.15])
    plain = chance.lognormal(np.log(family.median_hours), 0.9, bids)
    slots = np.clip(np.round(plain), 1, SLOTS).astype(np.int64)
    stretch = 1.0
    for _ in range(60):
        load = (gpus * slots).sum() / supply
        if abs(family.load / load - 1) < 0.02:
            break
        stretch *= (family.load / load) ** 0.8
        slots = np.clip(np.round(plain * stretch), 1, SLOTS * 2 // 3).astype(np.int64)
    return gpus, slots
