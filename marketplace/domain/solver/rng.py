"""Random numbers of our own: the same on every machine, compiled or not (xorshift32, Marsaglia)."""

from __future__ import annotations

import numpy as np

from marketplace.domain.kernels.jit import compiled, woven_in
from marketplace.domain.solver.problem import Ints


def seeded(seed: int) -> Ints:
    """Return the state of a generator; neighbouring seeds give unlike numbers."""
    mixed = (seed + 0x9E3779B9) * 0x85EBCA6B & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return np.array([(mixed ^ mixed >> 16) or 1], np.int64)


@woven_in
def draw(dice: Ints) -> int:
    """Return the next whole number in [1, 2**32)."""
    x: int = dice[0]
    x ^= (x << 13) & 0xFFFFFFFF
    x ^= x >> 17
    x ^= (x << 5) & 0xFFFFFFFF
    dice[0] = x
    return x


@woven_in
def below(dice: Ints, end: int) -> int:
    """Return a whole number in [0, end)."""
    return draw(dice) % end


@woven_in
def share(dice: Ints) -> float:
    """Return a number in (0, 1)."""
    return draw(dice) * (1.0 / 4294967296.0)


@woven_in
def bell(dice: Ints) -> float:
    """Return a number in (-1.5, 1.5), most often near 0; its deviation is one half."""
    return share(dice) + share(dice) + share(dice) - 1.5


@compiled
def mixed(seed: int, number: int) -> int:
    """Return a number in [1, 2**32) that depends on both, for a generator of its own."""
    x = (seed ^ (number * 0x9E3779B1)) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF
    x = ((x ^ (x >> 12)) * 0x297A2D39) & 0xFFFFFFFF
    x ^= x >> 15
    return max(x, 1)
