"""A month that is over, its invoices, and who issues and credits them."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

from ledger import invoicing
from ledger.commands import closing
from ledger.commands import invoices as commands
from ledger.domain.closing import Check
from ledger.domain.ids import TenantId, UserId
from ledger.domain.invoice_events import CreditedLine, PartyDetails, TaxScheme
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.periods import Period
from ledger.eventstore.port import EventStore
from ledger.following import follow_projections
from ledger.models import Checkpoint, InvoiceRow
from ledger.projections.invoices import INVOICES
from ledger.projections.money import MONEY
from tests.conftest import NOON, SOMEBODY

JOAN, OSCAR = UserId(uuid4()), UserId(uuid4())
MONTH = Period.of(NOON)
LATER = MONTH.window.ends_at + timedelta(days=3)
MET = Check(name="trial-balance", title="Trial balance", passed=True, words="")


def follow(store: EventStore) -> None:
    """Bring the tables of money and of invoices up to the store's head."""
    while follow_projections(store, [MONEY, INVOICES]):
        pass
    assert not Checkpoint.objects.exclude(error="").exists()


def soft_close(store: EventStore, period: Period = MONTH) -> None:
    now = period.window.ends_at + timedelta(days=3)
    closing.soft_close_period(store, period, user_id=JOAN, by=SOMEBODY, now=now)
    follow(store)


def close(store: EventStore, period: Period = MONTH) -> None:
    """Close a month that is soft-closed."""
    now = period.window.ends_at + timedelta(days=4)
    closing.close_period(store, period, checks=[MET], user_id=JOAN, by=SOMEBODY, now=now)
    follow(store)


def reopen(store: EventStore, period: Period = MONTH) -> None:
    closing.ask_to_reopen_period(
        store, period, reason="wrong rate", user_id=JOAN, by=SOMEBODY, now=LATER
    )
    closing.approve_reopening(store, period, user_id=OSCAR, by=SOMEBODY, now=LATER)
    follow(store)


def issue(store: EventStore, period: Period = MONTH) -> invoicing.Outcome:
    """Issue the invoices of a month that is at least soft-closed."""
    now = period.window.ends_at + timedelta(days=5)
    outcome = invoicing.issue_month(store, period, user_id=JOAN, by=SOMEBODY, now=now)
    follow(store)
    return outcome


def details(
    store: EventStore,
    party_id: UUID,
    *,
    name: str = "Somebody Ltd",
    country: str = "DE",
    vat_id: str = "",
    email: str = "",
    scheme: TaxScheme = "none",
    issues_by_itself: bool = False,
) -> None:
    said = PartyDetails(
        name=name, address=("Long street 1",), country=country, vat_id=vat_id, email=email
    )
    commands.set_billing_details(
        store,
        party_id=party_id,
        tenant_id=TenantId(party_id),
        details=said,
        scheme=scheme,
        due_days=14,
        issues_by_itself=issues_by_itself,
        user_id=JOAN,
        by=SOMEBODY,
        now=NOON,
    )
    follow(store)


def tax_the_eu(store: EventStore) -> None:
    """Let the platform charge VAT as a German company."""
    details(store, PLATFORM_ID, name="Offpeak GmbH", vat_id="DE123456789", scheme="eu-vat")


def credit(store: EventStore, row: InvoiceRow, *lines: tuple[str, int]) -> UUID:
    """Credit lines of an invoice, or all that is left of it, with a second person."""
    credit_id = uuid4()
    commands.ask_credit_note(
        store,
        credit_id=credit_id,
        invoice_id=row.pk,
        lines=[CreditedLine(line_id=key, nanos=nanos) for key, nanos in lines],
        reason="charged twice",
        user_id=JOAN,
        by=SOMEBODY,
        now=LATER,
    )
    commands.approve_credit_note(store, credit_id, user_id=OSCAR, by=SOMEBODY, now=LATER)
    follow(store)
    return credit_id
