"""Whoever pauses work is killed after any write and asked again: it is paused and goes on once."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from marketplace.commands import leases
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import (
    BidPlaced,
    LeaseClosed,
    LeaseInterrupted,
    LeaseScheduled,
    Workload,
)
from marketplace.domain.leases.renewals import next_id
from marketplace.policies import policies
from tests.marketplace.support.interleaving import Killed, Mortal, Piecemeal, Stepping, Whole
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import named, somebody
from tests.marketplace.support.several_units import Several
from tests.marketplace.support.site import START_GRACE

WRITES_MAX = 40
"""More than a pause and what follows it have."""
SAVES = Workload("training", checkpoint_seconds=60)


def market(kind: type[Mortal]) -> tuple[Several, Stepping]:
    """Return a market in which work runs that may be paused, and somebody comes."""
    site = Several("long", "taker", store=kind())
    site.offer("a", gpus=1, at=1, notice=timedelta(minutes=5))
    following = Stepping(site.store, policies(fee_ppm=50_000))
    site.place("long", limit="2", hours=8, pausable=True, workload=SAVES, deadline=site.later(40))
    settle(site, following)
    site.begin("long")
    settle(site, following)
    site.wait(hours=2)
    return site, following


def settle(site: Several, following: Stepping) -> None:
    for _ in range(30):
        made = site.run()
        if not following.drain() and not made:
            return
    raise AssertionError("it goes on and on")


def stop(site: Several, word: str) -> None:
    """Let the work of a lease be gone."""
    lease = site.lease_of(word)
    lease_id = lease.terms.lease_id
    leases.advance_lease(
        site.store, lease_id=lease_id, start_grace=START_GRACE, by=somebody(), now=site.now
    )
    for host_id in lease.hosts:
        leases.lease_stopped(
            site.store, lease_id=lease_id, host_id=host_id, exit_code=None,
            by=somebody(), now=site.now,
        )  # fmt: skip


def resume_from_where_it_is(site: Several, following: Stepping, began: datetime) -> None:
    """Go through all of it, skipping what is done already."""
    placed = {e.bid_id for r in site.events() if isinstance(e := r.event, BidPlaced)}
    if named("bid taker") not in placed:
        site.place("taker", limit="2", hours=2, deadline=site.later(2.1))
    settle(site, following)
    site.now = max(site.now, began + timedelta(minutes=5))
    if not site.lease_of("long").over:
        stop(site, "long")
    settle(site, following)
    taker = site.lease_of("taker")
    if taker.state in ("scheduled", "starting"):
        site.begin("taker")
    site.now = max(site.now, began + timedelta(hours=2, minutes=5))
    if not site.lease_of("taker").over:
        stop(site, "taker")
    settle(site, following)


@pytest.mark.parametrize("kind", [Whole, Piecemeal])
def test_it_is_paused_once_and_goes_on_once(kind: type[Mortal]) -> None:
    for writes in range(1, WRITES_MAX):
        site, following = market(kind)
        store = site.store
        assert isinstance(store, Mortal)
        store.left, died = writes, False
        began = site.now
        for _ in range(3):
            try:
                resume_from_where_it_is(site, following, began)
                break
            except Killed:
                died, site.engine = True, site.new_engine()
        store.left = None

        events = [each.event for each in site.events()]
        told = [each for each in events if isinstance(each, LeaseInterrupted)]
        assert [each.pausing for each in told] == [True]
        closed = [each.reason for each in events if isinstance(each, LeaseClosed)]
        assert closed[0] == close_reasons.PAUSED
        rest_id = next_id(site.bid_of("long").terms.bid_id)
        rests = [e for e in events if isinstance(e, BidPlaced) and e.bid_id == rest_id]
        assert len(rests) == 1
        assert rests[0].continues is not None
        assert (rests[0].continues.done_seconds, rests[0].continues.pauses) == (7_500, 1)
        leased = [e for e in events if isinstance(e, LeaseScheduled) and e.bid_id == rest_id]
        assert len(leased) == 1
        audit(site.events())
        if not died:
            return
    raise AssertionError("it never came to an end")
