"""Work that waits for money, and promises of service, in a browser: accessible, narrow enough."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from listings.commands.promising import set_offer_sla
from listings.domain.sla_events import SlaStep, SlaTerms
from marketplace.depleting import watch_accounts
from marketplace.loops import extend_leases
from tests.pages.browser import FIRST_SCHEME, browsing, enter, faults, served
from tests.pages.running_dry import Dry
from tests.pages.world import BY, CONSUMER, OWNER

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("committed_store")]

PROMISE = SlaTerms(120, 50_000, (SlaStep(999_000, 100_000), SlaStep(950_000, 500_000)))


@pytest.fixture
def waiting(committed_store: None) -> Dry:
    """A lease on promises whose work waits for money."""
    dry = Dry()
    dry.found()
    dry.list_gpus(0, hours=40)
    set_offer_sla(dry.store, offer_id=dry.offer_id, terms=PROMISE, by=BY, now=timezone.now())
    dry.begin(listed=True)
    watch_accounts(dry.store, now=dry.now)
    extend_leases(dry.store, now=dry.lease.ends_at - timedelta(minutes=10))
    dry.settle()
    dry.end()
    return dry


@pytest.mark.parametrize("scheme", FIRST_SCHEME)
def test_pages_of_money_that_is_missing_are_accessible_and_fit(
    waiting: Dry, tmp_path: Path, scheme: str
) -> None:
    finance, owner = waiting.member(CONSUMER, "finance", "consumer"), waiting.member(OWNER, "owner")
    visits = [
        (finance, "/finance", "Work that waits for money"),
        (finance, f"/bids/{waiting.bid_id}", "Waits for money"),
        (finance, f"/leases/{waiting.lease.lease_id}", "Service promised"),
        (owner, f"/offers/{waiting.offer_id}", "Promise of service"),
    ]
    wrong: dict[str, list[str]] = {}
    with (
        served(tmp_path / "site.log") as address,
        browsing(scheme=scheme) as (context, page, said),
    ):
        for client, path, shown in visits:
            enter(context, address, client.cookies)
            page.goto(address + path)
            found = [] if shown in page.locator("main").inner_text() else [f"no {shown}"]
            if found := [*found, *faults(page, scheme), *said]:
                wrong[path] = found
            said.clear()

    assert wrong == {}
