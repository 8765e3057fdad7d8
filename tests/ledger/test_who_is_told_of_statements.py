"""Finance people are told once of each statement, and of each invoice issued in their name."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid5

import pytest

from ledger import invoicing, stating
from ledger.domain.account_ids import earnings_account
from ledger.domain.events import TenantRegistered
from ledger.domain.ids import TenantId
from ledger.domain.invoice_events import PartyDetails
from ledger.domain.notice_events import NoticeGiven
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.self_billing_events import SelfBilledInvoiceIssued
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Expect, Meta, NewEvent
from ledger.models import PaperRow
from ledger.reacting import follow_policies
from tests.conftest import NOON, SOMEBODY
from tests.ledger import busy_month, invoiced
from tests.ledger import ledgerbook as book
from tests.ledger.invoiced import JOAN, MONTH

LATER = MONTH.window.ends_at + timedelta(days=6)


def register(store: MemoryStore, tenant_id: UUID, slug: str) -> None:
    """Let there be people of an organisation to be told."""
    registered = TenantRegistered(
        tenant_id=TenantId(tenant_id),
        slug=slug,
        title=slug.title(),
        currency="USD",
        is_platform=False,
        at=NOON,
    )
    fresh = [NewEvent(uuid5(book.WORLD, slug), registered)]
    store.append(f"tenant-{tenant_id}", fresh, expected=Expect.ANY, by=SOMEBODY)


def told(store: MemoryStore) -> list[NoticeGiven]:
    for _ in range(2):
        while follow_policies(store, [invoicing.TELL_OF_DOCUMENTS]):
            pass
    found = store.read_all(limit=10_000).events
    return [each.event for each in found if isinstance(each.event, NoticeGiven)]


def state(store: MemoryStore) -> None:
    stating.state_month(store, MONTH, user_id=JOAN, by=SOMEBODY, now=LATER)
    invoiced.follow(store)


@pytest.mark.django_db
def test_each_party_is_told_of_its_statements_once(store: MemoryStore) -> None:
    busy_month.live_through(store)
    invoiced.soft_close(store)
    invoiced.close(store)
    state(store)
    register(store, book.CONSUMER, "consumer")

    found = [each for each in told(store) if each.link.startswith("/documents/")]

    mine = PaperRow.objects.filter(tenant_id=book.CONSUMER)
    assert {each.link for each in found} == {f"/documents/{row.pk}" for row in mine}
    assert len(found) == mine.count() > 0
    for row in mine:
        [notice] = [each for each in found if each.link.endswith(str(row.pk))]
        assert notice.tenant_id == book.CONSUMER and notice.topic == "invoice"
        assert notice.title == f"{row.number}: {row.account_title} in {MONTH}"
        assert "ends with" in notice.body


@pytest.mark.django_db
def test_an_owner_is_told_of_an_invoice_in_its_name(store: MemoryStore) -> None:
    register(store, book.OWNER, "owner")
    party = PartyDetails(name="Owner SARL", address=("1 rue",), country="FR")
    issued = SelfBilledInvoiceIssued(
        tenant_id=book.OWNER,
        platform_id=PLATFORM_ID,
        account_id=earnings_account(book.OWNER, "USD"),
        invoice_id=uuid5(book.WORLD, "invoice"),
        number="OWNER-2026-0001",
        payout_id=uuid5(book.WORLD, "payout"),
        settlement="2026-W02",
        issuer=party,
        payer=party,
        currency="USD",
        lines=(),
        taxes=(),
        exact_nanos=50_000_000,
        carried_nanos=0,
        net_nanos=50_000_000,
        tax_nanos=0,
        total_nanos=50_000_000,
        agreed_at=NOON,
        at=NOON,
    )
    stream = f"selfbilling-{book.OWNER}"
    fresh = [NewEvent(uuid5(book.WORLD, "billed"), issued)]
    store.append(stream, fresh, expected=Expect.ANY, by=Meta(actor="loop:self-billing"))

    [notice] = told(store)

    assert (notice.tenant_id, notice.link) == (book.OWNER, f"/documents/{issued.invoice_id}")
    assert issued.number in notice.title and "2026-W02" in notice.body
