"""What owners promise to whoever leases their GPUs, told before the bid is placed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rest_framework import serializers

from ledger.rest import AmountField
from listings.domain.sla import ServiceLevel
from marketplace.queries.books import Promise
from marketplace.queries.service import Service


class PromisedStepShape(serializers.Serializer[Any]):
    """A reclaim with at least this much notice pays this share of the value of the lost rest."""

    notice_seconds = serializers.IntegerField()
    fee_ppm = serializers.IntegerField()


class PromiseShape(serializers.Serializer[Any]):
    """What would be agreed for so many GPUs: the least notice first.

    grace_seconds: what work has between the signal to stop and the kill.
    """

    gpus = serializers.IntegerField()
    steps = PromisedStepShape(many=True)
    grace_seconds = serializers.IntegerField()


class PromisedShape(serializers.Serializer[Any]):
    """What the owners of some GPUs promise for a reclaim at the least notice: from, to."""

    notice_seconds_min = serializers.IntegerField()
    notice_seconds_max = serializers.IntegerField()
    reclaim_fee_ppm_min = serializers.IntegerField()
    reclaim_fee_ppm_max = serializers.IntegerField()
    grace_seconds_min = serializers.IntegerField()
    grace_seconds_max = serializers.IntegerField()


class ShortShape(serializers.Serializer[Any]):
    """One way to fall short of a promise, and what is credited for it at the quoted cost.

    late_seconds: it starts later than so; null: in time. below_ppm: it is available for less than
    so; null: for long enough.
    """

    text = serializers.CharField()
    late_seconds = serializers.IntegerField(allow_null=True)
    below_ppm = serializers.IntegerField(allow_null=True)
    credit_ppm = serializers.IntegerField()
    credit = AmountField()


class ServiceShape(serializers.Serializer[Any]):
    """What is promised of the service of so many of the GPUs, and what each miss would credit."""

    gpus = serializers.IntegerField()
    start_by_seconds = serializers.IntegerField(allow_null=True)
    availability_ppm = serializers.IntegerField(allow_null=True)
    misses = ShortShape(many=True)


class ServiceListedShape(serializers.Serializer[Any]):
    """On how many listed GPUs a promise of service stands, and the best that is promised.

    start_by_seconds, availability_ppm: null: nobody promises one.
    """

    gpus = serializers.IntegerField()
    start_by_seconds = serializers.IntegerField(source="start_seconds", allow_null=True)
    availability_ppm = serializers.IntegerField(allow_null=True)


def service_json(service: Iterable[Service]) -> list[Any]:
    """Return the promised service of a quote as the API shows it."""
    return [
        {
            "gpus": each.gpus,
            "start_by_seconds": each.terms.start_by_seconds,
            "availability_ppm": ServiceLevel.of(each.terms).availability_ppm,
            "misses": [
                {
                    "text": short.text,
                    **short.miss._asdict(),
                    "credit": AmountField().to_representation(short.credit.nanos),
                }
                for short in each.short
            ],
        }
        for each in service
    ]


def promises_json(promises: Iterable[Promise]) -> list[Any]:
    """Return the promises of a quote as the API shows them."""
    return [
        {
            "gpus": each.gpus,
            "steps": [
                {"notice_seconds": step.notice_seconds, "fee_ppm": step.fee_ppm}
                for step in each.steps
            ],
            "grace_seconds": each.grace_seconds,
        }
        for each in promises
    ]
