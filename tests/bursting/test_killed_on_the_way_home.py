"""The process dies just before or after any write of a move home: each second is of one lease.

The move is played once to count its writes, then once more for each with the process killed there.
What reads the store next starts with nothing else. The store writes streams one by one, so that it
may die between any two of them; PostgreSQL is kinder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Appended, Expect, Meta, NewEvent, load
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts import close_reasons
from marketplace.domain.leases.renewals import next_id
from tests.bursting.coming_home import HOME, Homely
from tests.bursting.market import Fuse, Killed
from tests.marketplace.support.site import BID


class MortalStore(MemoryStore):
    """A store whose user may die just before and just after each append."""

    def __init__(self) -> None:
        super().__init__()
        self.fuse: Fuse | None = None

    def append(
        self, stream: str, events: Sequence[NewEvent], *, expected: int | Expect, by: Meta
    ) -> Appended:
        if self.fuse is not None:
            self.fuse.burn()
        appended = super().append(stream, events, expected=expected, by=by)
        if self.fuse is not None:
            self.fuse.burn()
        return appended


def ready() -> tuple[Homely, MortalStore]:
    """Return a market whose work would move home."""
    store = MortalStore()
    site = Homely(store=store)
    site.burst()
    site.wait(hours=1)
    site.offer("free", at="0.2")
    site.save(site.in_cloud)
    return site, store


def survive(site: Homely, step: Callable[[], object]) -> None:
    """Do a step; where the process dies in it, another one does it again."""
    try:
        step()
    except Killed:
        site.engine = site.new_engine()
        step()


def play(site: Homely, store: MortalStore, fuse: Fuse) -> None:
    store.fuse = fuse
    survive(site, site.look)
    survive(site, site.look)
    site.wait(seconds=HOME.lead_seconds)
    survive(site, lambda: site.stop(site.in_cloud))
    survive(site, lambda: site.begin(site.at_home))
    survive(site, site.look)
    site.wait(minutes=5)
    survive(site, site.advance)
    survive(site, site.advance)
    survive(site, site.go)
    store.fuse = None


def count_writes() -> int:
    site, store = ready()
    fuse = Fuse()
    play(site, store, fuse)
    return fuse.burnt


@pytest.mark.parametrize("kill_at", range(1, count_writes() + 1))
def test_whatever_write_it_dies_at_the_work_moves_once(kill_at: int) -> None:
    site, store = ready()

    play(site, store, Fuse(kill_at=kill_at))

    cloud, home = site.in_cloud, site.at_home
    assert cloud.ending_reason == close_reasons.MOVED
    assert cloud.right_ends_at == home.starts_at
    assert home.state == "active"
    assert [asked.number for asked in site.asked()] == [1]
    ended = site.tries().ended
    assert ended is not None and ended.moved
    assert site.machine.state == "terminated"
    assert load(store, Bid, next_id(BID)) is None
    spans = sorted([(cloud.starts_at, cloud.right_ends_at), (home.starts_at, home.ends_at)])
    assert spans[0][1] - spans[1][0] == timedelta()
