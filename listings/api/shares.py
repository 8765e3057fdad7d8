"""How the API of supply is told that GPUs are divided into shares, and tells it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from rest_framework import serializers

from ledger.rest import Body, CountField, TextField
from listings.domain.divisions import SHARES_MAX
from listings.domain.events import Division, Part, ShareKind


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


def division_of(asked: Mapping[str, Any]) -> Division:
    """Turn a checked SharesBody into that of the domain."""
    parts = tuple(
        Part(each["memory_mib"], each.get("compute_percent")) for each in asked.get("parts", ())
    )
    profiles = tuple(asked.get("profiles", ()))
    return Division(asked["kind"], asked.get("count", 0), parts, profiles)
