"""The form in which a consumer says what to run, by when, and the most they pay."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

from django import forms

from config.site.forms.fields import (
    HoursField,
    MomentField,
    MoneyField,
    RateField,
    TokenField,
)
from config.site.parts import refusals
from config.site.parts.idle import minutes_field
from ledger.access import Actor
from ledger.domain.account_ids import funds_account
from ledger.domain.ids import BidId, FolderId
from ledger.domain.refusal import Refusal
from listings.domain.sla import PPM, START_BY_SECONDS_MAX
from marketplace.domain.bids.bid import BidTerms
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.bids.sources import read_source
from marketplace.domain.bids.workload_profiles import ENVELOPES
from marketplace.domain.facts.events import (
    GoodTill,
    GpuRequest,
    Patience,
    Placement,
    ServiceClass,
    Workload,
)
from marketplace.domain.facts.values import VolumeMount
from marketplace.domain.files.outputs import need_outputs
from marketplace.domain.volumes.terms import read_mounts
from marketplace.queries.bids import unit_of

WORKLOADS = [(each.kind, each.title) for each in ENVELOPES.values()]
CLASSES = (
    ("on-demand", "On demand"),
    ("interruptible", "Interruptible"),
    ("reserved", "Reserved"),
)
PATIENCE = (
    ("immediate", "Now, at the lowest price"),
    ("soonest", "Now, at the soonest start"),
    ("patient", "In the next round"),
)
LASTING = (
    ("good-till-deadline", "Good till its deadline"),
    ("good-till-moment", "Good till a time"),
    ("immediate-or-cancel", "Immediate or cancel: what is free now"),
    ("fill-or-kill", "Fill or kill: all of it now, or nothing"),
)
SECOND = timedelta(seconds=1)
PPM_PER_PERCENT = PPM // 100
NETWORKS = (
    ("", "As the host gives it"),
    ("open", "Reaches public addresses"),
    ("none", "No way out"),
)
PLACEMENTS = (("same-host", "All on one host"), ("any-hosts", "Over several hosts"))


class CommandField(forms.CharField):
    """A command line, split into words the way a shell does."""

    def clean(self, value: Any) -> tuple[str, ...]:
        """Return the words."""
        try:
            return tuple(shlex.split(super().clean(value) or ""))
        except ValueError as unbalanced:
            raise forms.ValidationError(
                "A quotation mark is not closed. Add the missing one."
            ) from unbalanced


class AskedCommandField(CommandField):
    """One that is asked for, though something else may take its place."""

    is_asked = True


class QueryField(forms.CharField):
    """Conditions in the market's query language."""

    def clean(self, value: Any) -> GpuRequest:
        """Return what is asked of the GPUs."""
        try:
            return read_query(super().clean(value) or "")
        except Refusal as refusal:
            raise forms.ValidationError(refusals.whole(refusal), code=refusal.code) from refusal


class OutputsField(forms.CharField):
    """Patterns of files, with spaces between them."""

    def clean(self, value: Any) -> tuple[str, ...]:
        """Return the patterns."""
        try:
            patterns = tuple(shlex.split(super().clean(value) or ""))
            need_outputs(patterns)
        except ValueError as unbalanced:
            raise forms.ValidationError(
                "A quotation mark is not closed. Add the missing one."
            ) from unbalanced
        except Refusal as refusal:
            raise forms.ValidationError(refusals.whole(refusal), code=refusal.code) from refusal
        return patterns


class VolumesField(forms.CharField):
    """Volumes that the work finds, with spaces between them."""

    def clean(self, value: Any) -> tuple[VolumeMount, ...]:
        """Return what it finds where."""
        try:
            return read_mounts(super().clean(value) or "")
        except Refusal as refusal:
            raise forms.ValidationError(refusals.whole(refusal), code=refusal.code) from refusal


class SourceField(forms.CharField):
    """An address that the host fetches for the work."""

    def clean(self, value: Any) -> str:
        """Return it as it was said; empty: none."""
        said = (super().clean(value) or "").strip()
        try:
            if said:
                read_source(said)
        except Refusal as refusal:
            raise forms.ValidationError(refusals.whole(refusal), code=refusal.code) from refusal
        return said


FOLDED = (
    "query",
    "network",
    "starts_within",
    "availability",
    "placement",
    "earliest_start",
    "patience",
    "cost_centre",
    "project",
    "unit",
    "gpus_min",
    "hours_min",
    "good_till",
    "good_until",
    "budget",
    "auto_extend_until",
    "repeat_until",
    "saves_minutes",
    "idle_minutes",
    "inputs",
    "fetch",
    "fetch_secret",
    "outputs",
    "volumes",
    "secrets",
    "secret_variables",
    "resume",
    "pausable",
    "image",
)
"""Fields that most bids leave as they are."""


class BidForm(forms.Form):
    """What to run, on what, when, and for how much at most."""

    token = TokenField()
    kind = forms.ChoiceField(label="What runs", choices=WORKLOADS)
    gpu = forms.ChoiceField(label="GPU", required=False)
    query = QueryField(label="More conditions", required=False, max_length=1_000)
    network = forms.ChoiceField(label="Network", choices=NETWORKS, required=False)
    starts_within = forms.IntegerField(
        label="Promised to start within",
        min_value=1,
        max_value=START_BY_SECONDS_MAX,
        required=False,
    )
    availability = forms.DecimalField(
        label="Promised availability",
        min_value=Decimal("0.0001"),
        max_value=100,
        decimal_places=4,
        required=False,
    )
    gpus = forms.IntegerField(label="How many", min_value=1, max_value=1_024, initial=1)
    placement = forms.ChoiceField(label="Placement", choices=PLACEMENTS)
    hours = HoursField(label="For", initial=timedelta(hours=2))
    earliest_start = MomentField(label="Not before")
    deadline = MomentField(label="Done by")
    service_class = forms.ChoiceField(label="Service class", choices=CLASSES, initial="on-demand")
    patience = forms.ChoiceField(label="Match", choices=PATIENCE, initial="immediate")
    burst_allowed = forms.BooleanField(label="May run in a cloud", required=False)
    gpus_min = forms.IntegerField(
        label="Minimum GPUs", min_value=1, max_value=1_024, required=False
    )
    hours_min = HoursField(label="Minimum hours", required=False)
    good_till = forms.ChoiceField(label="Time in force", choices=LASTING, required=False)
    good_until = MomentField(label="Good till", required=False)
    auto_extend_until = MomentField(label="Extend automatically until", required=False)
    repeat_until = MomentField(label="Repeat until", required=False)
    resume = forms.BooleanField(label="Resume interrupted work", required=False)
    pausable = forms.BooleanField(
        label="May be paused",
        required=False,
        help_text="Once it has had the market's firm time, work that finds no room may have it"
        " paused; until then it may have others paused. It goes on by its deadline, and needs a"
        " volume that it writes to, or a time above.",
    )
    saves_minutes = forms.IntegerField(
        label="Work lost on a restart", min_value=1, max_value=1_440, required=False
    )
    idle_minutes = minutes_field("End when idle for")
    fetch = SourceField(label="Fetched by the host", required=False, max_length=1_024)
    outputs = OutputsField(label="Files it leaves", required=False, max_length=2_000)
    volumes = VolumesField(label="Volumes it finds", required=False, max_length=2_000)
    secret_variables = forms.BooleanField(label="Secrets as variables, too", required=False)
    command = CommandField(label="Command", required=False, max_length=8_192)
    image = forms.CharField(label="Container image", required=False, max_length=512)
    cost_centre = forms.CharField(label="Cost centre", required=False, max_length=64)
    project = forms.CharField(label="Project", required=False, max_length=63)

    def __init__(
        self,
        *args: Any,
        models: Iterable[str],
        units: Iterable[tuple[str, str]],
        currency: str,
        now: datetime,
        folders: Iterable[tuple[str, str]] = (),
        secrets: Iterable[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.fields["inputs"] = forms.ChoiceField(
            label="Files it finds", required=False, choices=[("", "None"), *folders]
        )
        names = [(name, name) for name in secrets]
        self.fields["fetch_secret"] = forms.ChoiceField(
            label="Secret it shows there", required=False, choices=[("", "None"), *names]
        )
        self.fields["secrets"] = forms.MultipleChoiceField(
            label="Secrets it is handed",
            required=False,
            choices=names,
            widget=forms.CheckboxSelectMultiple,
        )
        self.fields["limit"] = RateField(label="Limit price", currency=currency)
        self.fields["budget"] = MoneyField(label="Budget", currency=currency, required=False)
        self.fields["gpu"] = forms.ChoiceField(
            label="GPU",
            required=False,
            choices=[("", "Any that fits"), *((model, model) for model in models)],
        )
        choices = list(units)
        if choices:
            self.fields["unit"] = forms.ChoiceField(label="For", choices=choices)
        self.fields["earliest_start"].initial = now
        self.fields["deadline"].initial = now + timedelta(hours=24)

    def clean(self) -> dict[str, Any]:
        """Refuse two answers to one question."""
        data = super().clean() or {}
        query = data.get("query")
        if data.get("gpu") and query is not None and query.models:
            self.add_error("query", "The GPU is chosen above. Leave gpu= out here.")
        if data.get("network") and query is not None and query.network:
            self.add_error("query", "The network is chosen beside it. Leave network= out here.")
        if data.get("starts_within") and query is not None and query.start_seconds_max:
            self.add_error("query", "The start is asked for beside it. Leave starts<= out here.")
        if data.get("availability") and query is not None and query.availability_min_ppm:
            self.add_error("query", "The availability is asked for beside it. Leave it out here.")
        if data.get("fetch") and data.get("inputs"):
            self.add_error("fetch", "The work begins with a folder or with this, not with both.")
        if data.get("fetch_secret") and not data.get("fetch") and "fetch" not in self.errors:
            self.add_error("fetch_secret", "Say what is fetched with it.")
        is_until = data.get("good_till") == "good-till-moment"
        if is_until and not data.get("good_until") and "good_until" not in self.errors:
            self.add_error("good_until", "Say until when, or choose to wait otherwise.")
        return data


class RunForm(BidForm):
    """The form of a run: it says what runs."""

    command = AskedCommandField(label="Command", required=False, max_length=8_192)

    def clean(self) -> dict[str, Any]:
        """Refuse a run of nothing; an image may bring a command of its own."""
        data = super().clean()
        is_said = data.get("command") or data.get("image")
        if not is_said and not {"command", "image"} & self.errors.keys():
            self.add_error("command", "Say what runs, such as: python3 train.py --epochs 3")
        return data


def _request(data: Mapping[str, Any]) -> GpuRequest:
    """Return the conditions of the query with those that have fields of their own."""
    request: GpuRequest = data["query"]
    if data["gpu"]:
        request = replace(request, models=(data["gpu"],))
    if data["network"]:
        request = replace(request, network=data["network"])
    if data["starts_within"]:
        request = replace(request, start_seconds_max=data["starts_within"])
    if data["availability"]:
        ppm = int(data["availability"] * PPM_PER_PERCENT)
        request = replace(request, availability_min_ppm=ppm)
    return request


def bid_terms(form: BidForm, actor: Actor, *, market: str, currency: str) -> BidTerms:
    """Return what the form says, asked for by `actor`.

    Raises: UnitMissing, NotYourUnit, SubscriberUnknown.
    """
    data = form.cleaned_data
    unit = unit_of(actor, UUID(data["unit"]) if "unit" in data else None)
    request = _request(data)
    good_till = cast(GoodTill, data["good_till"] or "good-till-deadline")
    return BidTerms(
        bid_id=BidId(data["token"]),
        tenant_id=actor.tenant_id,
        subscriber_id=unit.subscriber_id,
        user_id=actor.user_id,
        account_id=funds_account(unit.subscriber_id, currency),
        market=market,
        request=request,
        gpus=data["gpus"],
        placement=cast(Placement, data["placement"]),
        duration_seconds=data["hours"] // SECOND,
        earliest_start=data["earliest_start"],
        deadline=data["deadline"],
        limit=data["limit"],
        service_class=cast(ServiceClass, data["service_class"]),
        patience=cast(Patience, data["patience"].replace("soonest", "immediate")),
        seeks="soonest" if data["patience"] == "soonest" else "cheapest",
        workload=Workload(
            kind=data["kind"],
            command=data["command"],
            checkpoint_seconds=data["saves_minutes"] and data["saves_minutes"] * 60,
            image=data["image"],
            inputs=FolderId(UUID(data["inputs"])) if data["inputs"] else None,
            fetch=data["fetch"],
            fetch_secret=data["fetch_secret"],
            outputs=data["outputs"],
            secrets=tuple(data["secrets"]),
            secret_variables=tuple(data["secrets"]) if data["secret_variables"] else (),
            volumes=data["volumes"],
            end_when_idle_seconds=data["idle_minutes"] and data["idle_minutes"] * 60,
            project=data["project"],
        ),
        cost_centre=data["cost_centre"] or unit.cost_centre,
        burst_allowed=data["burst_allowed"],
        good_till=good_till,
        good_until=data["good_until"] if good_till == "good-till-moment" else None,
        gpus_min=data["gpus_min"],
        duration_min_seconds=None if data["hours_min"] is None else data["hours_min"] // SECOND,
        budget=data["budget"],
        auto_extend_until=data["auto_extend_until"],
        repeat_until=data["repeat_until"],
        resume=data["resume"],
        pausable=data["pausable"],
    )
