"""However many bids come and go, each group's rows stay in order and nobody is lost."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from random import Random

import pytest

from marketplace.domain.index.bid_columns import LATE_MAX
from marketplace.domain.index.bid_queue import Queue
from marketplace.domain.index.floors import Floors
from marketplace.domain.kernels.layout import KEY, SINCE
from marketplace.domain.orderbook.open_bid import OpenBid, Shape
from tests.benchmarks.instant import Traffic
from tests.kernels import as_python

BIDS = 16 * LATE_MAX
CENTS = 10**8


def numbered(known: dict[Shape, int], bid: OpenBid) -> int:
    """Return the number of a bid's shape, the next one for a new shape."""
    return known.setdefault(bid.shape, len(known))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_those_who_reach_a_floor_are_found_in_order(seed: int, compiled: bool) -> None:
    random, shapes = Random(seed), dict[Shape, int]()
    traffic, queue = Traffic(random), Queue(lambda bid: numbered(shapes, bid))
    waiting: list[OpenBid] = []
    positions = random.sample(range(10 * BIDS), BIDS)

    with nullcontext() if compiled else as_python():
        for position in positions:
            placed = traffic.bid()
            cents = placed.limit.nanos_per_gpu_hour // CENTS * CENTS or CENTS  # so that many tie
            placed = replace(placed, limit=replace(placed.limit, nanos_per_gpu_hour=cents))
            bid = OpenBid.of(placed, since=position)
            waiting.append(bid)
            queue.add(bid)
            if random.random() < 0.3:
                queue.remove_each([waiting.pop(random.randrange(len(waiting)))])
    lowest = {shape: random.randrange(10**9) for shape in range(0, len(shapes), 2)}
    served = queue.served(Floors(lowest, len(shapes)))

    reaching = [bid for bid in waiting if bid.reach >= lowest.get(shapes[bid.shape], 1 << 62)]
    assert served.in_order() == sorted(reaching, key=lambda bid: bid.price_time)
    assert len(served) == len(reaching)
    for order, _ in served.parts:
        rows = list(zip(order[KEY].tolist(), order[SINCE].tolist(), strict=True))
        assert rows == sorted(rows)
