"""Spending and budgets in a real browser: accessible, and narrow enough."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from ledger.domain.ids import UserId
from ledger.models import JournalEntryRow, Person
from tests.marketplace.support.spent import Spender
from tests.pages.browser import FIRST_SCHEME, browsing, enter, faults, served
from tests.pages.budget_form import made
from tests.pages.world import CONSUMER, World


def lived(world: World) -> tuple[Spender, str]:
    """Return a month in which some was spent, and a budget half used."""
    world.found()
    spender = Spender(world)
    finance = world.member(CONSUMER, "finance")
    person = Person.objects.get(email=f"finance@{CONSUMER}.example")
    path = made(spender, finance, amount="20.00", period="year")
    made(spender, finance, title="Evaluation", scope="project", subject="llm-eval", amount="4.00")
    first = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    for project, hours, days in (("llm-eval", 3, 0), ("vision", 5, 0), ("", 2, 0)):
        bid = spender.bid(hours=hours + 1, project=project, user=UserId(person.id))
        spender.charge(bid, hours=hours, at=first + timedelta(days=days))
    until = f"{datetime.now(UTC) + timedelta(hours=2):%Y-%m-%d %H:%M}"
    grant = {"token": str(uuid4()), "amount": "1.00", "until": until, "why": "a deadline"}
    finance.post(f"{path}/grant", grant)
    spender.look()
    return spender, path


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("committed_store")
@pytest.mark.parametrize("scheme", FIRST_SCHEME)
def test_the_pages_are_accessible_and_fit(tmp_path: Path, scheme: str) -> None:
    spender, path = lived(World())
    client = spender.world.member(CONSUMER, "finance")
    wrong = []
    with served(tmp_path / "site.log") as site, browsing(scheme=scheme) as (context, page, said):
        enter(context, site, client.cookies)
        entry = JournalEntryRow.objects.filter(kind="usage").order_by("position")[0]
        finance = (
            "/finance/matrix",
            "/finance/costs?by=kind&then=day",
            "/finance/entries",
            f"/finance/entries/{entry.pk}",
        )
        for place in ("/spend?by=project", "/budgets", path, *finance):
            page.goto(site + place)
            wrong += [f"{place} {each}" for each in faults(page, scheme)]
        wrong += said

    assert wrong == []
