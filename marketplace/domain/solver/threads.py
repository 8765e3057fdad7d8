"""Two parts of the work of a large round at once: where kernels are compiled, in two threads.

The parts share nothing that either changes, so it is the same one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from marketplace.domain.kernels.jit import compiles
from marketplace.domain.solver.arrays import Layout

Part = TypeVar("Part")

BIDS_MIN = 512
"""Smaller rounds are done as a whole."""


def is_large(q: Layout) -> bool:
    """Tell if a round is worth dividing."""
    return len(q.row) >= BIDS_MIN


def divisible(q: Layout) -> bool:
    """Tell if it can be searched in halves, too: not where there are quotas, which bids share."""
    return is_large(q) and not q.group.size


def both(first: Callable[[], Part], second: Callable[[], Part]) -> list[Part]:
    """Return what two parts of the work come to."""
    if not compiles():
        return [first(), second()]
    with ThreadPoolExecutor(1) as other:
        later = other.submit(second)
        return [first(), later.result()]
