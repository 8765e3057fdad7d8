"""The form in which an owner lists GPUs: which, when and from what price; the rest by presets."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.conf import settings
from django.utils import timezone

from config.site.forms.fields import MomentField, RateField, TokenField
from config.site.pages.offers.presets import (
    HOUR,
    MINUTE,
    PPM_PER_PERCENT,
    RECLAIM_TERMS,
    SCHEDULES,
    ReclaimTerms,
)
from ledger.domain.money import Rate, nanos_of
from ledger.domain.refusal import Invalid
from ledger.domain.span import Window
from listings.domain.divisions import SHARES_MAX
from listings.domain.events import ByDemand, Division, Form, Gpu, ReclaimStep, WeeklyRule
from listings.domain.terms import GRACE_SECONDS_MAX, OfferTerms
from listings.models import HostRow
from listings.queries import gpus_of_row

LEASE_MIN, LEASE_MIN_DEMO = 15, 1
"""The shortest lease in minutes, where an owner says nothing: bids of the demo are for minutes."""
REPEATS = (
    ("", "Just this once"),
    ("weekly", "Every week on that day"),
    ("workdays", "Every Monday to Friday"),
    ("daily", "Every day"),
)
OWN = ""
"""The choice of hours, or of reclaim terms, that is no preset: what the fields below it say."""
ISOLATIONS = (
    ("whole", "Whole GPU"),
    ("mig", "MIG instance"),
    ("mps", "MPS shares"),
    ("timeslice", "Time-slice shares"),
    ("cooperative", "Cooperative"),
)


SHARED = ("mps", "timeslice")
PROFILE = re.compile(r"(?:([1-8])x)?([1-9]g\.[0-9]{1,3}gb(?:\+me)?)")
"""A MIG profile, or several instances of one: 7x1g.10gb."""
WAY = re.compile(r"(whole|mps|timeslice|mig)(?::([^=]+?))?\s*(?:=\s*([0-9.]{1,20}))?")
"""One form of an offer by demand, and its floor."""
STEPS = (("longer_notice", "longer_fee"), ("longest_notice", "longest_fee"))
"""Fields of notice (in hours) and fee (in percent) of a reclaim that comes with more notice."""


class OfferForm(forms.Form):
    """GPUs of one host, hours (once or weekly), the floor price, and the terms."""

    is_live = True
    """What is wrong is told while the form is filled in: each field has a place for it."""

    token = TokenField()
    host = forms.UUIDField(widget=forms.HiddenInput())
    gpu = forms.MultipleChoiceField(label="GPUs", widget=forms.CheckboxSelectMultiple())
    schedule = forms.ChoiceField(
        label="Schedule",
        choices=((OWN, "Hours of my own"), *((key, each.label) for key, each in SCHEDULES.items())),
        required=False,
    )
    starts_at = MomentField(label="From")
    ends_at = MomentField(label="Until")
    repeat = forms.ChoiceField(label="Repeat", choices=REPEATS, required=False)
    reclaim_terms = forms.ChoiceField(
        label="Reclaim terms",
        choices=(
            *((key, each.label) for key, each in RECLAIM_TERMS.items()),
            (OWN, "Terms of my own"),
        ),
        initial="standard",
        required=False,
    )
    notice = forms.IntegerField(label="Notice of a reclaim", min_value=0, initial=10)
    grace = forms.IntegerField(
        label="Grace period", min_value=0, max_value=GRACE_SECONDS_MAX, required=False
    )
    reclaim_fee = forms.IntegerField(label="Reclaim fee", min_value=0, max_value=100, initial=10)
    longer_notice = forms.IntegerField(
        label="With longer notice", min_value=1, max_value=720, required=False
    )
    longer_fee = forms.IntegerField(
        label="Reclaim fee then", min_value=0, max_value=100, required=False
    )
    longest_notice = forms.IntegerField(
        label="With the longest notice", min_value=1, max_value=720, required=False
    )
    longest_fee = forms.IntegerField(
        label="Reclaim fee then", min_value=0, max_value=100, required=False
    )
    lease_min = forms.IntegerField(label="Shortest lease", min_value=1)
    cleaning = forms.IntegerField(label="Cleaning time", min_value=0, required=False)
    isolation = forms.ChoiceField(label="Isolation", choices=ISOLATIONS)
    shares = forms.IntegerField(
        label="Shares per GPU", min_value=2, max_value=SHARES_MAX, required=False
    )
    profiles = forms.CharField(label="MIG instances per GPU", required=False, max_length=200)
    ways = forms.CharField(label="Allowed forms", required=False, max_length=400)
    form_min = forms.IntegerField(label="Minimum time in a form", min_value=5, required=False)
    workload_kinds = forms.CharField(label="Workloads", required=False, max_length=400)

    def __init__(self, *args: Any, host: HostRow, currency: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.currency = currency
        self.fields["floor"] = RateField(label="Floor price", currency=currency)
        self.fields["floor"].widget.attrs["data-next"] = ""
        self.fields["lease_min"].initial = LEASE_MIN_DEMO if settings.ENV.demo else LEASE_MIN
        if self.is_bound and self.data.get("schedule") in SCHEDULES:
            for name in ("starts_at", "ends_at"):
                self.fields[name] = forms.CharField(required=False)
        if self.is_bound and self.data.get("reclaim_terms") in RECLAIM_TERMS:
            for name in OWN_TERMS:
                self.fields[name] = forms.CharField(required=False)
        gpus = gpus_of_row(host)
        choices = self.fields["gpu"]
        assert isinstance(choices, forms.MultipleChoiceField)
        choices.choices = [
            (gpu.uuid, f"GPU {number} · {gpu.model}{' · in MIG mode' if is_divisible(gpu) else ''}")
            for number, gpu in enumerate(gpus)
        ]
        if any(gpu.mig_enabled for gpu in gpus):
            self.fields["isolation"].initial = "mig"

    def clean(self) -> dict[str, Any]:
        """Refuse a window that ends before it starts, which no rule below could even be asked."""
        data = super().clean() or {}
        starts_at, ends_at = data.get("starts_at"), data.get("ends_at")
        if not data.get("schedule") and starts_at and ends_at and ends_at <= starts_at:
            self.add_error("ends_at", "The window must end after it starts. Choose a later end.")
        if (data.get("isolation") in SHARED) != (data.get("shares") is not None):
            self.add_error(
                "shares", "Shares need an isolation by MPS or time slices, and a number."
            )
        if data.get("profiles") and data.get("isolation") != "mig":
            self.add_error("profiles", "MIG instances are made only at the isolation MIG instance.")
        divided = data.get("profiles") or data.get("shares")
        if data.get("ways") and (divided or data.get("isolation") in SHARED):
            self.add_error("ways", "Name all forms here, and leave shares and instances out.")
        if data.get("form_min") is not None and "ways" in data and not data["ways"]:
            self.add_error("ways", "Name the forms of which the market may choose.")
        for notice, fee in () if data.get("reclaim_terms") else STEPS:
            if (data.get(notice) is None) != (data.get(fee) is None):
                missing = notice if data.get(notice) is None else fee
                self.add_error(missing, "Say both how much notice and what you pay, or neither.")
        return data

    def clean_profiles(self) -> tuple[str, ...]:
        """Read `3g.40gb 2x2g.20gb`: the profile of each instance."""
        return _profiles(self.cleaned_data["profiles"])

    def clean_ways(self) -> tuple[Form, ...]:
        """Read `whole=2.00; mps:4=0.60; mig:7x1g.10gb=0.30`: each form and its floor."""
        said = [word.strip() for word in self.cleaned_data["ways"].split(";")]
        return tuple(_way(word, self.currency) for word in said if word)


OWN_TERMS = (
    "notice",
    "grace",
    "reclaim_fee",
    *(name for step in STEPS for name in step),
)
"""Fields that count only where no preset of reclaim terms is chosen."""
FOLDED = (
    "lease_min",
    "cleaning",
    "isolation",
    "shares",
    "profiles",
    "workload_kinds",
    "ways",
    "form_min",
)
"""Fields that most owners leave as they are."""


class RepriceForm(forms.Form):
    """A new floor."""

    def __init__(self, *args: Any, currency: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["floor"] = RateField(label="Floor price", currency=currency)


def offers_of(form: OfferForm, zone: ZoneInfo, *, now: datetime) -> tuple[OfferTerms, ...]:
    """Return the offers that the form asks for; one but where a schedule needs several rules.

    What comes back every week keeps its wall time in `zone`.
    """
    schedule = SCHEDULES.get(form.cleaned_data["schedule"])
    if schedule is None:
        return (_terms_of(form.cleaned_data, *_hours_of(form.cleaned_data, zone)),)
    first = timezone.localtime(now, zone).date()
    rules = schedule.rules(zone=str(zone), first=first)
    return tuple(_terms_of(form.cleaned_data, (), rule) for rule in rules)


def _hours_of(data: dict[str, Any], zone: ZoneInfo) -> tuple[tuple[Window, ...], WeeklyRule | None]:
    """Return the owner's own hours: one window, or the weekly rule that it begins."""
    starts_at, ends_at = data["starts_at"], data["ends_at"]
    weekly = None
    if data["repeat"]:
        since, until = timezone.localtime(starts_at, zone), timezone.localtime(ends_at, zone)
        days = {"weekly": (since.weekday(),), "workdays": (0, 1, 2, 3, 4), "daily": tuple(range(7))}
        weekly = WeeklyRule(
            zone=str(zone),
            days=days[data["repeat"]],
            since=since.time().replace(tzinfo=None),
            until=until.time().replace(tzinfo=None),
            first=since.date(),
        )
    return () if weekly else (Window(starts_at, ends_at),), weekly


def _terms_of(
    data: dict[str, Any], windows: tuple[Window, ...], weekly: WeeklyRule | None
) -> OfferTerms:
    kinds = data["workload_kinds"].replace(",", " ").split()
    reclaim = RECLAIM_TERMS.get(data["reclaim_terms"]) or _own_terms(data)
    return OfferTerms(
        gpu_uuids=tuple(data["gpu"]),
        windows=windows,
        weekly=weekly,
        floor=data["floor"],
        lease_min_seconds=data["lease_min"] * MINUTE,
        cleaning_seconds=(data["cleaning"] or 0) * MINUTE,
        notice_seconds=reclaim.notice_seconds,
        grace_seconds=reclaim.grace_seconds,
        reclaim_fee_ppm=reclaim.fee_ppm,
        reclaim_steps=reclaim.steps,
        workload_kinds=tuple(kinds),
        isolation=None if data["ways"] else data["isolation"],
        division=_division(data),
        by_demand=_by_demand(data),
    )


def _own_terms(data: dict[str, Any]) -> ReclaimTerms:
    return ReclaimTerms(
        notice_seconds=data["notice"] * MINUTE,
        grace_seconds=data["grace"],
        fee_ppm=data["reclaim_fee"] * PPM_PER_PERCENT,
        steps=tuple(
            ReclaimStep(data[notice] * HOUR, data[fee] * PPM_PER_PERCENT)
            for notice, fee in STEPS
            if data[notice] is not None
        ),
    )


def is_divisible(gpu: Gpu) -> bool:
    """Tell if a card is in MIG mode and has no instances that its owner made."""
    return gpu.mig_enabled and not gpu.mig_profiles


def _by_demand(data: dict[str, Any]) -> ByDemand | None:
    if not data["ways"]:
        return None
    minutes = data["form_min"]
    return ByDemand(data["ways"]) if minutes is None else ByDemand(data["ways"], minutes * MINUTE)


def _way(said: str, currency: str) -> Form:
    """Read one form of an offer: how a card is leased, and its floor, if it has its own."""
    form = WAY.fullmatch(said)
    if form is None:
        raise forms.ValidationError(
            "Write forms as whole=2.00; mps:4=0.60; mig:7x1g.10gb=0.30, with a semicolon between."
        )
    kind, how, amount = form[1], form[2], form[3]
    try:
        floor = None if amount is None else Rate(nanos_of(amount), currency)
    except Invalid as refusal:
        raise forms.ValidationError(refusal.message()) from refusal
    if kind == "whole":
        return Form(None, floor)
    if kind == "mig":
        return Form(Division("mig", profiles=_profiles(how or "")), floor)
    if not (how or "").isdecimal():
        raise forms.ValidationError(f"Say into how many {kind} shares: {kind}:4.")
    return Form(Division("mps" if kind == "mps" else "timeslice", int(how or 0)), floor)


def _profiles(said: str) -> tuple[str, ...]:
    words = [PROFILE.fullmatch(word) for word in said.lower().replace(",", " ").split()]
    if not all(words):
        raise forms.ValidationError("Write MIG profiles, such as 3g.40gb 2g.20gb or 7x1g.10gb.")
    return tuple(form[2] for form in words if form for _ in range(int(form[1] or 1)))


def _division(data: dict[str, Any]) -> Division | None:
    if data["profiles"]:
        return Division("mig", profiles=data["profiles"])
    return Division(data["isolation"], data["shares"]) if data["shares"] else None
