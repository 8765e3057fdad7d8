"""What the API of invoices is asked with, and what it answers."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from ledger.domain.billing_details import DUE_DAYS_DEFAULT, DUE_DAYS_MAX, NAME_LENGTH_MAX
from ledger.domain.holds import TEXT_LENGTH_MAX
from ledger.domain.invoice_events import PartyDetails
from ledger.invoicing import Refused
from ledger.models import BillingDetailsRow, CreditNoteRow, InvoiceRow
from ledger.rest import AmountField, Body, CountField, MomentField, TextField
from ledger.rest.schema import WrittenAt

LINES_MAX = 500


class IssueInvoices(Body):
    """Which month to invoice; account_id: of that account alone."""

    period = TextField(max_length=7)
    account_id = serializers.UUIDField(required=False, allow_null=True)


class CreditLine(Body):
    """How much of a line of the invoice to credit, without tax."""

    line_id = TextField(max_length=12)
    amount = AmountField()


class AskCreditNote(Body):
    """What to credit, and why. lines: left out for all that is left of the invoice."""

    reason = TextField(max_length=TEXT_LENGTH_MAX)
    lines = CreditLine(many=True, required=False, max_length=LINES_MAX)  # type: ignore[call-arg]  # of a list


class SetBillingDetails(Body):
    """How a party is named on invoices. subscriber_id: a business unit; without, the organisation.

    scheme, due_days, issues_by_itself: of the platform alone, which issues invoices.
    """

    subscriber_id = serializers.UUIDField(required=False, allow_null=True)
    name = TextField(max_length=NAME_LENGTH_MAX)
    address = serializers.ListField(
        child=TextField(max_length=NAME_LENGTH_MAX), required=False, max_length=12
    )
    country = TextField(max_length=2, required=False, allow_blank=True)
    vat_id = TextField(max_length=40, required=False, allow_blank=True)
    email = TextField(max_length=254, required=False, allow_blank=True)
    purchase_order = TextField(max_length=120, required=False, allow_blank=True)
    scheme = serializers.ChoiceField(["none", "eu-vat"], required=False)
    due_days = CountField(value_max=DUE_DAYS_MAX, required=False)
    issues_by_itself = serializers.BooleanField(required=False)

    @staticmethod
    def terms(asked: dict[str, Any], *, issues: bool) -> dict[str, Any]:
        """Return what the command takes. issues: the party issues invoices itself."""
        own = asked if issues else {}
        return {
            "details": PartyDetails(
                name=asked["name"],
                address=tuple(asked.get("address") or ()),
                country=asked.get("country", ""),
                vat_id=asked.get("vat_id", ""),
                email=asked.get("email", ""),
                purchase_order=asked.get("purchase_order", ""),
            ),
            "scheme": own.get("scheme", "none"),
            "due_days": own.get("due_days", DUE_DAYS_DEFAULT),
            "issues_by_itself": own.get("issues_by_itself", False),
        }


class PrintedPartyShape(serializers.Serializer[Any]):
    """A party as it is printed."""

    name = serializers.CharField()
    address = serializers.ListField(child=serializers.CharField())
    country = serializers.CharField(allow_blank=True)
    vat_id = serializers.CharField(allow_blank=True)
    email = serializers.CharField(allow_blank=True)
    purchase_order = serializers.CharField(allow_blank=True, required=False)


class BillingDetailsShape(serializers.Serializer[Any]):
    """What is on record of a party: an organisation or a business unit."""

    party_id = serializers.UUIDField()
    details = PrintedPartyShape()
    scheme = serializers.CharField()
    due_days = serializers.IntegerField()
    issues_by_itself = serializers.BooleanField()
    set_at = MomentField()


class LineShape(serializers.Serializer[Any]):
    """A line. exact: what the journal has; amount: the same in whole cents."""

    line_id = serializers.CharField()
    category = serializers.CharField()
    sku = serializers.CharField(allow_blank=True)
    title = serializers.CharField()
    quantity = serializers.CharField(allow_blank=True)
    unit = serializers.CharField(allow_blank=True)
    period = serializers.CharField()
    corrects = serializers.CharField(allow_blank=True)
    exact = AmountField()
    amount = AmountField()
    tax = serializers.CharField(allow_blank=True)


class TaxShape(serializers.Serializer[Any]):
    """Tax on the lines of one code."""

    code = serializers.CharField()
    title = serializers.CharField()
    rate_ppm = serializers.IntegerField()
    base = AmountField()
    amount = AmountField()
    note = serializers.CharField(allow_blank=True)


class InvoiceShape(serializers.Serializer[Any]):
    """An invoice. lines, taxes: of a single one alone. credited: by credit notes, with tax."""

    invoice_id = serializers.UUIDField()
    number = serializers.CharField()
    kind = serializers.CharField()
    account_id = serializers.UUIDField()
    tenant_id = serializers.UUIDField()
    subscriber_id = serializers.UUIDField(allow_null=True)
    period = serializers.CharField()
    currency = serializers.CharField()
    issuer = PrintedPartyShape()
    payer = PrintedPartyShape()
    exact = AmountField()
    net = AmountField()
    tax = AmountField()
    total = AmountField()
    credited = AmountField()
    due_days = serializers.IntegerField()
    issued_at = MomentField()
    sha256 = serializers.CharField(allow_blank=True)
    sent_to = serializers.CharField(allow_blank=True)
    lines = LineShape(many=True, required=False)
    taxes = TaxShape(many=True, required=False)


class CreditedShape(serializers.Serializer[Any]):
    """What is credited of a line, without tax."""

    line_id = serializers.CharField()
    amount = AmountField()


class CreditNoteShape(serializers.Serializer[Any]):
    """A credit note: asked, declined or issued. number: empty until it is issued."""

    credit_id = serializers.UUIDField()
    number = serializers.CharField(allow_blank=True)
    state = serializers.CharField()
    invoice_number = serializers.CharField()
    account_id = serializers.UUIDField()
    currency = serializers.CharField()
    lines = CreditedShape(many=True)
    taxes = TaxShape(many=True)
    net = AmountField()
    tax = AmountField()
    total = AmountField()
    reason = serializers.CharField()
    asked_by = serializers.UUIDField()
    asked_at = MomentField()
    decided_by = serializers.UUIDField(allow_null=True)
    decided_at = MomentField(allow_null=True)
    sha256 = serializers.CharField(allow_blank=True)


class RefusedShape(serializers.Serializer[Any]):
    """An account that could not be invoiced, and why."""

    account_id = serializers.UUIDField()
    title = serializers.CharField()
    code = serializers.CharField()
    message = serializers.CharField()


class InvoicesWritten(WrittenAt):
    """What came of it. left: accounts still to be invoiced."""

    issued = serializers.ListField(child=serializers.UUIDField())
    refused = RefusedShape(many=True)
    left = serializers.IntegerField()


class CreditNoteWritten(WrittenAt):
    """A credit note that was asked for, and the position to read it at."""

    credit_id = serializers.UUIDField()


def invoice_shown(row: InvoiceRow) -> dict[str, Any]:
    """Return an invoice as answered in a list."""
    return {
        "invoice_id": row.pk,
        "number": row.number,
        "kind": row.kind,
        "account_id": row.account_id,
        "tenant_id": row.tenant_id,
        "subscriber_id": row.subscriber_id,
        "period": row.period,
        "currency": row.currency,
        "issuer": row.issuer,
        "payer": row.payer,
        "exact": _written(row.exact_nanos),
        "net": _written(row.net_nanos),
        "tax": _written(row.tax_nanos),
        "total": _written(row.total_nanos),
        "credited": _written(row.credited_nanos),
        "due_days": row.due_days,
        "issued_at": MomentField().to_representation(row.issued_at),
        "sha256": row.sha256,
        "sent_to": row.sent_to,
    }


def detail_shown(row: InvoiceRow) -> dict[str, Any]:
    """Return an invoice with its lines."""
    lines = [
        {
            **{key: line[key] for key in LineShape().fields if key in line},
            "exact": _written(line["exact_nanos"]),
            "amount": _written(line["nanos"]),
        }
        for line in row.lines
    ]
    return {**invoice_shown(row), "lines": lines, "taxes": taxes_shown(row.taxes)}


def note_shown(row: CreditNoteRow) -> dict[str, Any]:
    """Return a credit note as answered."""
    moment = MomentField()
    return {
        "credit_id": row.pk,
        "number": row.number,
        "state": row.state,
        "invoice_number": row.invoice_number,
        "account_id": row.account_id,
        "currency": row.currency,
        "lines": [
            {"line_id": each["line_id"], "amount": _written(each["nanos"])} for each in row.lines
        ],
        "taxes": taxes_shown(row.taxes),
        "net": _written(row.net_nanos),
        "tax": _written(row.tax_nanos),
        "total": _written(row.total_nanos),
        "reason": row.reason,
        "asked_by": row.asked_by,
        "asked_at": moment.to_representation(row.asked_at),
        "decided_by": row.decided_by,
        "decided_at": row.decided_at and moment.to_representation(row.decided_at),
        "sha256": row.sha256,
    }


def details_said(row: BillingDetailsRow) -> dict[str, Any]:
    """Return billing details as answered."""
    return {
        "party_id": row.pk,
        "details": row.details,
        "scheme": row.scheme,
        "due_days": row.due_days,
        "issues_by_itself": row.issues_by_itself,
        "set_at": MomentField().to_representation(row.set_at),
    }


def refused_shown(refused: Refused) -> dict[str, Any]:
    """Return why an account could not be invoiced."""
    return {
        "account_id": refused.account_id,
        "title": refused.title,
        "code": refused.refusal.code,
        "message": refused.refusal.message(),
    }


def taxes_shown(taxes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the taxes of a document as answered."""
    return [
        {
            "code": tax["code"],
            "title": tax["title"],
            "rate_ppm": tax["rate_ppm"],
            "base": _written(tax["base_nanos"]),
            "amount": _written(tax["nanos"]),
            "note": tax["note"],
        }
        for tax in taxes
    ]


def _written(nanos: int) -> str:
    return AmountField().to_representation(nanos)
