"""Grant bids one after the other, each where it is cheapest in what is left."""

from __future__ import annotations

from collections.abc import Callable

from marketplace.domain.kernels.jit import compiled
from marketplace.domain.solver.arrays import Layout
from marketplace.domain.solver.insertion import NOTHING, find_gang, find_single
from marketplace.domain.solver.problem import ONE_POOL, Floats, Ints
from marketplace.domain.solver.quota_costs import bar
from marketplace.domain.solver.scratch import Bench
from marketplace.domain.solver.state import State, enter


@compiled
def place(q: Layout, st: State, paid: Floats, bench: Bench, i: int, alpha: float) -> bool:
    """Grant the bid the cheapest place there is; alpha: how much scarcity prices count."""
    if not bar(q, st, i, bench):
        return False
    if q.spread[i] == ONE_POOL:
        start = find_single(q, st, paid, bench, i, alpha)
    else:
        count = NOTHING
        for j in range(q.list_at[q.listed[i]], q.list_at[q.listed[i] + 1]):
            if q.floor[j] <= q.limit[i]:
                bench.among[count] = j
                count += 1
        start = find_gang(q, st, paid, bench, i, count, alpha)[1]
    if start < 0:
        return False
    enter(q, st, i, start)
    return True


@compiled
def place_all(
    q: Layout, st: State, paid: Floats, bench: Bench, order: Ints, alpha: float, total: float
) -> float:
    """Grant the bids one after the other, those that still wait; add what it is worth to `total`.

    As numbers are added in the same order, it does not matter in how many calls bids are placed.
    """
    for n in range(order.size):
        i = order[n]
        if st.seat[i] >= 0 and place(q, st, paid, bench, i, alpha):
            for m in range(q.piece_at[i], q.piece_at[i] + st.parts[i]):
                total += (q.worth[i] - q.floor[st.entry[m]]) * st.gpus[m] * q.hours[i]
    return total


def place_some(
    q: Layout, st: State, paid: Floats, bench: Bench, order: Ints, alpha: float,
    between: int, enough: Callable[[], bool] | None, until: int,
) -> tuple[float, int]:  # fmt: skip
    """Place bids one after the other; return what that is worth, and how many if not all.

    enough: asked after `between` bids each; once true, no more are placed. until: only so many are,
    where not 0.
    """
    most, done, worth = until or len(order), 0, 0.0
    while done < most:
        at, done = done, most if enough is None else min(most, done + between)
        worth = float(place_all(q, st, paid, bench, order[at:done], alpha, worth))
        if done < most and enough is not None and enough():
            break
    return worth, done if done < len(order) else 0
