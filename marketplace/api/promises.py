"""What owners promise to whoever leases their GPUs, told before the bid is placed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rest_framework import serializers

from marketplace.queries.books import Promise


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
