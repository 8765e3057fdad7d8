"""What the forms of all policies have in common: market, reason, and refusals at their field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from django import forms

from config.site.forms.fields import TokenField
from config.site.pages.policies.choices import Choices
from config.site.parts import refusals
from ledger.domain.refusal import Refusal
from marketplace.domain.governance.authority import GPUS_MAX, WHY_CHARS_MAX

NOT_SET = {"placeholder": "not set", "inputmode": "numeric", "autocomplete": "off"}
FIELD_OF: Mapping[str, tuple[str, ...]] = {
    "cohort-unreadable": ("cohort",),
    "gpu-class-unreadable": ("gpu_class",),
    "permit-class-unreadable": ("gpu_class",),
    "too-many-least-runs": ("gpu_class",),
    "cohort-unknown": ("node", "cohort", "parent", "who", "subscriber_id"),
    "cohort-circular": ("parent",),
    "borrowing-needs-cohort": ("borrowing",),
    "grant-exceeded": ("nominal",),
    "override-span-wrong": ("ends_at",),
    "reason-too-long": ("why",),
    "subscriber-unknown": ("subscriber_id", "whom"),
    "member-unknown": ("whom",),
    "policy-not-yours": ("node", "subscriber_id", "whom"),
}
"""Which field a refusal is about: the first of these that the form has and that was filled in."""


UNITS: Mapping[str, str] = {
    "nominal": "GPUs",
    "borrowing": "GPUs",
    "lending": "GPUs",
    "gpus": "GPUs",
    "gpu_hours": "GPU-hours",
    "memory": "GiB",
    "length": "hours",
}
"""In what the figure of a field is counted."""


def count(label: str, hint: str = "", most: int = GPUS_MAX) -> forms.IntegerField:
    """Return a whole figure that need not be set."""
    widget = forms.NumberInput(attrs=NOT_SET)
    return forms.IntegerField(
        label=label, required=False, min_value=0, max_value=most, widget=widget, help_text=hint
    )


class TogetherForm(forms.Form):
    """What it takes to set several policies at once: the reason for all of them."""

    token = TokenField()
    market = forms.CharField(widget=forms.HiddenInput(), max_length=40, required=False)
    why = forms.CharField(label="Reason", max_length=WHY_CHARS_MAX)


class PolicyForm(forms.Form):
    """What every policy's form has: its market, the reason for it, and an id against repeats."""

    kind: ClassVar[str]
    title: ClassVar[str]
    text: ClassVar[str]
    """What the policy does, in a sentence or two."""
    for_units: ClassVar[bool] = False
    """A tenant's operators may set it for their own units and people."""
    can_be_tried: ClassVar[bool] = True
    do_not_call_in_templates: ClassVar[bool] = True
    """A page names the forms that there are, which are classes."""

    token = TokenField()
    market = forms.CharField(widget=forms.HiddenInput(), max_length=40, required=False)
    why = forms.CharField(label="Reason", max_length=WHY_CHARS_MAX)

    def __init__(self, *args: Any, choices: Choices, trying: bool = False, **more: Any) -> None:
        super().__init__(*args, **more)
        self.choices = choices
        # What an address says fills in the terms; market and id are the form's own.
        self.initial = {**self.initial, "market": choices.market}
        self.initial.pop("token", None)
        if trying:
            self.fields["why"].required = False
            if "token" not in self.data:
                del self.fields["token"]
        self.offer(choices)

    def offer(self, choices: Choices) -> None:
        """Fill in what can be chosen from."""

    def choose(self, name: str, options: Iterable[tuple[str, Any]], empty: str = "") -> None:
        """Let a field be chosen from options; `empty` says what none of them means."""
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [*([("", empty)] if empty else []), *options]

    @property
    def terms(self) -> Iterator[tuple[forms.BoundField, str]]:
        """Yield the fields that make the policy, and in what each is counted."""
        for name in self.fields:
            if name not in ("token", "market", "why"):
                yield self[name], UNITS.get(name, "")

    @property
    def sent(self) -> list[tuple[str, str]]:
        """Return what was sent of the policy, as a form sends it again."""
        return [
            (each.name, self.data[each.name]) for each, _ in self.terms if self.data.get(each.name)
        ]

    def asked(self) -> dict[str, Any]:
        """Return what the form says, once it is valid: what is left empty is None."""
        said = {name: value for name, value in self.cleaned_data.items() if value != ""}
        return {"why": "", **said}

    def refuse(self, refusal: Refusal) -> bool:
        """Put a refusal at the field that it is about; False where it is about none."""
        names = FIELD_OF.get(refusal.code, ())
        if refusal.code == "grant-exceeded" and refusal.details.get("of") == "gpu-hours":
            names = ("gpu_hours",)
        if refusal.code == "figure-out-of-range":
            given = refusal.details.get("given")
            names = tuple(name for name, value in self.cleaned_data.items() if value == given)
        about = next((name for name in names if self.cleaned_data.get(name) is not None), None)
        if about is None or about not in self.fields:
            return False
        figures = ", ".join(
            f"{name.replace('_', ' ')} {value}"
            for name, value in refusals.unmentioned(refusal).items()
            if isinstance(value, int) and name != "given"
        )
        self.add_error(about, f"{refusals.whole(refusal)}{f' ({figures})' if figures else ''}")
        return True
