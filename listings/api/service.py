"""What is promised of an offer's service, over HTTP: with what each way to miss it credits."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from listings.domain.sla import missed, misses
from listings.queries import sla_of


class SlaStepShape(serializers.Serializer[Any]):
    """Available for less than this part of its granted time, this share is credited; both ppm."""

    below_ppm = serializers.IntegerField()
    credit_ppm = serializers.IntegerField()


class MissShape(serializers.Serializer[Any]):
    """One way to miss a promise, and the share of a lease's charge that is credited for it.

    late_seconds: it starts later than so; null: in time. below_ppm: it is available for less than
    so; null: for long enough.
    """

    text = serializers.CharField()
    late_seconds = serializers.IntegerField(allow_null=True)
    below_ppm = serializers.IntegerField(allow_null=True)
    credit_ppm = serializers.IntegerField()


class SlaShape(serializers.Serializer[Any]):
    """What is promised of the service, and which share of a lease's charge is credited else.

    start_by_seconds: null: no start is promised. misses: each way to miss it.
    """

    start_by_seconds = serializers.IntegerField(allow_null=True)
    late_credit_ppm = serializers.IntegerField()
    steps = SlaStepShape(many=True)
    misses = serializers.SerializerMethodField()

    @extend_schema_field(MissShape(many=True))
    def get_misses(self, said: dict[str, Any]) -> list[dict[str, Any]]:
        """Return what each way to miss it credits."""
        terms = sla_of(said)
        found = () if terms is None else misses(terms)
        return [{"text": missed(each), **each._asdict()} for each in found]
