"""Forms about organisations: themselves, their units, people, invitations, accounts and money."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from django import forms

from config.site.forms.fields import MoneyField, TokenField
from config.site.parts import refusals
from ledger.domain.ids import SubscriberId
from ledger.domain.parties import COST_CENTRE_LENGTH_MAX, ROLES, TITLE_LENGTH_MAX
from ledger.domain.refusal import Refusal
from ledger.inviting import can_mail

UNITS_SHOWN_MAX = 1_000
REFERENCE_LENGTH_MAX = 200

ROLES_SAID: Mapping[str, str] = {
    "owner": "owner: lists GPUs",
    "operator": "operator: looks after people, units and rules",
    "consumer": "consumer: bids for GPU time",
    "finance": "finance: sees and exports money",
    "auditor": "auditor: reads everything",
}
DAYS = (("1", "a day"), ("7", "7 days"), ("30", "30 days"))

FIELD_OF: Mapping[str, str] = {
    "SlugUnreadable": "slug",
    "SlugTaken": "slug",
    "TitleMissing": "title",
    "CurrencyUnknown": "currency",
    "CostCentreUnreadable": "cost_centre",
    "CostCentreTaken": "cost_centre",
    "EmailUnreadable": "email",
    "AlreadyMember": "email",
    "MailNotSetUp": "send",
    "MailNotSent": "email",
    "RolesUnknown": "roles",
    "LastOperator": "roles",
    "SubscriberUnknown": "unit",
    "AccountOpenedOtherwise": "unit",
    "PrepaidUnlimited": "overdraft",
    "OverdraftNegative": "overdraft",
    "BudgetRaisedByPlatformOnly": "overdraft",
    "BudgetBelowUse": "overdraft",
    "AmountNotPositive": "amount",
    "AmountTooLarge": "amount",
    "TextUnreadable": "reference",
    "PaymentUnnamed": "reference",
    "PaymentRecorded": "reference",
}
"""Beside which field a refusal is told; others are told above the form."""


class OrganisationForm(forms.Form):
    """A new organisation."""

    token = TokenField()
    title = forms.CharField(label="Name", max_length=TITLE_LENGTH_MAX)
    slug = forms.CharField(label="Short name", max_length=40)
    currency = forms.CharField(label="Currency", max_length=3)


class UnitForm(forms.Form):
    """A new business unit."""

    token = TokenField()
    title = forms.CharField(label="Name", max_length=TITLE_LENGTH_MAX)
    cost_centre = forms.CharField(label="Cost centre", max_length=COST_CENTRE_LENGTH_MAX)


class RolesForm(forms.Form):
    """What a member may do, and for which unit they bid."""

    token = TokenField()
    roles = forms.MultipleChoiceField(
        label="May act as",
        choices=[(role, ROLES_SAID[role]) for role in ROLES],
        widget=forms.CheckboxSelectMultiple(),
        error_messages={"required": "Choose at least one role."},
    )
    unit = forms.ChoiceField(label="Bids for", required=False)

    def __init__(self, *args: Any, units: Mapping[Any, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        unit = self.fields["unit"]
        assert isinstance(unit, forms.ChoiceField)
        unit.choices = [("", "no unit"), *((str(key), title) for key, title in units.items())]

    def subscriber_id(self) -> SubscriberId | None:
        """Return the unit that was chosen."""
        chosen = self.cleaned_data["unit"]
        return SubscriberId(UUID(chosen)) if chosen else None


class InviteForm(RolesForm):
    """Somebody to invite, by a link or by mail."""

    email = forms.EmailField(label="E-mail address", max_length=254)
    days = forms.ChoiceField(label="Link works for", choices=DAYS, initial="7")
    send = forms.ChoiceField(
        label="Send", choices=[("mail", "by mail"), ("link", "I send the link myself")]
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not can_mail():
            del self.fields["send"]

    def life(self) -> timedelta:
        """Return how long the link works."""
        return timedelta(days=int(self.cleaned_data["days"]))

    def is_by_mail(self) -> bool:
        """Tell if the link goes by mail."""
        return bool(self.cleaned_data.get("send") == "mail")


class AccountForm(forms.Form):
    """An account that pays for a business unit's use."""

    token = TokenField()
    unit = forms.ChoiceField(label="Of the unit")
    kind = forms.ChoiceField(
        label="Kind",
        choices=[
            ("prepaid", "prepaid: money comes in first"),
            ("chargeback", "chargeback: a cost centre, with a budget or without"),
        ],
    )

    def __init__(self, *args: Any, units: Mapping[Any, str], currency: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        unit = self.fields["unit"]
        assert isinstance(unit, forms.ChoiceField)
        unit.choices = [(str(key), title) for key, title in units.items()]
        self.fields["overdraft"] = MoneyField(
            label="Credit limit", currency=currency, required=False, initial="0.00"
        )


class FundsForm(forms.Form):
    """Money that came in."""

    token = TokenField()

    def __init__(self, *args: Any, currency: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["amount"] = MoneyField(label="Amount", currency=currency)
        self.fields["reference"] = forms.CharField(
            label="Reference", max_length=REFERENCE_LENGTH_MAX
        )


class BudgetForm(forms.Form):
    """How far an account may go below zero."""

    token = TokenField()

    def __init__(self, *args: Any, currency: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["overdraft"] = MoneyField(
            label="Credit limit", currency=currency, required=False
        )


def tell(form: forms.Form, refusal: Refusal) -> None:
    """Say a refusal beside the field that it is about, or above the form."""
    field = FIELD_OF.get(type(refusal).__name__)
    told = " ".join([refusals.whole(refusal), *(f"({each})" for each in _more(refusal))])
    form.add_error(field if field in form.fields else None, told)


def _more(refusal: Refusal) -> list[str]:
    """Return what of a refusal's details a person needs to mend what they typed."""
    return [str(refusal.details[name]) for name in ("in_use", "reasons") if name in refusal.details]
