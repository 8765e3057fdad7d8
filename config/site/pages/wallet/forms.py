"""What is typed on the page of a wallet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms

from config.site.forms.fields import MoneyField, TokenField
from ledger.domain.holds import TEXT_LENGTH_MAX
from ledger.models import WalletMethodRow

ON_A_PAGE = ("", "Another card, on Stripe's page")


class TopUpForm(forms.Form):
    """How much is added, and by which card."""

    token = TokenField()

    def __init__(
        self, *args: Any, currency: str, methods: Iterable[WalletMethodRow], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.fields["amount"] = MoneyField(currency=currency, label="Amount", initial="100.00")
        choices = [*((each.method, each.label) for each in methods), ON_A_PAGE]
        self.fields["method"] = forms.ChoiceField(
            label="Paid with", choices=choices, required=False
        )


class AutomaticForm(forms.Form):
    """When a wallet tops itself up, by how much, with which card."""

    def __init__(
        self, *args: Any, currency: str, methods: Iterable[WalletMethodRow], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.fields["below"] = MoneyField(currency=currency, label="When less is available than")
        self.fields["amount"] = MoneyField(currency=currency, label="Add")
        self.fields["most_per_day"] = MoneyField(currency=currency, label="At most on a day")
        self.fields["method"] = forms.ChoiceField(
            label="Paid with", choices=[(each.method, each.label) for each in methods]
        )


class RefundForm(forms.Form):
    """How much goes back, and why."""

    token = TokenField()

    def __init__(self, *args: Any, currency: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["amount"] = MoneyField(currency=currency, label="Amount")
        self.fields["reason"] = forms.CharField(label="Reason", max_length=TEXT_LENGTH_MAX)
