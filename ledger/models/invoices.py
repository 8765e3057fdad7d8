"""Read models of invoices, credit notes and billing details; and the files that were put away."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import CheckConstraint, F, Q

from ledger.models.money import PERIOD_LENGTH

NUMBER_LENGTH = 40
PAPER_NUMBER_LENGTH = 80


class BillingDetailsRow(models.Model):
    """How a tenant or a business unit is named on invoices. details: `PartyDetails`."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    party_id = models.UUIDField(primary_key=True)
    tenant_id = models.UUIDField(db_index=True)
    details = models.JSONField()
    scheme = models.CharField(max_length=12)
    due_days = models.IntegerField()
    issues_by_itself = models.BooleanField()
    set_at = models.DateTimeField()

    def __str__(self) -> str:
        return str(self.party_id)


class InvoiceRow(models.Model):
    """An invoice as issued. lines, taxes: as in the event. credited_nanos: with tax.

    tenant_id: who pays. as_of: entries up to that position are in it. sha256: of its file, once
    that was put away. sent_to: the address it was sent to.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id", "issuer_id")

    invoice_id = models.UUIDField(primary_key=True)
    number = models.CharField(max_length=NUMBER_LENGTH, unique=True)
    kind = models.CharField(max_length=12)
    issuer_id = models.UUIDField()
    account_id = models.UUIDField()
    tenant_id = models.UUIDField(db_index=True)
    subscriber_id = models.UUIDField(null=True)
    issuer = models.JSONField()
    payer = models.JSONField()
    payer_name = models.CharField(max_length=200)
    period = models.CharField(max_length=PERIOD_LENGTH)
    currency = models.CharField(max_length=3)
    lines = models.JSONField()
    taxes = models.JSONField()
    exact_nanos = models.BigIntegerField()
    net_nanos = models.BigIntegerField()
    tax_nanos = models.BigIntegerField()
    total_nanos = models.BigIntegerField()
    credited_nanos = models.BigIntegerField()
    due_days = models.IntegerField()
    as_of = models.BigIntegerField()
    position = models.BigIntegerField()
    issued_at = models.DateTimeField()
    sha256 = models.CharField(max_length=64)
    bytes = models.IntegerField()
    sent_to = models.CharField(max_length=254)

    class Meta:
        indexes = [models.Index(fields=["account_id", "period"], name="ledger_invoice_by_account")]
        constraints = [
            models.UniqueConstraint(
                fields=["account_id", "period"], name="ledger_one_invoice_a_month"
            ),
            CheckConstraint(
                condition=Q(total_nanos=F("net_nanos") + F("tax_nanos")),
                name="ledger_invoice_adds_up",
            ),
        ]

    def __str__(self) -> str:
        return self.number


class CreditNoteRow(models.Model):
    """A credit note: asked, declined or issued. number: empty until it is issued."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id", "issuer_id")

    credit_id = models.UUIDField(primary_key=True)
    number = models.CharField(max_length=NUMBER_LENGTH)
    state = models.CharField(max_length=10)
    invoice_id = models.UUIDField(db_index=True)
    invoice_number = models.CharField(max_length=NUMBER_LENGTH)
    issuer_id = models.UUIDField()
    tenant_id = models.UUIDField(db_index=True)
    account_id = models.UUIDField()
    currency = models.CharField(max_length=3)
    lines = models.JSONField()
    taxes = models.JSONField()
    net_nanos = models.BigIntegerField()
    tax_nanos = models.BigIntegerField()
    total_nanos = models.BigIntegerField()
    reason = models.CharField(max_length=200)
    asked_by = models.UUIDField()
    asked_at = models.DateTimeField()
    decided_by = models.UUIDField(null=True)
    decided_at = models.DateTimeField(null=True)
    position = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    bytes = models.IntegerField()
    sent_to = models.CharField(max_length=254)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["number"], condition=~Q(number=""), name="ledger_one_credit_note_a_number"
            )
        ]

    def __str__(self) -> str:
        return self.number or f"credit note of {self.invoice_number}, {self.state}"


class PaperRow(models.Model):
    """A statement of a month, or an invoice that the platform issued for an owner.

    kind: `PaperKind`. tenant_id: whose account it is. issuer, party: `PartyDetails`. period: the
    month, or the settlement. lines, taxes: as in the event. total_nanos: the closing of a
    statement. replaces: the number of an earlier one. email: where it is sent.
    """

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    paper_id = models.UUIDField(primary_key=True)
    kind = models.CharField(max_length=12)
    number = models.CharField(max_length=PAPER_NUMBER_LENGTH)
    issuer_id = models.UUIDField()
    account_id = models.UUIDField()
    account_kind = models.CharField(max_length=12)
    account_title = models.CharField(max_length=200)
    tenant_id = models.UUIDField(db_index=True)
    subscriber_id = models.UUIDField(null=True)
    issuer = models.JSONField()
    party = models.JSONField()
    party_name = models.CharField(max_length=200)
    period = models.CharField(max_length=10)
    currency = models.CharField(max_length=3)
    opening_nanos = models.BigIntegerField()
    lines = models.JSONField()
    taxes = models.JSONField()
    tax_nanos = models.BigIntegerField()
    total_nanos = models.BigIntegerField()
    held_nanos = models.BigIntegerField()
    payout_id = models.UUIDField(null=True, db_index=True)
    replaces = models.CharField(max_length=PAPER_NUMBER_LENGTH)
    as_of = models.BigIntegerField()
    position = models.BigIntegerField()
    issued_at = models.DateTimeField()
    email = models.CharField(max_length=254)
    sha256 = models.CharField(max_length=64)
    bytes = models.IntegerField()
    sent_to = models.CharField(max_length=254)

    class Meta:
        indexes = [models.Index(fields=["account_id", "period"], name="ledger_paper_by_account")]
        constraints = [
            models.UniqueConstraint(
                fields=["issuer_id", "number"], name="ledger_one_paper_a_number"
            )
        ]

    def __str__(self) -> str:
        return self.number


class SelfBillingRow(models.Model):
    """Whether an owner agreed that the platform issues its invoices. ended_at: None: it holds."""

    TENANT_COLUMNS: ClassVar[tuple[str, ...]] = ("tenant_id",)

    tenant_id = models.UUIDField(primary_key=True)
    small_business = models.BooleanField()
    wording = models.CharField(max_length=20)
    agreed_by = models.UUIDField()
    agreed_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.tenant_id} since {self.agreed_at:%Y-%m-%d}"


class DocumentFile(models.Model):
    """A file as it was first written. No read model: it is kept, whatever writes files later."""

    document_id = models.UUIDField(primary_key=True)
    sha256 = models.CharField(max_length=64)
    data = models.BinaryField()

    def __str__(self) -> str:
        return str(self.document_id)
