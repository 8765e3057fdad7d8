"""Form fields that turn what people type into the market's own values, or say why not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django import forms

from config.site.parts import refusals
from ledger.domain.money import Money, Rate, decimal_of, nanos_of
from ledger.domain.refusal import Refusal


class AmountField(forms.CharField):
    """A decimal amount, read as nano-units without ever being a float."""

    def __init__(self, *, currency: str, **kwargs: Any) -> None:
        widget = forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"})
        super().__init__(widget=kwargs.pop("widget", widget), max_length=40, **kwargs)
        self.currency = currency

    def nanos(self, value: Any) -> int:
        """Return the amount in nano-units, or fail with the refusal's own words."""
        try:
            return nanos_of(super().clean(value))
        except Refusal as refusal:
            raise forms.ValidationError(refusals.whole(refusal), code=refusal.code) from refusal


class RateField(AmountField):
    """A price per GPU-hour."""

    def prepare_value(self, value: Any) -> Any:
        """Write a price back as it would be typed."""
        return decimal_of(value.nanos_per_gpu_hour) if isinstance(value, Rate) else value

    def clean(self, value: Any) -> Rate:
        """Return the price."""
        return Rate(self.nanos(value), self.currency)


class MoneyField(AmountField):
    """An amount; one that need not be given is None."""

    def prepare_value(self, value: Any) -> Any:
        """Write an amount back as it would be typed."""
        return decimal_of(value.nanos) if isinstance(value, Money) else value

    def clean(self, value: Any) -> Money | None:
        """Return the amount."""
        if not self.required and value in self.empty_values:
            return None
        return Money(self.nanos(value), self.currency)


class MomentField(forms.DateTimeField):
    """A wall time in the reader's zone; one that a clock change skips or repeats is refused.

    Written as everywhere on the site, with 24 hours: browsers would show it in their own way.
    """

    is_moment = True

    def __init__(self, **kwargs: Any) -> None:
        attrs = {
            "placeholder": "2026-11-29 14:30",
            "pattern": r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2})?",
            "title": "A day and a time, such as 2026-11-29 14:30",
            "autocomplete": "off",
        }
        super().__init__(
            widget=forms.DateTimeInput(attrs=attrs, format="%Y-%m-%d %H:%M"),
            input_formats=[
                f"%Y-%m-%d{between}%H:%M{seconds}" for between in " T" for seconds in ("", ":%S")
            ],
            **kwargs,
        )


class HoursField(forms.DecimalField):
    """A length of time in hours, to the minute; read as a timedelta."""

    def __init__(self, **kwargs: Any) -> None:
        widget = forms.TextInput(attrs={"inputmode": "decimal", "autocomplete": "off"})
        super().__init__(widget=widget, max_digits=8, decimal_places=4, min_value=0, **kwargs)

    def prepare_value(self, value: Any) -> Any:
        """Write a length back as hours."""
        if isinstance(value, timedelta):
            return f"{value.total_seconds() / 3600:.4f}".rstrip("0").rstrip(".")
        return value

    def clean(self, value: Any) -> timedelta | None:
        """Return the length in whole seconds; None where none need be given."""
        hours = super().clean(value)
        if hours is None:
            return None
        return timedelta(seconds=round(hours * 3600))


class TokenField(forms.UUIDField):
    """Made with the form and sent back by it: the id of what the form asks for."""

    def __init__(self) -> None:
        super().__init__(widget=forms.HiddenInput(), initial=uuid4)

    def clean(self, value: Any) -> UUID:
        """Return the id."""
        token = super().clean(value)
        assert isinstance(token, UUID)
        return token
