"""Forms of disputes: to contest a charge, to say something about it, to decide."""

from __future__ import annotations

from typing import Any

from django import forms

from config.site.forms.fields import HoursField, MoneyField
from ledger.domain.disputes import SAID_LENGTH_MAX
from ledger.domain.holds import TEXT_LENGTH_MAX

CHARGES_MAX = 100
"""Charges of a lease that are offered, the newest."""


class ContestForm(forms.Form):
    """Which charge of a lease is contested, what of it is not, and why."""

    entry_id = forms.ChoiceField(label="Charge")
    used = HoursField(label="GPU-hours that were used")
    reason = forms.CharField(label="Reason", max_length=TEXT_LENGTH_MAX)

    def __init__(self, *args: Any, charges: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["entry_id"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = charges


class SayForm(forms.Form):
    """A statement."""

    text = forms.CharField(
        label="Statement", max_length=SAID_LENGTH_MAX, widget=forms.Textarea(attrs={"rows": 3})
    )


class DecideForm(forms.Form):
    """What becomes of it. part: of the contested amount; empty: all of it."""

    reason = forms.CharField(label="Reason", max_length=TEXT_LENGTH_MAX)

    def __init__(self, *args: Any, currency: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["part"] = MoneyField(label="Give back only", currency=currency, required=False)
