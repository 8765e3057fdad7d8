"""What a search told."""

from __future__ import annotations

from marketplace.domain.solver import Solution


def told(solution: Solution) -> tuple[object, ...]:
    """Return everything a solution says, as values that compare."""
    return (
        repr(solution.placed),
        solution.welfare_nanos,
        solution.bound_nanos,
        solution.prices.tobytes(),
        solution.iterations,
    )
