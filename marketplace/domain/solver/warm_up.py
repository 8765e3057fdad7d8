"""Call the kernels of rounds as rounds of every kind do, so that they are compiled."""

from __future__ import annotations

from marketplace.domain.solver.builder import Ask, Entry, Pool, Quota, pose
from marketplace.domain.solver.problem import ANYWHERE, ONE_HOST, ONE_POOL, Problem
from marketplace.domain.solver.solution import Effort
from marketplace.domain.solver.solve import solve
from marketplace.domain.solver.threads import BIDS_MIN

HOUR = 3_600_000


def warm() -> None:
    """Clear rounds that are made up: they are scarce, so that no stage is passed over."""
    warm_small()
    warm_large()


def warm_small() -> None:
    """Clear a round of every spread, with a quota."""
    solve(scarce(), effort=Effort(dual=1, search=1), seed=0)


def warm_large() -> None:
    """Clear a round that is searched in halves, by moves that only large rounds make."""
    solve(crowded(), effort=Effort(dual=1, search=2), seed=0)


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


def crowded() -> Problem:
    """Return two hosts for one hour, and as many bids as are worth dividing, of one kind."""
    entries = (Entry(0, 1), Entry(1, 2))
    asks = [
        Ask(1 + number % 2, HOUR, 0, HOUR, 1_000 + number, entries, spread=ONE_POOL, groups=())
        for number in range(BIDS_MIN)
    ]
    return pose([0, HOUR], [Pool(0, (2,)), Pool(1, (2,))], asks, [])
