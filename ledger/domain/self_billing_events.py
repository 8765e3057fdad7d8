"""What happens to invoices that the platform issues for owners: streams selfbilling-<owner>."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.events import Posting
from ledger.domain.ids import AccountId, EntryId, TenantId, UserId
from ledger.domain.invoice_events import InvoiceLine, PartyDetails, TaxTotal
from ledger.domain.money import Money
from ledger.domain.paper_events import PaperArchived, PaperSent


class SelfBillingAgreed(Event, name="ledger.self-billing-agreed"):
    """An owner agreed that the platform issues its invoices, from now on.

    small_business: it charges no VAT, by the scheme for small enterprises. wording: which text it
    agreed to.
    """

    tenant_id: TenantId
    small_business: bool
    wording: str
    by_user: UserId
    at: datetime


class SelfBillingEnded(Event, name="ledger.self-billing-ended"):
    """An owner issues its invoices itself again; what was issued stands."""

    tenant_id: TenantId
    by_user: UserId
    at: datetime


class SelfBilledInvoiceIssued(Event, name="ledger.self-billed-invoice-issued"):
    """The platform issued an owner's invoice to itself for what one settlement paid.

    settlement, payout_id: which one. exact_nanos: what the journal has of the lines; carried_nanos:
    what the invoice before was rounded by, which this one makes good; net: both together, rounded.
    A total below zero is owed to the platform.
    """

    tenant_id: TenantId
    platform_id: TenantId
    account_id: AccountId
    invoice_id: UUID
    number: str
    payout_id: UUID
    settlement: str
    issuer: PartyDetails
    payer: PartyDetails
    currency: str
    lines: tuple[InvoiceLine, ...]
    taxes: tuple[TaxTotal, ...]
    exact_nanos: int
    carried_nanos: int
    net_nanos: int
    tax_nanos: int
    total_nanos: int
    agreed_at: datetime
    at: datetime


class OwnerTaxAdded(Event, name="ledger.owner-tax-added"):
    """The tax of a self-billed invoice came to the owner's earnings, and goes with its next payout.

    A journal entry of kind `owner-tax`. `account_id`, the owner's earnings, up; the platform's
    account of taxes down. Below zero where the invoice is. The postings sum to zero.
    """

    account_id: AccountId
    tenant_id: TenantId
    entry_id: EntryId
    invoice_id: UUID
    number: str
    money: Money
    postings: tuple[Posting, ...]
    at: datetime


SelfBillingEvent = (
    SelfBillingAgreed
    | SelfBillingEnded
    | SelfBilledInvoiceIssued
    | OwnerTaxAdded
    | PaperArchived
    | PaperSent
)
