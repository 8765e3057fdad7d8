"""Disputes in a browser: accessible, narrow enough, and decided by who is no party to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages.browser import FIRST_SCHEME, browsing, enter, faults, served
from tests.pages.disputed import Disputed
from tests.pages.world import CONSUMER, OWNER, PLATFORM

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("committed_store")]


@pytest.fixture
def market(committed_store: None) -> Disputed:
    """A lease whose owner metered on when its work was gone, and the dispute about it."""
    market = Disputed()
    market.found()
    market.work()
    market.compare()
    return market


@pytest.mark.parametrize("scheme", FIRST_SCHEME)
def test_pages_of_disputes_are_accessible_and_fit(
    market: Disputed, tmp_path: Path, scheme: str
) -> None:
    path = f"/finance/disputes/{market.dispute.dispute_id}"
    consumer, finance = market.member(CONSUMER, "consumer"), market.member(PLATFORM, "finance")
    market.member(OWNER, "owner").post(f"{path}/say", {"text": "The card was yours."})
    market.settle()
    visits = [
        (finance, "/finance/disputes", "its two meters differ"),
        (finance, path, "The card was yours."),
        (consumer, path, "who is no party to it decides"),
        (consumer, f"/leases/{market.lease.lease_id}", "Contested charges"),
        (consumer, f"/leases/{market.lease.lease_id}/contest", "Contest a charge"),
    ]
    wrong: dict[str, list[str]] = {}
    with (
        served(tmp_path / "site.log") as address,
        browsing(scheme=scheme) as (context, page, said),
    ):
        for client, at, shown in visits:
            enter(context, address, client.cookies)
            page.goto(address + at)
            found = [] if shown in page.locator("body").inner_text() else [f"no {shown}"]
            if found := [*found, *faults(page, scheme), *said]:
                wrong[at] = found
            said.clear()
        enter(context, address, finance.cookies)
        page.goto(address + path)
        page.get_by_label("Reason").fill("Its log ends where the heartbeat does.")
        page.get_by_role("button", name="Give back").click()
        page.get_by_text("Decided.").first.wait_for()
        market.settle()
        page.reload()
        page.get_by_text("Given back after disputes").first.wait_for()

    assert wrong == {}
    assert market.dispute.state == "upheld"
