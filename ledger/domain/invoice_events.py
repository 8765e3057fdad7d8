"""What happens to invoices: streams invoices-<issuer's tenant id>, one for each issuer.

Details of parties, which invoices copy, are in streams billing-<id of the tenant or unit>.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import AccountId, SubscriberId, TenantId, UserId

InvoiceKind = Literal["invoice", "internal", "receipt"]
"""invoice: to be paid. internal: what a cost centre used, billed inside its organisation.
receipt: use that a prepaid account has paid for already."""

LineCategory = Literal["use", "storage", "compensation", "credit", "adjustment", "fee"]
TaxScheme = Literal["none", "eu-vat"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyDetails:
    """Who issues or gets an invoice, as it is printed. country: ISO 3166, for tax; empty: none.

    purchase_order: what the payer wants its invoices to name.
    """

    name: str
    address: tuple[str, ...] = ()
    country: str = ""
    vat_id: str = ""
    email: str = ""
    purchase_order: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvoiceLine:
    """One line. exact_nanos: what the journal has; nanos: the same in whole smallest units.

    period: the month of the use. corrects: the number of an earlier invoice that this adds to.
    tax: the code of its tax among the invoice's taxes; empty: none.
    """

    line_id: str
    category: LineCategory
    sku: str
    title: str
    quantity: str
    unit: str
    period: str
    corrects: str
    exact_nanos: int
    nanos: int
    tax: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaxTotal:
    """Tax on the lines of one code. base_nanos: their sum. note: what the law wants printed."""

    code: str
    title: str
    rate_ppm: int
    base_nanos: int
    nanos: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditedLine:
    """What is credited of one line of an invoice, in whole smallest units, without tax."""

    line_id: str
    nanos: int


class BillingDetailsSet(Event, name="ledger.billing-details-set", version=2, grown_from=1):
    """How a party is named on invoices, and where they are sent.

    party_id: a tenant, or a business unit of it. scheme, due_days, issues_by_itself: of who issues
    invoices: which taxes, in how many days they are due, whether closed months are invoiced by
    themselves.
    """

    party_id: UUID
    tenant_id: TenantId
    details: PartyDetails
    scheme: TaxScheme
    due_days: int
    issues_by_itself: bool
    by_user: UserId
    at: datetime


class InvoiceIssued(Event, name="ledger.invoice-issued", version=2, grown_from=1):
    """A month of an account was invoiced.

    as_of: entries up to that position are in it. exact_nanos: what the journal has of its lines;
    net_nanos: the same rounded once, which is the sum of the lines; total: net and tax.
    """

    issuer_id: TenantId
    invoice_id: UUID
    number: str
    kind: InvoiceKind
    account_id: AccountId
    tenant_id: TenantId
    subscriber_id: SubscriberId | None
    issuer: PartyDetails
    payer: PartyDetails
    period: str
    currency: str
    lines: tuple[InvoiceLine, ...]
    taxes: tuple[TaxTotal, ...]
    exact_nanos: int
    net_nanos: int
    tax_nanos: int
    total_nanos: int
    due_days: int
    as_of: int
    by_user: UserId | None
    at: datetime


class CreditNoteAsked(Event, name="ledger.credit-note-asked"):
    """Somebody asked to credit lines of an invoice; somebody else has to agree."""

    issuer_id: TenantId
    credit_id: UUID
    invoice_id: UUID
    lines: tuple[CreditedLine, ...]
    reason: str
    asked_by: UserId
    at: datetime


class CreditNoteDeclined(Event, name="ledger.credit-note-declined"):
    """A credit note was not issued: somebody declined it, or who asked took it back."""

    issuer_id: TenantId
    credit_id: UUID
    declined_by: UserId
    at: datetime


class CreditNoteIssued(Event, name="ledger.credit-note-issued"):
    """Part or all of an invoice was credited, under a number of the credit notes' own."""

    issuer_id: TenantId
    credit_id: UUID
    invoice_id: UUID
    number: str
    account_id: AccountId
    currency: str
    lines: tuple[CreditedLine, ...]
    taxes: tuple[TaxTotal, ...]
    net_nanos: int
    tax_nanos: int
    total_nanos: int
    reason: str
    asked_by: UserId
    approved_by: UserId
    at: datetime


class DocumentArchived(Event, name="ledger.document-archived"):
    """The file of an invoice or credit note was written once and put away."""

    issuer_id: TenantId
    document_id: UUID
    sha256: str
    bytes: int
    renderer: str
    at: datetime


class InvoiceSent(Event, name="ledger.invoice-sent"):
    """The file of an invoice or credit note was handed to the mail server."""

    issuer_id: TenantId
    document_id: UUID
    email: str
    at: datetime


InvoiceEvent = (
    InvoiceIssued
    | CreditNoteAsked
    | CreditNoteDeclined
    | CreditNoteIssued
    | DocumentArchived
    | InvoiceSent
)
