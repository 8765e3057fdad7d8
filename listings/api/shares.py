"""How the API of supply is told that GPUs are divided into shares, and tells it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from rest_framework import serializers

from ledger.domain.money import Rate
from ledger.rest import AmountField, Body, CountField, TextField
from listings.domain.divisions import SHARES_MAX
from listings.domain.events import ByDemand, Division, Form, Part, ShareKind
from listings.domain.forms import FORMS_MAX


class ShareBody(Body):
    """One share of a card. compute_percent: by MPS; time slices are equal."""

    memory_mib = CountField()
    compute_percent = CountField(required=False)


class SharesBody(Body):
    """How each GPU of the offer is divided: into `count` equal shares, or into these `parts`.

    By MIG: into instances of these `profiles`, or `count` of one.
    """

    kind = serializers.ChoiceField(choices=get_args(ShareKind))
    count = CountField(required=False)
    parts = serializers.ListField(child=ShareBody(), required=False, max_length=SHARES_MAX)
    profiles = serializers.ListField(child=TextField(), required=False, max_length=SHARES_MAX)


class FormBody(Body):
    """One form of an offer by demand: whole, or `shares`. floor: that of the offer, if left out."""

    shares = SharesBody(required=False, allow_null=True)
    floor = AmountField(required=False)


class ByDemandBody(Body):
    """The forms among which the market chooses; the offer begins with the first."""

    forms = serializers.ListField(child=FormBody(), max_length=FORMS_MAX)
    form_min_seconds = CountField(required=False)


class PartShape(serializers.Serializer[Any]):
    """One share of a card."""

    memory_mib = serializers.IntegerField()
    compute_percent = serializers.IntegerField(allow_null=True)


class DivisionShape(serializers.Serializer[Any]):
    """How each GPU of an offer is divided: into `count` equal shares, or into these `parts`.

    By MIG: into instances of these `profiles`.
    """

    kind = serializers.CharField()
    count = serializers.IntegerField()
    parts = PartShape(many=True)
    profiles = serializers.ListField(child=serializers.CharField(), default=list)


class FormShape(serializers.Serializer[Any]):
    """One form of an offer by demand."""

    shares = DivisionShape(source="division", allow_null=True)
    floor = AmountField(source="floor.nanos_per_gpu_hour")


class ByDemandShape(serializers.Serializer[Any]):
    """The forms among which the market chooses."""

    forms = FormShape(many=True)
    form_min_seconds = serializers.IntegerField()


class ChosenShape(serializers.Serializer[Any]):
    """Why an offer is in its form: what waiting bids would have paid in it, and in the old one."""

    instead_of = serializers.UUIDField()
    worth = AmountField(source="worth.nanos")
    worth_before = AmountField(source="worth_before.nanos")
    currency = serializers.CharField(source="worth.currency")
    bids = serializers.IntegerField()
    bids_before = serializers.IntegerField()


def by_demand_of(asked: Mapping[str, Any], currency: str) -> ByDemand:
    """Turn a checked ByDemandBody into that of the domain."""
    forms = tuple(
        Form(
            None if each.get("shares") is None else division_of(each["shares"]),
            None if each.get("floor") is None else Rate(each["floor"], currency),
        )
        for each in asked["forms"]
    )
    known = {"form_min_seconds": asked["form_min_seconds"]} if "form_min_seconds" in asked else {}
    return ByDemand(forms, **known)


def division_of(asked: Mapping[str, Any]) -> Division:
    """Turn a checked SharesBody into that of the domain."""
    parts = tuple(
        Part(each["memory_mib"], each.get("compute_percent")) for each in asked.get("parts", ())
    )
    profiles = tuple(asked.get("profiles", ()))
    return Division(asked["kind"], asked.get("count", 0), parts, profiles)
