"""The order in which a move puts bids back: by limit, by hoped-for gain, or between, blurred."""

from __future__ import annotations

from math import sqrt

from marketplace.domain.kernels.jit import woven_in
from marketplace.domain.solver.arrays import Layout
from marketplace.domain.solver.destroy import Desk
from marketplace.domain.solver.problem import Floats, Ints
from marketplace.domain.solver.rng import bell, share


@woven_in
def _sort(desk: Desk, crowd: int) -> None:
    """Order the bids in hand by key, ascending (Shell's sort)."""
    for c in range(crowd):
        desk.order[c] = c
    gap = 1
    while gap < crowd // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for c in range(gap, crowd):
            moved = desk.order[c]
            at = c
            while at >= gap and desk.key[desk.order[at - gap]] > desk.key[moved]:
                desk.order[at] = desk.order[at - gap]
                at -= gap
            desk.order[at] = moved
        gap //= 3


@woven_in
def rank(q: Layout, desk: Desk, least: Floats, dice: Ints, crowd: int, alpha: float) -> None:
    """Give the bids in hand an order: by limit, by hoped-for gain, or between, blurred."""
    mode = share(dice)
    blur = 0.6 if share(dice) < 0.75 else 1.2
    for c in range(crowd):
        i = desk.crowd[c]
        size = q.gpus[i] * q.hours[i]
        z = 1.0 + blur * bell(dice) * 0.66
        if mode < 0.1:
            desk.key[c] = -q.worth[i] * z
        elif mode < 0.9:
            gain = q.worth[i] - alpha * min(least[i], 4.0 * q.worth[i])
            desk.key[c] = -gain * size * z if gain > 0.0 else -gain
        else:
            desk.key[c] = -q.worth[i] * z * sqrt(size)
    _sort(desk, crowd)
