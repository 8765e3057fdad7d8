"""Self-billing on pages: an owner agrees, its settlements are invoiced, and it reads them."""

from __future__ import annotations

import pytest

from ledger import paying, self_billing
from ledger.domain.settling import PayoutTerms
from ledger.models import PaperRow, PayeeRow, PayoutRow
from tests.pages.papered import used
from tests.pages.reading import html
from tests.pages.world import CONSUMER, OWNER, PLATFORM, World

pytestmark = pytest.mark.django_db


def billed(world: World) -> PaperRow:
    """Return the invoice of a settlement of an owner that agreed."""
    used(world)
    ada, joan = world.member(OWNER, "owner"), world.member(PLATFORM, "finance")
    money = world.member(OWNER, "finance")
    form = {"name": "Aurora eG", "country": "DE", "vat_id": "DE811907980", "address": "Street 2"}
    money.post("/invoices/billing-details", form)
    form = {"name": "Offpeak GmbH", "country": "DE", "vat_id": "DE123456789", "due_days": "14"}
    joan.post("/invoices/billing-details", {**form, "scheme": "eu-vat"})
    world.settle()
    ada.post("/payouts/self-billing", {"agreed": "yes"})
    world.settle()
    row = PayeeRow.objects.get(tenant_id=world.tenant(OWNER))
    PayeeRow.objects.filter(pk=row.pk).update(minimum_nanos=10_000_000)
    joan.post(f"/payouts/of/{row.account_id}/settle")
    world.settle()
    assert self_billing.bill_settlements(world.store, now=world.now) == PayoutRow.objects.count()
    world.settle()
    return PaperRow.objects.get()


@pytest.fixture(autouse=True)
def _pays_at_once() -> object:
    kept = paying.terms(), paying.debtor()
    paying.install(PayoutTerms(minimum_nanos=10_000_000, held_days=0), kept[1])
    yield
    paying.install(*kept)


def test_an_owner_without_an_address_is_told_what_is_missing(world: World) -> None:
    used(world)
    ada = world.member(OWNER, "owner")
    assert "Let the platform issue your invoices" in html(ada.get("/payouts").content)

    answer = ada.post("/payouts/self-billing", {"agreed": "yes"})

    assert answer.status_code == 422
    assert "Give legal name, address and country" in html(answer.content)


def test_a_settlement_is_invoiced_in_the_owners_name(world: World) -> None:
    row = billed(world)
    ada, grace = world.member(OWNER, "owner"), world.member(CONSUMER, "finance")

    page = html(ada.get("/payouts").content)
    assert "Each settlement is invoiced in your name" in page
    shown = html(ada.get(f"/documents/{row.pk}").content)
    for words in ("Self-billing", "Aurora eG", "VAT 19%", "Fee of the platform", row.number):
        assert words in shown
    assert row.number in html(ada.get(f"/payouts/{row.payout_id}").content)
    assert ada.get(f"/documents/{row.pk}/pdf").content.startswith(b"%PDF-")
    assert grace.get(f"/documents/{row.pk}").status_code == 404
    ended = ada.post("/payouts/self-billing", {"agreed": "no"}, follow=True)
    world.settle()
    assert "Ended: you issue your invoices yourself." in html(ended.content)
    assert "not agreed" in html(ada.get("/payouts").content)
    reader = world.member(OWNER, "auditor")
    assert reader.post("/payouts/self-billing", {"agreed": "yes"}).status_code == 403
