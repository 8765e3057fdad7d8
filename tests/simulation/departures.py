"""Nodes that leave: announced, suddenly, or suddenly and only for a short time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.simulation.traces import DAY

ANNOUNCED, SUDDEN, TEMPORARY = range(3)
KINDS = ("left, announced", "left, sudden", "left, temporary")


def plan(
    random: np.random.Generator,
    per_node_day: float,
    shares: tuple[float, float],
    nodes: int,
    horizon: float,
) -> Iterator[tuple[float, int, int]]:
    """Yield when which node leaves, and how. shares: of the announced and the temporary."""
    announced, temporary = shares
    for _ in range(random.poisson(per_node_day * nodes * horizon / DAY)):
        at, node = float(random.uniform(0, horizon)), int(random.integers(nodes))
        drawn = float(random.random())
        if drawn < announced:
            yield at, node, ANNOUNCED
        else:
            yield at, node, TEMPORARY if drawn < announced + temporary else SUDDEN
