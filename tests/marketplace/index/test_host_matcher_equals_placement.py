"""Most hosts are cleared by a shorter way, compiled or not: to the same end."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from ledger.domain.span import Window
from marketplace.domain.facts.events import GpuRequest, LeaseGranted
from marketplace.domain.index import availability
from tests.benchmarks.instant import NOON, Lane, Traffic
from tests.kernels import as_python
from tests.marketplace.support.odd_traffic import facts
from tests.marketplace.support.plain_book import PlainBook


@pytest.mark.parametrize(
    ("compiled", "seed"),
    [*[(True, seed) for seed in range(25)], *[(False, seed) for seed in range(12)]],
)
def test_an_offer_is_filled_as_by_looking_at_everything(compiled: bool, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch, nullcontext() if compiled else as_python():
        patch.setattr(availability, "SPANS_MAX", 3 if seed % 2 else availability.SPANS_MAX)
        random = Random(seed)
        fast, plain, grants = Lane(), Lane(PlainBook("main")), 0

        for event in facts(random, fast.book):
            decided = fast.take_in(event)

            assert decided == plain.take_in(event)
            grants += sum(isinstance(each, LeaseGranted) for each in decided)
    assert grants


@pytest.mark.parametrize("compiled", [False, True])
def test_a_lease_of_a_month_is_not_too_long_for_the_columns(compiled: bool) -> None:
    traffic, lane = Traffic(Random(1)), Lane()
    offer, bid = traffic.offer(), traffic.bid(worth=100.0)
    month = timedelta(days=30)
    bid = replace(
        bid,
        request=GpuRequest(),
        gpus=1,
        duration_seconds=month // timedelta(seconds=1),
        earliest_start=NOON,
        deadline=NOON + 2 * month,
    )

    with nullcontext() if compiled else as_python():
        assert not any(isinstance(each, LeaseGranted) for each in lane.take_in(bid))
        decided = lane.take_in(replace(offer, windows=(Window(NOON, NOON + 2 * month),)))

    assert [each.bid_id for each in decided if isinstance(each, LeaseGranted)] == [bid.bid_id]
