"""Spending and budgets as people see them: own, the unit's, the organisation's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.test import Client

from ledger import commands
from ledger.domain.ids import AccountId
from marketplace.models.spending import SpendingBudgetRow, SpendingDayRow
from tests.marketplace.support.spent import Spender
from tests.pages.budget_form import BUDGET, made
from tests.pages.world import BY, CONSUMER, OWNER, PLATFORM, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def spender() -> Spender:
    world = World()
    world.found()
    return Spender(world)


def text(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_a_month_is_told_by_project_and_leads_to_its_leases(spender: Spender) -> None:
    bid = spender.bid(project="llm-eval")
    first = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    spender.charge(bid, hours=2, at=first)
    spender.look()
    finance = spender.world.member(CONSUMER, "finance")
    page = text(finance, "/spend?by=project")
    assert "llm-eval" in page
    assert "$2.00" in page
    assert "How busy the GPUs were is not measured." in page
    assert f"/leases/{bid}" in text(finance, "/spend?by=lease&project=llm-eval")
    nothing = text(finance, "/spend?by=lease&project=other")
    assert "Nothing was charged" in nothing


def test_owners_of_gpus_see_nothing_of_what_others_spend(spender: Spender) -> None:
    first = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    spender.charge(spender.bid(project="llm-eval"), at=first)
    spender.look()
    owner = spender.world.member(OWNER, "owner")
    assert "llm-eval" not in text(owner, "/spend?by=project")


def test_a_budget_is_set_stands_and_is_ended_on_its_page(spender: Spender) -> None:
    finance = spender.world.member(CONSUMER, "finance")
    assert "No budgets" in text(finance, "/budgets")
    path = made(spender, finance)
    spender.bid(hours=4)
    spender.look()
    page = text(finance, "/budgets")
    assert "$0.00 spent and $4.00 held of $10.00" in page
    assert "$6.00" in text(finance, path)
    consumer = spender.world.member(CONSUMER, "consumer")
    assert "Language models</a>" not in text(consumer, "/budgets")
    assert consumer.post("/budgets", BUDGET).status_code == 403
    assert finance.post(f"{path}/end").status_code == 302
    spender.look()
    assert "No budgets" in text(finance, "/budgets")


def test_a_budget_counts_in_a_currency_that_the_organisation_pays_in(spender: Spender) -> None:
    world = spender.world
    commands.open_account(
        world.store,
        account_id=AccountId(uuid4()),
        tenant_id=world.tenant(CONSUMER),
        subscriber_id=None,
        kind="chargeback",
        title="Work in euro",
        currency="EUR",
        overdraft_nanos=None,
        by=BY,
        now=world.now,
    )
    world.settle()
    finance = world.member(CONSUMER, "finance")
    form = text(finance, "/budgets")
    assert '<option value="USD"' in form
    assert '<option value="EUR"' in form

    path = made(spender, finance, currency="EUR")

    assert SpendingBudgetRow.objects.get().currency == "EUR"
    assert "€10.00" in text(finance, path) or "10.00 EUR" in text(finance, path)
    refused = finance.post("/budgets", {**BUDGET, "token": str(uuid4()), "currency": "JPY"})
    assert refused.status_code == 422


def test_what_is_wrong_with_a_budget_is_said(spender: Spender) -> None:
    finance = spender.world.member(CONSUMER, "finance")
    answer = finance.post("/budgets", {**BUDGET, "token": str(uuid4()), "zone": "Mars"})
    assert answer.status_code == 422
    assert "IANA name" in answer.content.decode()
    answer = finance.post("/budgets", {**BUDGET, "token": str(uuid4()), "scope": "project"})
    assert answer.status_code == 422


def test_a_large_grant_is_approved_by_somebody_else(spender: Spender) -> None:
    world = spender.world
    finance, operator = world.member(CONSUMER, "finance"), world.member(CONSUMER, "operator")
    path = made(spender, finance, period="year")
    until = f"{datetime.now(UTC) + timedelta(minutes=2):%Y-%m-%d %H:%M}"
    asked = {"token": str(uuid4()), "amount": "5.00", "until": until, "why": "a deadline"}
    assert finance.post(f"{path}/grant", asked).status_code in (302, 422)
    spender.look()
    page = text(finance, path)
    if "a deadline" in page:
        assert "Somebody else has to approve it." in page
        assert "Approve" in text(operator, path)


def test_the_platform_says_what_gpus_cost_elsewhere_and_everybody_sees_what_was_saved(
    spender: Spender,
) -> None:
    world = spender.world
    first = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    bid = spender.bid()
    spender.charge(bid, hours=2, at=first)
    spender.look()
    SpendingDayRow.objects.update(gpu_model="H100-80GB")
    finance, joan = world.member(CONSUMER, "finance"), world.member(PLATFORM, "finance")
    assert "no list price is set" in text(finance, "/spend")
    figures = {
        "token": str(uuid4()),
        "gpu_model": "H100-80GB",
        "cloud": "4.00",
        "purchase": "35064.00",
        "years": "4",
        "utilisation": "50",
        "running": "",
        "source": "a quote",
    }
    assert finance.post("/spend/comparison", figures).status_code == 403
    assert joan.post("/spend/comparison", figures).status_code == 302
    spender.look()
    assert "a quote" in text(joan, "/spend/comparison")
    page = text(finance, "/spend")
    assert "$6.00" in page, "2 h × 4.00 − 2.00"
    assert "$2.00 an hour of use" in page
    nothing = {**figures, "token": str(uuid4()), "cloud": "", "purchase": ""}
    assert joan.post("/spend/comparison", nothing).status_code == 422
