"""A calendar takes the GPUs of a grant in one go as it takes them one by one."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from ledger.domain.ids import LeaseId
from marketplace.domain.facts.instants import Millis
from marketplace.domain.orderbook.calendar import Calendar, Taken

GPUS = ("GPU-1", "GPU-2", "GPU-3", "GPU-4/mps-1of4/25pct-20389mib")


def span(starts: int, ends: int, number: int = 0) -> Taken:
    """Return a span that a lease holds."""
    return Taken(Millis(starts), Millis(ends), LeaseId(UUID(int=number)))


@pytest.mark.parametrize("seed", range(20))
def test_taking_all_at_once_is_taking_one_after_the_other(seed: int) -> None:
    rng = random.Random(seed)
    at_once, one_by_one = Calendar(), Calendar()
    hours = rng.sample(range(40), 25)
    for number, hour in enumerate(hours):
        uuids = rng.sample(GPUS, rng.randint(1, len(GPUS)))

        at_once.take_each(uuids, span(hour, hour + 1, number))

        for uuid in uuids:
            one_by_one.take(uuid, span(hour, hour + 1, number))
    assert [at_once.of(uuid) for uuid in GPUS] == [one_by_one.of(uuid) for uuid in GPUS]
    assert (at_once.changes, at_once.parted) == (one_by_one.changes, one_by_one.parted)
    assert at_once.parted == {"GPU-4": {GPUS[3]}}


def test_a_fork_takes_after_what_its_parent_has_and_what_it_promised() -> None:
    book = Calendar()
    book.take_each(("GPU-1",), span(0, 10))
    fork = book.fork()
    fork.promise(lambda: [(("GPU-1",), span(10, 20, 1))])
    fork.take_each(("GPU-1", "GPU-2"), span(20, 30, 2))

    assert fork.of("GPU-1") == (span(0, 10), span(10, 20, 1), span(20, 30, 2))
    assert fork.of("GPU-2") == (span(20, 30, 2),)
    assert book.of("GPU-1") == (span(0, 10),)


@pytest.mark.parametrize("again", [span(5, 15, 1), span(3, 4, 1), span(-1, 1, 1), span(20, 20, 1)])
def test_nothing_is_taken_twice_or_for_no_time(again: Taken) -> None:
    calendar = Calendar()
    calendar.take_each(GPUS, span(0, 10))
    with pytest.raises(AssertionError):
        calendar.take_each(GPUS, again)
