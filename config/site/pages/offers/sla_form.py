"""What an owner promises of an offer's service, as a form."""

from __future__ import annotations

import re
from decimal import Decimal

from django import forms

from listings.domain.sla import PPM, START_BY_SECONDS_MAX
from listings.domain.sla_events import SlaStep, SlaTerms
from listings.models import OfferRow
from listings.queries import sla_of

PPM_PER_PERCENT = PPM // 100
STEP = re.compile(r"(\d{1,3}(?:\.\d{1,4})?)\s*=\s*(\d{1,3}(?:\.\d{1,4})?)")


class SlaForm(forms.Form):
    """A start within so many seconds, availabilities, and what is credited for a miss."""

    start_by = forms.IntegerField(
        label="Starts within", min_value=1, max_value=START_BY_SECONDS_MAX, required=False
    )
    late_credit = forms.DecimalField(
        label="Credit for a later start",
        min_value=0,
        max_value=100,
        decimal_places=4,
        required=False,
    )
    availability = forms.CharField(label="Credit by availability", required=False, max_length=200)

    @classmethod
    def of(cls, row: OfferRow) -> SlaForm:
        """Return the form as an offer stands."""
        terms = sla_of(row.sla)
        if terms is None:
            return cls()
        return cls(
            initial={
                "start_by": terms.start_by_seconds,
                "late_credit": _percent(terms.late_credit_ppm) if terms.start_by_seconds else None,
                "availability": "; ".join(
                    f"{_percent(step.below_ppm)}={_percent(step.credit_ppm)}"
                    for step in terms.steps
                ),
            }
        )

    def clean_availability(self) -> tuple[SlaStep, ...]:
        """Read `99.9=10; 95=50`: below so much available, so much is credited."""
        said = [word.strip() for word in self.cleaned_data["availability"].split(";")]
        found = [STEP.fullmatch(word) for word in said if word]
        if not all(found):
            raise forms.ValidationError(
                "Write availability and credit in percent, such as 99.9=10; 95=50."
            )
        return tuple(SlaStep(_ppm(step[1]), _ppm(step[2])) for step in found if step is not None)

    def promised(self) -> SlaTerms | None:
        """Return what the form says; None: nothing is promised."""
        data = self.cleaned_data
        terms = SlaTerms(
            start_by_seconds=data["start_by"],
            late_credit_ppm=_ppm(data["late_credit"] or 0),
            steps=data["availability"],
        )
        return None if terms == SlaTerms() else terms


def _ppm(percent: str | Decimal | int) -> int:
    return int(Decimal(percent) * PPM_PER_PERCENT)


def _percent(ppm: int) -> str:
    return f"{Decimal(ppm) / PPM_PER_PERCENT:f}"
