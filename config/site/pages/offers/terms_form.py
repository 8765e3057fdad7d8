"""The form in which an owner changes the terms of an offer that stands: each field as it is now."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django import forms

from config.site.pages.offers.presets import MINUTE, PPM_PER_PERCENT
from listings.domain.changes import TermsChange
from listings.domain.events import ReclaimStep
from listings.domain.terms import (
    GRACE_SECONDS_MAX,
    LEASE_MIN_SECONDS_MAX,
    NOTICE_SECONDS_MAX,
)
from listings.models import OfferRow
from listings.queries import steps_of_row

SECONDS = {"s": 1, "m": MINUTE, "h": 3_600, "d": 86_400}
STEP = re.compile(r"([0-9]{1,7})\s*([smhd])\s*=\s*([0-9]{1,3}(?:\.[0-9]{1,4})?)\s*%?")
"""A notice and what a reclaim with so much of it pays, in percent: 24h=5."""
PLACES = 4
"""Of minutes and percent: enough for each whole second and millionth that the API takes."""


class LengthField(forms.DecimalField):
    """A length of time in minutes, read as whole seconds."""

    def __init__(self, *, seconds_max: int, **kwargs: Any) -> None:
        most = Decimal(seconds_max) / MINUTE
        super().__init__(min_value=0, max_value=most, decimal_places=PLACES, **kwargs)
        self.widget.attrs["step"] = "any"

    def prepare_value(self, value: Any) -> Any:
        """Write a length back as minutes."""
        if isinstance(value, timedelta):
            return _written(Decimal(value // timedelta(seconds=1)) / MINUTE)
        return value

    def clean(self, value: Any) -> int | None:
        """Return the length in seconds; None where nothing is said."""
        minutes = super().clean(value)
        return None if minutes is None else round(minutes * MINUTE)


class TermsForm(forms.Form):
    """What leases to come are granted on."""

    notice = LengthField(label="Notice of a reclaim", seconds_max=NOTICE_SECONDS_MAX)
    grace = forms.IntegerField(
        label="Grace period", min_value=0, max_value=GRACE_SECONDS_MAX, required=False
    )
    reclaim_fee = forms.DecimalField(
        label="Reclaim fee", min_value=0, max_value=100, decimal_places=PLACES
    )
    steps = forms.CharField(label="Fee with longer notice", required=False, max_length=200)
    lease_min = LengthField(label="Shortest lease", seconds_max=LEASE_MIN_SECONDS_MAX)
    workload_kinds = forms.CharField(label="Workloads", required=False, max_length=1_200)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reclaim_fee"].widget.attrs["step"] = "any"

    @classmethod
    def of(cls, row: OfferRow) -> TermsForm:
        """Return the form as an offer stands."""
        return cls(
            initial={
                "notice": timedelta(seconds=row.notice_seconds),
                "grace": row.grace_seconds,
                "reclaim_fee": _percent(row.reclaim_fee_ppm),
                "steps": "; ".join(
                    f"{_length(step.notice_seconds)}={_percent(step.fee_ppm)}"
                    for step in steps_of_row(row)
                ),
                "lease_min": timedelta(seconds=row.lease_min_seconds),
                "workload_kinds": ", ".join(row.workload_kinds),
            }
        )

    def clean_steps(self) -> tuple[ReclaimStep, ...]:
        """Read `1h=5; 24h=0`: less to pay with more notice."""
        said = [word.strip() for word in self.cleaned_data["steps"].split(";") if word.strip()]
        found = [STEP.fullmatch(word) for word in said]
        if not all(found):
            raise forms.ValidationError(
                "Write notice and percent, such as 1h=5; 24h=0, with a semicolon between."
            )
        return tuple(
            ReclaimStep(int(step[1]) * SECONDS[step[2]], int(Decimal(step[3]) * PPM_PER_PERCENT))
            for step in found
            if step is not None
        )

    def change(self) -> TermsChange:
        """Return what the form says: all of it, also what it says as it was."""
        data = self.cleaned_data
        return TermsChange(
            notice_seconds=data["notice"],
            grace_seconds=data["grace"],
            reclaim_fee_ppm=int(data["reclaim_fee"] * PPM_PER_PERCENT),
            reclaim_steps=data["steps"],
            lease_min_seconds=data["lease_min"],
            workload_kinds=tuple(data["workload_kinds"].replace(",", " ").split()),
        )


def _percent(ppm: int) -> str:
    return _written(Decimal(ppm) / PPM_PER_PERCENT)


def _written(number: Decimal) -> str:
    """Write a number to four places, without those that say nothing."""
    text = f"{number:.{PLACES}f}"
    return text.rstrip("0").rstrip(".")


def _length(seconds: int) -> str:
    """Write a length in the largest unit of which it is a whole number."""
    unit = next(unit for unit in reversed(SECONDS) if seconds % SECONDS[unit] == 0)
    return f"{seconds // SECONDS[unit]}{unit}"
