"""Why a bid is not matched, as the API shows it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from rest_framework import serializers

from ledger.rest import AmountField
from marketplace.domain.placement.eligibility import REASONS, Explanation


class ReasonShape(serializers.Serializer[Any]):
    """The first constraint that leaves too few GPUs, and how it reads."""

    constraint = serializers.CharField()
    text = serializers.CharField()


class StageShape(serializers.Serializer[Any]):
    """GPUs left once one more constraint is applied, and how many fewer those are than before.

    asked: of notice, reclaim and grace, the condition of the query; else empty.
    """

    constraint = serializers.CharField()
    gpus = serializers.IntegerField()
    fewer = serializers.IntegerField()
    asked = serializers.CharField()


class ExplanationShape(serializers.Serializer[Any]):
    """The funnel from all GPUs of the market to those that can serve the bid, and what is lacking.

    price_needed: the lowest limit at which it could be placed now, all else equal. told: where a
    quota or limit stands in the way, its arithmetic.
    """

    state = serializers.CharField()
    funnel = StageShape(many=True)
    reason = ReasonShape(allow_null=True)
    told = serializers.CharField()
    can_be_placed = serializers.BooleanField()
    price_needed = AmountField(allow_null=True)
    currency = serializers.CharField()


def reason_json(reason: str | None) -> dict[str, str] | None:
    """Return a reason as the API shows it; one of an older rule reads as its name."""
    return {"constraint": reason, "text": REASONS.get(reason, reason)} if reason else None


def explanation_json(
    explanation: Explanation | None, *, state: str, currency: str
) -> dict[str, Any]:
    """Return an explanation as the API shows it; None: the bid does not wait any more."""
    found = explanation or Explanation((), None, None, None)
    needed = found.price_needed
    return {
        "state": state,
        "funnel": [
            {
                "constraint": stage.constraint,
                "gpus": stage.left,
                "fewer": before.left - stage.left,
                "asked": stage.asked,
            }
            for before, stage in pairwise([*found.funnel[:1], *found.funnel])
        ],
        "reason": reason_json(found.reason),
        "told": found.told,
        "can_be_placed": found.placement is not None,
        "price_needed": None if needed is None else _amount(needed.nanos_per_gpu_hour),
        "currency": currency,
    }


_amount = AmountField().to_representation
