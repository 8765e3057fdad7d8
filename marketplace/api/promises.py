"""What owners promise to whoever leases their GPUs, told before the bid is placed."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from listings.domain.events import ReclaimStep


class PromisedStepShape(serializers.Serializer[Any]):
    """A reclaim with at least this much notice pays this share of the value of the lost rest."""

    notice_seconds = serializers.IntegerField()
    fee_ppm = serializers.IntegerField()


class PromiseShape(serializers.Serializer[Any]):
    """What would be agreed for so many GPUs: the least notice first."""

    gpus = serializers.IntegerField()
    steps = PromisedStepShape(many=True)


def promises_json(promises: tuple[tuple[int, tuple[ReclaimStep, ...]], ...]) -> list[Any]:
    """Return the promises of a quote as the API shows them."""
    return [
        {
            "gpus": gpus,
            "steps": [
                {"notice_seconds": step.notice_seconds, "fee_ppm": step.fee_ppm} for step in steps
            ],
        }
        for gpus, steps in promises
    ]
