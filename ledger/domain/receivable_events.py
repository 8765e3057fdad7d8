"""What becomes of an invoice once it is issued: stream receivable-<invoice_id>.

The payment itself, and what is written off, are entries on the account's own stream. Whether an
account has credit is on its stream, too, since it decides on bids.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.events import Posting
from ledger.domain.ids import AccountId, EntryId, UserId
from ledger.domain.money import Money

Left = Literal["voided", "uncollectible", "paid-elsewhere"]
"""Why the payment service does not collect an invoice any more."""


class InvoiceHandedOver(Event, name="ledger.invoice-handed-over"):
    """The payment service has an invoice and sent it to who pays.

    reference: its id there. url: where it can be paid.
    """

    invoice_id: UUID
    account_id: AccountId
    reference: str
    url: str
    at: datetime


class InvoiceNotHandedOver(Event, name="ledger.invoice-not-handed-over"):
    """The payment service does not take an invoice, and says why: it is paid by transfer."""

    invoice_id: UUID
    account_id: AccountId
    reason: str
    at: datetime


class InvoicePaid(Event, name="ledger.invoice-paid"):
    """A payment came in for an invoice: in full, or a part of it.

    entry_id: the journal's `funds` entry. reference: what the bank or the payment service calls
    it. by_user: who entered it; None: the payment service confirmed it.
    """

    invoice_id: UUID
    account_id: AccountId
    number: str
    entry_id: EntryId
    money: Money
    reference: str
    by_user: UserId | None
    at: datetime


class InvoicePaymentFailed(Event, name="ledger.invoice-payment-failed"):
    """A try to pay an invoice at the payment service came to nothing; it can be tried again."""

    invoice_id: UUID
    account_id: AccountId
    number: str
    reason: str
    at: datetime


class InvoicePaymentTakenBack(Event, name="ledger.invoice-payment-taken-back"):
    """A payer's bank took back a payment of an invoice, or a part of it: that is owed again.

    dispute: its id at the payment service. reference: of the payment. entry_id: the journal's
    `dispute` entry.
    """

    invoice_id: UUID
    account_id: AccountId
    number: str
    dispute: str
    reference: str
    entry_id: EntryId
    money: Money
    reason: str
    at: datetime


class InvoicePaymentDecided(Event, name="ledger.invoice-payment-decided"):
    """The bank decided about what it took back. won: it is ours again, and is not owed."""

    invoice_id: UUID
    account_id: AccountId
    number: str
    dispute: str
    money: Money
    won: bool
    at: datetime


class CollectionEnded(Event, name="ledger.invoice-collection-ended"):
    """The payment service collects an invoice no longer. What is owed is owed still."""

    invoice_id: UUID
    account_id: AccountId
    number: str
    why: Left
    at: datetime


class CollectionLowered(Event, name="ledger.invoice-collection-lowered"):
    """The payment service collects no more of an invoice than is still owed: `left`.

    What was credited, or paid in another way, was taken off there.
    """

    invoice_id: UUID
    account_id: AccountId
    number: str
    left: Money
    at: datetime


class InvoiceOverdue(Event, name="ledger.invoice-overdue"):
    """An invoice was not paid in full by the day it was due. left: what is still owed."""

    invoice_id: UUID
    account_id: AccountId
    number: str
    due_at: datetime
    left: Money
    blocks_at: datetime
    at: datetime


class WriteOffAsked(Event, name="ledger.write-off-asked"):
    """Somebody asked to give up what is owed of an invoice; somebody else has to agree."""

    invoice_id: UUID
    account_id: AccountId
    write_off_id: UUID
    number: str
    money: Money
    reason: str
    asked_by: UserId
    at: datetime


class WriteOffDeclined(Event, name="ledger.write-off-declined"):
    """What is owed was not given up: somebody declined, or who asked took it back."""

    invoice_id: UUID
    account_id: AccountId
    write_off_id: UUID
    declined_by: UserId
    at: datetime


class WriteOffApproved(Event, name="ledger.write-off-approved"):
    """Somebody else agreed to give up what is owed of an invoice."""

    invoice_id: UUID
    account_id: AccountId
    write_off_id: UUID
    money: Money
    approved_by: UserId
    at: datetime


ReceivableEvent = (
    InvoiceHandedOver
    | InvoiceNotHandedOver
    | InvoicePaid
    | InvoicePaymentFailed
    | InvoicePaymentTakenBack
    | InvoicePaymentDecided
    | CollectionEnded
    | CollectionLowered
    | InvoiceOverdue
    | WriteOffAsked
    | WriteOffDeclined
    | WriteOffApproved
)


# --- on the account ---------------------------------------------------------------------------


class InvoiceWrittenOff(Event, name="ledger.invoice-written-off"):
    """What was owed of an invoice is given up, by two people. The postings sum to zero.

    `account_id` up, the platform's `bad-debts` down. number: of the invoice, which stays as it is.
    """

    account_id: AccountId
    entry_id: EntryId
    invoice_id: UUID
    number: str
    reason: str
    money: Money
    postings: tuple[Posting, ...]
    at: datetime


class CreditStopped(Event, name="ledger.credit-stopped"):
    """An invoice is overdue for so long that the account takes no new bids. Leases go on."""

    account_id: AccountId
    invoice_id: UUID
    number: str
    at: datetime


class CreditResumed(Event, name="ledger.credit-resumed"):
    """That invoice is settled: it stands in the way of bids no longer."""

    account_id: AccountId
    invoice_id: UUID
    number: str
    at: datetime


CreditEvent = CreditStopped | CreditResumed
