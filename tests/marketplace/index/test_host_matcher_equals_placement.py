"""A host whose GPUs are all alike is cleared by a shorter way, compiled or not: to the same end."""

from __future__ import annotations

from contextlib import nullcontext
from random import Random

import pytest

from marketplace.domain.facts.events import LeaseGranted
from marketplace.domain.index import availability
from tests.benchmarks.instant import Lane
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
