"""Room for kernels to work in, for one bid at a time, and what quotas cost."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from marketplace.domain.solver.arrays import Layout
from marketplace.domain.solver.problem import Floats, Ints
from marketplace.domain.solver.rng import seeded


class Fees(NamedTuple):
    """What quotas cost: nano-units per counted GPU-hour."""

    tolls: Floats
    """[G, T] for what is held in a slot."""
    levy: Floats
    """[G] for GPU-time."""


class Bench(NamedTuple):
    """Room to work in, for one bid at a time."""

    barred: Ints
    """[T] slots in which a quota is used up."""
    rate: Floats
    entry: Ints
    room: Ints
    """Pools a gang might take, cheapest first: cost per GPU, entry, GPUs it could have there."""
    among: Ints
    """Entries a gang chooses from."""
    low_at: Ints
    low_to: Ints
    """Of each of these, the slot before `low_to` in which its pool has the fewest units free."""
    dice: Ints
    """Random numbers, for what is blurred."""
    tolls: Floats
    """[G, T+1] what one counted GPU costs in a quota of GPUs at once, from the first slot on."""
    levy: Floats
    """[G] nano-units per counted GPU-hour in a quota of GPU-time."""
    tolled: Ints
    """[1] whether any quota has a price."""
    due: Floats
    """[W, T] what a counted GPU costs in each of the bid's quotas, by the slot it starts in."""


def bench_for(q: Layout, seed: int = 0) -> Bench:
    """Return a bench large enough for any bid."""
    widest = int(np.diff(q.piece_at).max(initial=1)) + 2
    longest = int(np.diff(q.list_at).max(initial=1)) + 1
    quotas = int(np.diff(q.group_at).max(initial=0))
    groups = len(q.member_at) - 1
    return Bench(
        barred=np.zeros(q.slots, np.int64),
        rate=np.zeros(widest, np.float64),
        entry=np.zeros(widest, np.int64),
        room=np.zeros(widest, np.int64),
        among=np.zeros(longest, np.int64),
        low_at=np.zeros(longest, np.int64),
        low_to=np.zeros(longest, np.int64),
        dice=seeded(seed),
        tolls=np.zeros((groups, q.slots + 1)),
        levy=np.zeros(groups),
        tolled=np.zeros(1, np.int64),
        due=np.zeros((quotas, q.slots)),
    )


def lay_fees(q: Layout, bench: Bench, fees: Fees) -> None:
    """Let quotas cost so much."""
    np.cumsum(fees.tolls * q.slot_hours, axis=1, out=bench.tolls[:, 1:])
    bench.levy[:] = fees.levy
    bench.tolled[0] = bool(fees.tolls.any() or fees.levy.any())
