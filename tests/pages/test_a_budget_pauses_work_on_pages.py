"""A budget is reached: its people are told, work that may be paused is, waits, and goes on."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.test import Client

from ledger.models import InboxRow
from marketplace.domain.facts.close_reasons import BUDGET_REACHED
from marketplace.domain.leases.renewals import next_id
from marketplace.loops import BudgetWatch, go_on_where_there_is_money
from marketplace.models import BidRow, LeaseShareRow, MoneyWaitRow
from tests.pages.paused_by_budget import Reached
from tests.pages.reading import text
from tests.pages.world import CONSUMER

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> Reached:
    world = Reached()
    world.found()
    return world


def shown(client: Client, path: str) -> str:
    """Return the words of a page."""
    return text(client.get(path).content)


def test_a_budget_is_reached_pauses_work_is_granted_more_and_it_goes_on(world: Reached) -> None:
    finance, consumer = world.member(CONSUMER, "finance"), world.member(CONSUMER, "consumer")
    world.begin()
    lease_id = world.lease.lease_id
    assert world.lease.state == "active"

    # It is reached: people are told, and the work is asked to save itself.
    world.reach()
    assert LeaseShareRow.objects.get(lease_id=lease_id).phase == "warn"
    assert "The work is paused, since a budget is reached" in shown(consumer, f"/leases/{lease_id}")
    cut = consumer.get(f"/api/v1/leases/{lease_id}").json()["cut"]
    assert (cut["by"], cut["pausing"], cut["compensation"]) == ("budget", True, "0.00")
    stop_at = world.lease.stop_at
    assert stop_at is not None and datetime.fromisoformat(cut["stop_at"]) == stop_at

    # At the end of the notice it is paused, charged for what it ran, and waits for the budget.
    world.stop(stop_at)
    assert world.lease.close_reason == BUDGET_REACHED
    assert "A budget was reached" in shown(consumer, f"/leases/{lease_id}")
    [waiting] = consumer.get("/api/v1/money-waits").json()["data"]
    assert (waiting["budget"], waiting["missing"]) == ("Evaluation", "0.00")
    assert datetime.fromisoformat(waiting["opens_at"]) > stop_at
    page = shown(consumer, f"/bids/{world.bid_id}")
    assert "Waits for room in the budget Evaluation" in page
    assert "budget Evaluation" in shown(finance, "/finance")
    later = stop_at + timedelta(minutes=1)
    assert go_on_where_there_is_money(world.store, now=later) == 0

    # A grant lets it go on by itself, once.
    world.grant(later)
    BudgetWatch().run_once(world.store, now=later)
    world.settle()
    assert go_on_where_there_is_money(world.store, now=later) == 1
    world.settle()
    assert go_on_where_there_is_money(world.store, now=later) == 0
    assert BidRow.objects.get(bid_id=next_id(world.bid_id)).resumes_lease_id == lease_id
    assert not MoneyWaitRow.objects.exists()
    assert "Waits for room" not in shown(consumer, f"/bids/{world.bid_id}")

    titles = list(InboxRow.objects.values_list("title", flat=True).distinct())
    for told in (
        "Budget Evaluation: 80 % reached",
        "Budget Evaluation: 100 % reached",
        "Work goes on that waited for money",
    ):
        assert told in titles
    assert any(each.startswith("Work waits for the budget Evaluation") for each in titles)
