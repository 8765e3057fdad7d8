"""Figures of GPUs where parts of cards may be counted: whole, or with at most three decimals."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers


@extend_schema_field(OpenApiTypes.NUMBER)
class CountedField(serializers.Field[float, Any, float, Any]):
    """A number of GPUs: 2, or 0.143 where parts of a card count as parts."""

    def __init__(self, **more: Any) -> None:
        super().__init__(read_only=True, **more)

    def to_representation(self, value: float) -> float:
        """Return it as it was reckoned: whole where it is whole."""
        return value
