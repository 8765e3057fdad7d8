"""What an owner sends to change an offer that stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from ledger.rest import AmountField, Body, CountField, TextField
from listings.api.shapes import ReclaimStepBody
from listings.domain.changes import CHANGING, TermsChange
from listings.domain.events import ReclaimStep


class ChangeOffer(Body):
    """A new floor, with its currency, and other terms for leases to come; what is left out stays.

    grace_seconds, left out, becomes the notice where that is shorter now.
    """

    floor = AmountField(required=False)
    currency = TextField(required=False)
    lease_min_seconds = CountField(required=False)
    notice_seconds = CountField(required=False)
    grace_seconds = CountField(required=False)
    reclaim_fee_ppm = CountField(required=False)
    reclaim_steps = serializers.ListField(child=ReclaimStepBody(), required=False, max_length=100)
    workload_kinds = serializers.ListField(child=TextField(), required=False, max_length=100)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a change of nothing, and a floor without a currency."""
        if not attrs:
            raise serializers.ValidationError(
                "Say a floor with its currency, or another term.", "nothing-to-do"
            )
        if ("floor" in attrs) != ("currency" in attrs):
            missing = "currency" if "floor" in attrs else "floor"
            raise serializers.ValidationError(
                {missing: serializers.ErrorDetail("Say both, floor and currency.", "required")}
            )
        return attrs


def change_of(asked: Mapping[str, Any]) -> TermsChange | None:
    """Turn a checked ChangeOffer into what it says of terms other than the floor; None: nothing."""
    said = {name: asked[name] for name in CHANGING if name in asked}
    if "reclaim_steps" in said:
        said["reclaim_steps"] = tuple(ReclaimStep(**step) for step in said["reclaim_steps"])
    if "workload_kinds" in said:
        said["workload_kinds"] = tuple(said["workload_kinds"])
    return TermsChange(**said) if said else None
