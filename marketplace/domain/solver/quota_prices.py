"""Prices of quotas: they rise with what bids want of them, and earn what is left of them."""

from __future__ import annotations

import numpy as np

from marketplace.domain.kernels.jit import compiled
from marketplace.domain.solver.arrays import Layout
from marketplace.domain.solver.problem import MILLIS_PER_HOUR, UNLIMITED, Floats
from marketplace.domain.solver.scratch import Bench, Fees
from marketplace.domain.solver.state import State, counts_ms

FEE_SCALE = 0.5
"""Prices of quotas are measured by this share of what their bids offer."""


def fee_scale(q: Layout) -> Floats:
    """Return per quota what its bids offer for what is counted once, about."""
    groups = len(q.since)
    bids = np.repeat(np.arange(len(q.row)), np.diff(q.group_at))
    there = np.maximum(1, (q.counted > 0).sum(axis=1))
    counted = np.maximum(1.0, q.counted.sum(axis=1) / there)
    offered = q.worth[bids] / (np.maximum(1, q.share) * counted[q.group])
    members = np.maximum(1, np.bincount(q.group, minlength=groups))
    scale: Floats = FEE_SCALE * np.bincount(q.group, offered, minlength=groups) / members
    return scale


@compiled
def raise_fees(
    q: Layout, st: State, bench: Bench, tolls: Floats, scale: Floats, i: int, p: int, s: int,
    gpus: int, step: float,
) -> None:  # fmt: skip
    """Make dearer what a bid counts for in its quotas, by its share of what they leave."""
    e = q.ends[q.row[i], s]
    for g in range(q.group_at[i], q.group_at[i + 1]):
        group = q.group[g]
        units = q.share[g] * q.counted[group, p] * gpus
        rise = units * step * scale[group]
        if units == 0:
            continue
        if 0 < st.gpu_ms[group] < UNLIMITED:
            bench.levy[group] += rise * counts_ms(q, st, i, s, group) / st.gpu_ms[group]
        limited = 0
        for t in range(s, e):
            if 0 < st.concurrent[group, t] < UNLIMITED:
                tolls[group, t] += rise / st.concurrent[group, t]
                limited = 1
        if limited:
            for t in range(s, q.slots):
                cost = tolls[group, t] * q.slot_hours[t]
                bench.tolls[group, t + 1] = bench.tolls[group, t] + cost


@compiled
def earned_by(q: Layout, st: State, fees: Fees) -> float:
    """Return what all that the quotas leave earns."""
    total = 0.0
    for g in range(fees.levy.size):
        if fees.levy[g] > 0.0:
            total += fees.levy[g] * st.gpu_ms[g] / MILLIS_PER_HOUR
        for t in range(q.slots):
            if fees.tolls[g, t] > 0.0:
                total += fees.tolls[g, t] * q.slot_hours[t] * st.concurrent[g, t]
    return total
