"""A level has a span wherever, and only where, that many GPUs of a host are free."""

from __future__ import annotations

from random import Random

import pytest

from marketplace.domain.index.free_levels import levels_of

GPUS_MAX, SPANS_MAX, LONG = 9, 7, 40


def spans(random: Random) -> list[tuple[int, int]]:
    """Return some spans in order, of which none touch."""
    edges = sorted(random.sample(range(LONG), 2 * random.randint(0, SPANS_MAX)))
    return list(zip(edges[::2], edges[1::2], strict=True))


@pytest.mark.parametrize("seed", range(50))
def test_a_level_is_where_so_many_gpus_are_free(seed: int) -> None:
    random = Random(seed)
    gpus = [spans(random) for _ in range(random.randint(1, GPUS_MAX))]

    levels = levels_of(gpus)

    assert len(levels) == len(gpus).bit_length()
    for level, found in enumerate(levels):
        assert found == sorted(found)
        for at in range(LONG):  # the second that begins there
            free = sum(any(opens <= at < closes for opens, closes in of_gpu) for of_gpu in gpus)
            assert any(opens <= at < closes for opens, closes in found) == (free >= 1 << level)


def test_gpus_that_are_free_at_the_same_time_are_told_at_once() -> None:
    always = [(0, 10), (20, 30)]

    assert levels_of([always, always, always]) == [always, always]
