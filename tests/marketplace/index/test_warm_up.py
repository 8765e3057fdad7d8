"""What the instant lane uses is compiled before its first bid and its first offer come."""

from __future__ import annotations

from random import Random
from typing import Any

from marketplace.domain.decisions.warm_up import rehearse
from marketplace.domain.facts.events import LeaseGranted
from tests.benchmarks.instant import Lane
from tests.marketplace.support.odd_traffic import facts


def test_every_bid_of_a_rehearsal_is_served() -> None:
    granted = [event for event in rehearse() if isinstance(event, LeaseGranted)]

    assert [event.bid_id.int for event in granted] == [1, 2, 3]


def test_after_a_rehearsal_nothing_is_left_to_compile() -> None:
    from marketplace.domain.kernels.bid_rows import stand
    from marketplace.domain.kernels.fill_host import cut, serve
    from marketplace.domain.kernels.next_bid import lay_out
    from marketplace.domain.kernels.scan_hosts import room_on

    kernels: tuple[Any, ...] = (room_on, lay_out, serve, cut, stand)
    rehearse()
    known = [list(kernel.signatures) for kernel in kernels]
    lane = Lane()
    for fact in facts(Random(3), lane.book):
        lane.take_in(fact)

    assert all(known)
    assert known == [list(kernel.signatures) for kernel in kernels]
