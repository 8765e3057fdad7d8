"""When how many GPUs of a host are free, told in one step from what is taken, is the same."""

from __future__ import annotations

from random import Random

import pytest

from marketplace.domain.facts.instants import Millis, whole_second
from marketplace.domain.index.compiled_levels import Levelling
from marketplace.domain.index.free_levels import levels_of
from marketplace.domain.orderbook.calendar import Taken, gaps

GPUS_MAX, SPANS_MAX, LONG = 9, 7, 60_000


def spans(random: Random, most: int, *, touch: bool) -> list[tuple[Millis, Millis]]:
    """Return some spans in order, none overlapping; some begin within a second. touch: two do."""
    step = random.choice((1, 500, 1_000))
    edges = sorted(random.sample(range(0, LONG, step), 2 * random.randint(0, most)))
    found = list(zip(edges[::2], edges[1::2], strict=True))
    if touch and len(found) > 1:
        found[1] = (found[0][1], found[1][1])
    return [(Millis(a), Millis(b)) for a, b in found]


@pytest.mark.parametrize("seed", range(200))
def test_one_step_tells_the_same_as_going_through_what_is_free(seed: int) -> None:
    random = Random(seed)
    windows = spans(random, 3, touch=False)
    taken = [
        tuple(Taken(*span, None) for span in spans(random, SPANS_MAX, touch=seed % 2 > 0))
        for _ in range(random.randint(1, GPUS_MAX))
    ]
    free = [
        [(since, until) for a, until in gaps(windows, each) if (since := whole_second(a)) < until]
        for each in taken
    ]

    assert Levelling()(windows, taken) == levels_of(free)


def test_a_host_may_have_more_spans_than_any_before() -> None:
    levelling = Levelling()
    many = tuple(Taken(Millis(2_000 * at), Millis(2_000 * at + 1_000), None) for at in range(500))

    (level,) = levelling([(0, 1_000_000)], [many])

    assert level == [(2_000 * at + 1_000, 2_000 * at + 2_000) for at in range(500)]
