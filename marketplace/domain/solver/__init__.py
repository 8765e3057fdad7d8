"""The optimum of a round of patient bids: `pose` a problem, `solve` it, read the solution.

Pure and deterministic: the same problem, effort and seed give the same solution, on any machine,
with numba or without. How it works: ADR 0013.
"""

from __future__ import annotations

from marketplace.domain.solver.branch_and_bound import OtherSolver
from marketplace.domain.solver.builder import Ask, Entry, Pool, Quota, pose
from marketplace.domain.solver.problem import (
    ANYWHERE,
    MASK_WHOLE,
    ONE_HOST,
    ONE_POOL,
    UNLIMITED,
    Problem,
)
from marketplace.domain.solver.solution import (
    Effort,
    Piece,
    Placed,
    Solution,
    floor_of,
    welfare_of,
)
from marketplace.domain.solver.solve import solve

__all__ = [
    "ANYWHERE",
    "MASK_WHOLE",
    "ONE_HOST",
    "ONE_POOL",
    "UNLIMITED",
    "Ask",
    "Effort",
    "Entry",
    "OtherSolver",
    "Piece",
    "Placed",
    "Pool",
    "Problem",
    "Quota",
    "Solution",
    "floor_of",
    "pose",
    "solve",
    "welfare_of",
]
