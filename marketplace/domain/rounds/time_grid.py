"""The instants at which leases of one round may start.

Fine where it is soon and coarse where it is far: what starts in five minutes cares about minutes,
what starts in three weeks does not. The edges of windows and of what bids ask for are on the grid
too, as long as there is room, so that a fixed window is met exactly.
"""

from __future__ import annotations

from collections.abc import Iterable

from marketplace.domain.facts.instants import Millis, whole_second

MINUTE = 60_000
HOUR = 60 * MINUTE
STEPS: tuple[tuple[int, int], ...] = (
    (3 * HOUR, 5 * MINUTE),
    (24 * HOUR, 30 * MINUTE),
    (7 * 24 * HOUR, 3 * HOUR),
    (28 * 24 * HOUR, 12 * HOUR),
)
"""Up to so far from now, the grid has a point so often; in milliseconds."""
POINTS_MAX, POINTS_MIN = 240, 60
BID_POINTS_MAX = 600_000
"""Bids times points. What the search looks at grows with both: a large round has a coarser grid."""


def grid_of(now: int, until: int, edges: Iterable[int], *, bids: int = 1) -> list[Millis]:
    """Return rising whole seconds from `now` up to the first that is not before `until`.

    Args:
        edges: instants wanted on the grid, the most wanted first; dropped where there are enough.
        bids: how many are searched on it.
    """
    most = max(POINTS_MIN, min(POINTS_MAX, BID_POINTS_MAX // max(1, bids)))
    coarser = -(-POINTS_MAX // most)
    start = whole_second(now)
    points = {start, whole_second(max(until, start + 1))}
    at = start
    for reach, step in STEPS:
        while at < min(until, start + reach):
            points.add(at)
            at = Millis(at + step * coarser)
    for edge in edges:
        if len(points) >= most:
            break
        if start < edge < until:
            points.add(whole_second(edge))
    return sorted(points)
