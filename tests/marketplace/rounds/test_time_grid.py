"""When the leases of a round may start: often where it is soon, seldom where many bid."""

from __future__ import annotations

from itertools import pairwise

import pytest

from marketplace.domain.rounds.time_grid import (
    BID_POINTS_MAX,
    HOUR,
    MINUTE,
    POINTS_MAX,
    POINTS_MIN,
    grid_of,
)

DAY = 24 * HOUR


def test_it_begins_now_ends_at_the_end_and_rises() -> None:
    grid = grid_of(MINUTE, MINUTE + DAY, [])
    assert grid[0] == MINUTE and grid[-1] == MINUTE + DAY
    assert all(a < b for a, b in pairwise(grid))


def test_what_is_soon_is_finer_than_what_is_far() -> None:
    grid = grid_of(0, 10 * DAY, [])
    steps = [b - a for a, b in pairwise(grid)]
    assert steps[0] == 5 * MINUTE
    assert steps[-1] == 12 * HOUR
    assert steps[:-1] == sorted(steps[:-1])


def test_the_most_wanted_edges_are_on_it_as_long_as_there_is_room() -> None:
    edges = [1_000 * second for second in range(1, 10_000, 7)]
    grid = grid_of(0, DAY, edges)
    assert len(grid) == POINTS_MAX
    assert set(edges[:100]) <= set(grid)
    assert not set(edges[-100:]) <= set(grid)


@pytest.mark.parametrize("bids", [1, 2_500, 5_000, 10_000, 100_000])
def test_the_more_bids_there_are_the_coarser_it_is(bids: int) -> None:
    edges = [1_000 * second for second in range(1, 80_000, 7)]
    grid = grid_of(0, DAY, edges, bids=bids)
    assert len(grid) == max(POINTS_MIN, min(POINTS_MAX, BID_POINTS_MAX // bids))
    assert edges[0] in grid, "the most wanted edge of all has room in any"
