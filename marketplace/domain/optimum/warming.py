"""Compile the kernels of rounds before they are needed, where they are compiled at all.

Compiling takes a minute or more after an upgrade; an engine that did it in its first round would
keep every bid of its market waiting meanwhile.
"""

from __future__ import annotations

from marketplace.domain.optimum.compiling import COMPILES
from marketplace.domain.optimum.posing import Ask, Entry, Pool, Quota, pose
from marketplace.domain.optimum.problem import ANYWHERE, ONE_HOST, ONE_POOL, Problem
from marketplace.domain.optimum.solution import Effort
from marketplace.domain.optimum.solving import solve

HOUR = 3_600_000


def warm() -> None:
    """Clear a round that is made up: it is scarce, so that no stage is passed over."""
    if COMPILES:
        solve(scarce(), effort=Effort(dual=1, search=1), seed=0)


def scarce() -> Problem:
    """Return two hosts for one hour, and too many bids of every spread, some under a quota."""
    entries = (Entry(0, 1), Entry(1, 2))
    asks = [
        Ask(1 + number % 2, HOUR, 0, HOUR, 1_000 + number, entries, spread=spread, groups=groups)
        for number in range(6)
        for spread, groups in ((ONE_POOL, (0,)), (ONE_HOST, ()), (ANYWHERE, ()))
    ]
    pools = [Pool(0, (2,)), Pool(1, (2,))]
    return pose([0, HOUR], pools, asks, [Quota(concurrent=(1,))])
