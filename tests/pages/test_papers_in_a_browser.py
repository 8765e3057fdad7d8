"""Invoices, credit notes and statements in a real browser: accessible, and narrow enough."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from ledger.domain.periods import Period
from ledger.models import CreditNoteRow, InvoiceRow, PaperRow, PayeeRow
from ledger.self_billing import bill_settlements
from tests.pages.browser import FIRST_SCHEME, browsing, enter, faults, served
from tests.pages.papered import close, issue, post, used
from tests.pages.world import CONSUMER, OWNER, PLATFORM, World


def papered(world: World) -> dict[str, list[str]]:
    """Return the places of a month's papers, by who looks at them."""
    used(world)
    joan, oscar = world.member(PLATFORM, "finance"), world.member(PLATFORM, "operator")
    grace = world.member(CONSUMER, "finance")
    form = {"name": "Offpeak GmbH", "country": "DE", "vat_id": "DE123456789", "due_days": "14"}
    post(joan, world, "billing-details", **form, scheme="eu-vat")
    form = {"name": "Cirrus SARL", "address": "1 rue\nParis", "country": "FR"}
    post(grace, world, "billing-details", **form, purchase_order="PO-4711")
    issue(joan, world)
    number = InvoiceRow.objects.get().number
    for reason, amount in (("charged twice", "0.50"), ("a fault of ours", "0.25")):
        post(joan, world, f"{number}/credit", reason=reason, **{"amount-001": amount})
    note = CreditNoteRow.objects.get(reason="charged twice")
    post(oscar, world, f"credit-notes/{note.pk}/approve")
    close(world)
    period = Period.of(world.now.replace(day=1) - timedelta(days=1))
    joan.post("/documents/issue", {"period": str(period)})
    world.settle()
    paid = PaperRow.objects.get(account_id=world.account_id)
    earned = PaperRow.objects.get(account_kind="earnings")
    invoice = f"/invoices/{number}"
    return {
        "joan": ["/invoices", invoice, "/invoices/billing-details", "/documents"],
        "grace": [
            "/invoices",
            invoice,
            "/invoices/billing-details",
            f"/invoices/billing-details?unit={world.unit_id}",
            f"/documents/{paid.pk}",
        ],
        "ada": ["/documents", f"/documents/{earned.pk}", *self_billed(world)],
    }


def self_billed(world: World) -> list[str]:
    """Let the owner's settlement be invoiced for it, and return where that is seen."""
    ada, joan = world.member(OWNER, "owner"), world.member(PLATFORM, "finance")
    form = {"name": "Aurora eG", "country": "DE", "vat_id": "DE811907980", "address": "Street 2"}
    world.member(OWNER, "finance").post("/invoices/billing-details", form)
    world.settle()
    ada.post("/payouts/self-billing", {"agreed": "yes", "small_business": "on"})
    row = PayeeRow.objects.get(tenant_id=world.tenant(OWNER))
    joan.post(f"/payouts/of/{row.account_id}/settle")
    world.settle()
    bill_settlements(world.store, now=world.now)
    world.settle()
    bill = PaperRow.objects.get(kind="self-billed")
    return ["/payouts", f"/payouts/{bill.payout_id}", f"/documents/{bill.pk}"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("committed_store")
@pytest.mark.parametrize("scheme", FIRST_SCHEME)
def test_papers_are_accessible_and_fit(tmp_path: Path, scheme: str) -> None:
    world = World()
    world.found()
    places = papered(world)
    people = {
        "joan": world.member(PLATFORM, "finance"),
        "grace": world.member(CONSUMER, "finance"),
        "ada": world.member(OWNER, "owner"),
    }
    wrong = []
    with served(tmp_path / "site.log") as site:
        for who, client in people.items():
            with browsing(scheme=scheme) as (context, page, said):
                enter(context, site, client.cookies)
                for place in places[who]:
                    page.goto(site + place)
                    wrong += [f"{place} {each}" for each in faults(page, scheme)]
                wrong += said

    assert wrong == []
