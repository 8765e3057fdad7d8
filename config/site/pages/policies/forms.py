"""The forms in which policies are set: one for each kind, with the fields that the API has.

A figure that is left empty is not set, which is not 0. `asked` returns what the form says as the
API's body would.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from django import forms

from config.site.forms.fields import HoursField, MomentField, MoneyField
from config.site.pages.policies.choices import Choices, Options
from config.site.pages.policies.one_form import NOT_SET, PolicyForm, count
from marketplace.domain.governance.authority import GPU_HOURS_MAX
from marketplace.domain.governance.dispatch import (
    FIRM_SECONDS_MAX,
    HALF_LIFE_SECONDS_MAX,
    LEAST_RUN_SECONDS_MAX,
    PERIOD_SECONDS_MAX,
    PERIOD_SECONDS_MIN,
    WEIGHT_PPM_MAX,
)

PPM = 1_000_000
MIB_PER_GIB = 1_024
SECOND = timedelta(seconds=1)
CLASS = "A model or kind such as H100, or any."
COUNTS = [("whole", "one whole GPU"), ("parts", "the part of its card that it is")]
ALLOWED = [("yes", "may"), ("no", "may not")]
SCOPES = {
    "bid": "each bid",
    "user": "each person",
    "subscriber": "each business unit",
    "tenant": "each organisation",
}


class CohortForm(PolicyForm):
    """A cohort."""

    kind, title = "cohort", "Cohort"
    text = "Members lend each other unused quota. A cohort may be a member of another."

    cohort = forms.CharField(
        label="Name", max_length=40, help_text="Lower-case letters, digits and hyphens."
    )
    parent = forms.ChoiceField(label="Member of", required=False)
    tenant_id = forms.ChoiceField(label="Whose grant it is", required=False)

    def offer(self, choices: Choices) -> None:
        """Offer cohorts and organisations."""
        self.choose("parent", choices.cohorts, "no other cohort")
        self.choose("tenant_id", choices.tenants, "none: visible to all")

    def asked(self) -> dict[str, Any]:
        """Return what the form says."""
        said = super().asked()
        return said | {"tenant_id": _id(said.get("tenant_id"))}


class UnitForm(PolicyForm):
    """Where a business unit stands."""

    kind, title, for_units = "unit", "Business unit", True
    text = "The cohort of a business unit. Only members of a cohort can borrow or lend."

    subscriber_id = forms.ChoiceField(label="Business unit")
    cohort = forms.ChoiceField(label="Member of", required=False)

    def offer(self, choices: Choices) -> None:
        """Offer units, and the cohorts they may be put into."""
        self.choose("subscriber_id", choices.units)
        alone = "no cohort" if choices.is_platform else ""
        self.choose("cohort", choices.cohorts, alone)
        self.fields["cohort"].required = not choices.is_platform
        if not choices.cohorts:
            self.fields["cohort"].help_text = "There is no cohort yet that you may add units to."

    def asked(self) -> dict[str, Any]:
        """Return what the form says."""
        said = super().asked()
        return said | {"subscriber_id": _id(said["subscriber_id"])}


class QuotaForm(PolicyForm):
    """A quota."""

    kind, title, for_units = "quota", "Quota", True
    text = "How many GPUs of a class a unit or cohort has, at one time, and may borrow and lend."

    node = forms.ChoiceField(label="Unit or cohort")
    gpu_class = forms.CharField(label="Class of GPUs", max_length=40, help_text=CLASS)
    nominal = count("Nominal quota", "Not set or 0: none, but it may borrow.")
    borrowing = count("Borrowing limit", "Not set: what others lend. 0: nothing.")
    lending = count("Lending limit", "Not set: all that is unused. 0: nothing.")
    gpu_hours = count(
        "Guaranteed in each period",
        "Of the nominal quota. Not set: all of it. 0: none.",
        GPU_HOURS_MAX,
    )

    def offer(self, choices: Choices) -> None:
        """Offer what may have a quota."""
        self.choose("node", choices.nodes)
        self.fields["gpu_class"].widget.attrs |= {"list": "classes", "autocomplete": "off"}


class OverrideForm(QuotaForm):
    """A quota between two moments."""

    kind, title, for_units = "override", "Quota for a time", False
    text = "Another quota between two moments. It takes the place of the whole quota, hours too."

    starts_at = MomentField(label="From")
    ends_at = MomentField(label="Until")

    def asked(self) -> dict[str, Any]:
        """Return what the form says; its id is the form's, so that it is set once."""
        return super().asked() | {"override_id": self.cleaned_data.get("token")}


class LimitForm(PolicyForm):
    """A limit."""

    kind, title, for_units = "limit", "Limit", True
    text = "The most that a bid, person, business unit or organisation may have. All hold at once."

    whom = forms.ChoiceField(label="Of whom")
    tenant_id = forms.ChoiceField(label="Counts for", required=False)
    gpus = count("GPUs at one time", "Not set: no limit.")
    memory = forms.DecimalField(
        label="Memory at one time",
        required=False,
        min_value=0,
        max_digits=12,
        decimal_places=3,
        help_text="Not set: no limit.",
        widget=forms.NumberInput(attrs={**NOT_SET, "step": "any"}),
    )
    gpu_hours = count("GPU-hours", "Not set: no limit.", GPU_HOURS_MAX)
    period = forms.ChoiceField(
        label="Hours and money in each",
        choices=[("day", "day"), ("week", "week"), ("month", "month")],
        initial="week",
    )

    def offer(self, choices: Choices) -> None:
        """Offer each scope, and each one in it."""
        money = MoneyField(
            label="Money", currency=choices.currency, required=False, help_text="Not set: no limit."
        )
        money.widget.attrs["placeholder"] = "not set"
        self.fields["money"] = money
        of_one = [
            ("One person", _scoped("user", choices.persons)),
            ("One business unit", _scoped("subscriber", choices.units)),
        ]
        if choices.is_platform:
            of_one.append(("One organisation", _scoped("tenant", choices.tenants)))
            self.choose("tenant_id", choices.tenants, "every organisation")
        else:
            del self.fields["tenant_id"]
        self.choose("whom", [*(SCOPES.items() if choices.is_platform else []), *of_one])

    def asked(self) -> dict[str, Any]:
        """Return what the form says; memory in whole MiB."""
        said = super().asked()
        scope, _, subject = said.pop("whom").partition(":")
        memory = said.pop("memory")
        return said | {
            "scope": scope,
            "subject": _id(subject),
            "tenant_id": _id(said.get("tenant_id")),
            "memory_mib": None if memory is None else int(memory * MIB_PER_GIB),
            "money": None if said.get("money") is None else said["money"].nanos,
        }


def weighable(choices: Choices) -> Options:
    """Return what an actor may weigh: all, or the own units within the own grant."""
    mine = {name for name, _ in choices.cohorts}
    units = {str(each.subscriber_id) for each in choices.governed.units if each.cohort in mine}
    return [each for each in choices.nodes if choices.is_platform or each[0] in units]


class WeightForm(PolicyForm):
    """The weight of a unit or cohort."""

    kind, title, for_units = "weight", "Weight", True
    text = (
        "Remembered use, of a unit or of all in a cohort, is divided by the weight: the more, the "
        "sooner it goes first. It counts against what stands beside it."
    )

    node = forms.ChoiceField(label="Unit or cohort")
    weight = forms.DecimalField(
        label="Weight",
        min_value=0,
        max_value=WEIGHT_PPM_MAX // PPM,
        decimal_places=6,
        widget=forms.NumberInput(attrs={"step": "any", "inputmode": "decimal"}),
        help_text="1 counts once; 0 goes last.",
    )

    def offer(self, choices: Choices) -> None:
        """Offer what has a place; for who does not govern the platform, within their grant."""
        nodes = weighable(choices)
        self.choose("node", nodes)
        if not nodes:
            self.fields["node"].help_text = "None of your units is in your own grant."

    def asked(self) -> dict[str, Any]:
        """Return what the form says, the weight in millionths."""
        said = super().asked()
        return said | {"weight_ppm": int(said.pop("weight") * PPM)}


class HalfLifeForm(PolicyForm):
    """The half-life of use."""

    kind, title = "half-life", "Half-life of use"
    text = "The time in which past use decays by half. Applies from now on."

    length = HoursField(label="Half-life")

    def clean_length(self) -> timedelta:
        """Refuse what is out of range."""
        return _within(self.cleaned_data["length"], 60, HALF_LIFE_SECONDS_MAX)

    def asked(self) -> dict[str, Any]:
        """Return what the form says."""
        said = super().asked()
        return said | {"seconds": said.pop("length") // SECOND}


class PeriodForm(PolicyForm):
    """The periods of guaranteed hours."""

    kind, title = "period", "Period of guaranteed hours"
    text = "In which spans guaranteed GPU-hours are counted, one of which starts at a moment."

    length = HoursField(label="Length")
    starts_at = MomentField(label="One of them starts")

    def clean_length(self) -> timedelta:
        """Refuse what is out of range."""
        return _within(self.cleaned_data["length"], PERIOD_SECONDS_MIN, PERIOD_SECONDS_MAX)

    def asked(self) -> dict[str, Any]:
        """Return what the form says."""
        said = super().asked()
        return said | {"seconds": said.pop("length") // SECOND}


class LeastRunForm(PolicyForm):
    """How long leases run at least."""

    kind, title = "least-run", "Minimum runtime"
    text = (
        "How long a lease runs at least before it is interrupted for another bid: in the market, "
        "or of a class, also of parts of its cards. The longest of a lease's GPUs counts. Or how "
        "much of work that may be paused is done before it is."
    )

    gpu_class = forms.CharField(
        label="Class of GPUs", max_length=40, required=False, help_text="Empty: all others."
    )
    length = HoursField(
        label="Minimum runtime",
        required=False,
        help_text="0: it may be interrupted at once. Empty, of a class: as all others.",
    )
    firm = forms.BooleanField(
        label="Firm time of work that may be paused",
        required=False,
        help_text="Not of leases but of the work, over all its leases; of all classes.",
    )

    def offer(self, choices: Choices) -> None:
        """Offer the classes that there are."""
        self.fields["gpu_class"].widget.attrs |= {"list": "classes", "autocomplete": "off"}

    def clean_length(self) -> timedelta | None:
        """Refuse what is out of range."""
        length = self.cleaned_data["length"]
        if length is None and not self.cleaned_data.get("gpu_class"):
            raise forms.ValidationError("Say how long; only a class may be left as all others.")
        # The box comes after it, so it is not cleaned yet.
        is_firm = bool(self.data.get(self.add_prefix("firm")))
        longest = FIRM_SECONDS_MAX if is_firm else LEAST_RUN_SECONDS_MAX
        return None if length is None else _within(length, 0, longest)

    def asked(self) -> dict[str, Any]:
        """Return what the form says."""
        said = super().asked()
        length = said.pop("length")
        if length is None and said.get("gpu_class"):
            return said | {"lift": True}
        return said | {"seconds": None if length is None else length // SECOND}


class CountingForm(PolicyForm):
    """How parts of cards are counted."""

    kind, title = "counting", "Counting parts of cards"
    text = "How quotas and limits count a MIG instance or a share. Current use is recounted."

    counts = forms.ChoiceField(
        label="A part counts as",
        choices=COUNTS,
        help_text="Of compute and memory the larger. A class then has what is cut from its cards.",
    )


class UseForm(PolicyForm):
    """Who may lease or borrow what."""

    kind, title = "use", "Who may lease or borrow"
    text = "The nearest word counts: unit, cohort, organisation, everybody; the model before any."

    who = forms.ChoiceField(label="Who", required=False)
    allowed = forms.ChoiceField(label="May or may not", choices=ALLOWED, initial="no")
    what = forms.ChoiceField(label="Do what", choices=[("lease", "lease"), ("borrow", "borrow")])
    gpu_class = forms.CharField(label="Class of GPUs", max_length=40, help_text=CLASS)

    def offer(self, choices: Choices) -> None:
        """Offer everybody, cohorts, units and organisations."""
        groups = [
            ("Cohorts", choices.cohorts),
            ("Business units", choices.units),
            ("Organisations", choices.tenants),
        ]
        self.choose("who", [group for group in groups if group[1]], "everybody else")
        self.fields["gpu_class"].widget.attrs |= {"list": "classes", "autocomplete": "off"}

    def asked(self) -> dict[str, Any]:
        """Return what the form says."""
        said = super().asked()
        return said | {"allowed": said["allowed"] == "yes"}


class ListingForm(PolicyForm):
    """Who may list what."""

    kind, title = "listing", "Who may list"
    text = (
        "What speaks of an organisation comes first. A class of cards holds for MIG instances and "
        "shares of them, too, unless another names those. Offers that are on the market stay."
    )

    tenant_id = forms.ChoiceField(label="Who", required=False)
    allowed = forms.ChoiceField(label="May or may not list", choices=ALLOWED, initial="no")
    gpu_class = forms.CharField(label="Class of GPUs", max_length=40, help_text=CLASS)

    def offer(self, choices: Choices) -> None:
        """Offer everybody and organisations."""
        self.choose("tenant_id", choices.tenants, "everybody else")
        self.fields["gpu_class"].widget.attrs |= {"list": "classes", "autocomplete": "off"}

    def asked(self) -> dict[str, Any]:
        """Return what the form says."""
        said = super().asked()
        return said | {"allowed": said["allowed"] == "yes", "tenant_id": _id(said.get("tenant_id"))}


FORMS: Mapping[str, type[PolicyForm]] = {
    form.kind: form
    for form in (
        QuotaForm,
        OverrideForm,
        UnitForm,
        CohortForm,
        LimitForm,
        WeightForm,
        HalfLifeForm,
        PeriodForm,
        CountingForm,
        LeastRunForm,
        UseForm,
        ListingForm,
    )
}
"""Every kind of policy that can be set on the site, in the order in which they are shown."""


def _id(text: Any) -> UUID | None:
    return UUID(text) if text else None


def _scoped(scope: str, options: Options) -> Options:
    return [(f"{scope}:{key}", name) for key, name in options]


def _within(length: timedelta, least: int, most: int) -> timedelta:
    if not least <= length // SECOND <= most:
        said = f"Choose from {_hours(least)} to {_hours(most)} hours."
        raise forms.ValidationError(said, code="figure-out-of-range")
    return length


def _hours(seconds: int) -> str:
    return f"{seconds / 3_600:.2g}" if seconds < 3_600 else f"{seconds // 3_600}"
