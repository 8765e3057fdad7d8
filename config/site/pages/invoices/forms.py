"""Forms of invoices: what to credit, and how a party is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms

from config.site.forms.fields import MoneyField
from ledger.domain.billing_details import DUE_DAYS_DEFAULT, DUE_DAYS_MAX, NAME_LENGTH_MAX
from ledger.domain.holds import TEXT_LENGTH_MAX
from ledger.domain.invoice_events import CreditedLine, PartyDetails
from ledger.domain.money import nanos_of
from ledger.domain.refusal import Refusal

SCHEMES = (("none", "No tax"), ("eu-vat", "EU VAT"))
AMOUNT = "amount-"


class CreditForm(forms.Form):
    """Why, and how much of each line; nothing in any line is all that is left of the invoice."""

    reason = forms.CharField(label="Reason", max_length=TEXT_LENGTH_MAX)

    def __init__(self, *given: Any, lines: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(*given)
        self.line_ids = [line["line_id"] for line in lines if line["nanos"] > 0]
        for line in lines:
            if line["nanos"] > 0:
                self.fields[AMOUNT + line["line_id"]] = forms.CharField(
                    label=line["title"], required=False, max_length=20
                )

    @property
    def amounts(self) -> list[Any]:
        """Return the fields of the lines."""
        return [self[AMOUNT + line_id] for line_id in self.line_ids]

    def clean(self) -> dict[str, Any]:
        """Read the amounts as nano-units."""
        cleaned = super().clean() or {}
        chosen = []
        for line_id in self.line_ids:
            text = (cleaned.get(AMOUNT + line_id) or "").strip()
            if not text:
                continue
            try:
                chosen.append(CreditedLine(line_id=line_id, nanos=nanos_of(text)))
            except Refusal as refusal:
                self.add_error(AMOUNT + line_id, refusal.message())
        cleaned["lines"] = chosen
        return cleaned


class PaymentForm(forms.Form):
    """A transfer that came in for an invoice. amount: nothing for all that is owed."""

    reference = forms.CharField(label="Bank's reference", max_length=TEXT_LENGTH_MAX)

    def __init__(self, *given: Any, currency: str) -> None:
        super().__init__(*given)
        self.fields["amount"] = MoneyField(currency=currency, label="Amount", required=False)


class WriteOffForm(forms.Form):
    """Why what is owed is given up."""

    reason = forms.CharField(label="Reason", max_length=TEXT_LENGTH_MAX)


class DetailsForm(forms.Form):
    """How a party is printed on invoices."""

    name = forms.CharField(label="Legal name", max_length=NAME_LENGTH_MAX)
    address = forms.CharField(
        label="Address", required=False, max_length=800, widget=forms.Textarea(attrs={"rows": 4})
    )
    country = forms.CharField(label="Country", required=False, max_length=2)
    vat_id = forms.CharField(label="VAT id", required=False, max_length=40)
    email = forms.CharField(label="Address that invoices are mailed to", required=False)
    purchase_order = forms.CharField(label="Purchase order", required=False)

    def details(self) -> PartyDetails:
        """Return what was entered."""
        said = self.cleaned_data
        return PartyDetails(
            name=said["name"],
            address=tuple(said["address"].splitlines()),
            country=said["country"],
            vat_id=said["vat_id"],
            email=said["email"],
            purchase_order=said["purchase_order"],
        )


class IssuerForm(DetailsForm):
    """The same for the platform, which issues invoices."""

    scheme = forms.ChoiceField(label="Tax", choices=SCHEMES, required=False)
    due_days = forms.IntegerField(
        label="Days until an invoice is due",
        min_value=0,
        max_value=DUE_DAYS_MAX,
        initial=DUE_DAYS_DEFAULT,
    )
    issues_by_itself = forms.BooleanField(
        label="Issue the invoices of closed months by itself", required=False
    )
