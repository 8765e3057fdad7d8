"""What follows where a budget comes to a threshold: notices, and work that is paused for it."""

from __future__ import annotations

import pytest

from ledger.domain.notice_events import NoticeGiven
from marketplace import budgeting
from marketplace.commands.spending import set_spending_budget
from marketplace.domain.facts.events import LeaseInterrupted
from tests.marketplace.support.site import Site
from tests.marketplace.support.spending import budget
from tests.marketplace.support.spent import Spender
from tests.pages.world import BY, CONSUMER, World


@pytest.mark.django_db
def test_finance_people_are_told_once_of_each_threshold() -> None:
    world = World()
    world.found()
    world.member(CONSUMER, "finance")
    spender = Spender(world)
    terms = budget(amount=8, tenant_id=spender.tenant_id, at=world.now)
    set_spending_budget(world.store, terms=terms, by=BY)
    spender.charge(spender.bid(hours=4), hours=4, at=world.now)
    for _ in range(3):
        spender.look()
        world.settle()
    told = [
        each.event
        for each in world.store.read_all(limit=10_000).events
        if isinstance(each.event, NoticeGiven) and each.event.topic == "budget"
    ]
    assert [each.title for each in told] == ["Budget budget: 50 % reached"]
    assert "4.00 USD of 8.00 USD are charged" in told[0].body


def test_running_work_that_may_be_paused_is_and_with_its_notice() -> None:
    site = Site()
    site.offer("rack", gpus=2)
    site.ask()
    site.go()
    site.start()
    lease = site.lease
    [interrupted] = budgeting.paused(lease, site.now)
    assert isinstance(interrupted, LeaseInterrupted)
    assert interrupted.pausing
    assert not interrupted.compensations
    assert interrupted.stop_at >= site.now + lease.grace
    assert not budgeting.paused(lease, lease.ends_at), "it ends by itself before"
