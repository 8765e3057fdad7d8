"""Strict fields of request bodies: what is not meant exactly so is refused, never guessed."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.fields import empty

from ledger.domain.money import decimal_of, nanos_of
from ledger.domain.refusal import Refusal

MOMENT_MIN = datetime(2000, 1, 1, tzinfo=UTC)
MOMENT_MAX = datetime(2200, 1, 1, tzinfo=UTC)
COUNT_MAX = 2**31 - 1
DURATION_SECONDS_MAX = 366 * 86_400
TEXT_LENGTH_MAX = 10_000
"""Of a text that has no bound of its own."""
UNKNOWN_TOLD_MAX = 20

_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})?"
)


class Body(serializers.Serializer[Any]):
    """A request body. Fields it does not declare are refused, so that a typo is noticed.

    All that is wrong with it is told at once. Not for threads.
    """

    _given: Collection[str] | None = None

    @property
    def _writable_fields(self) -> list[serializers.Field[Any, Any, Any, Any]]:
        """Return the fields that say anything to what is given: a bid leaves out two in three."""
        given = self.fields if self._given is None else self._given
        return [
            field
            for name, field in self.fields.items()
            if not field.read_only
            and (name in given or field.required or field.default is not empty)
        ]

    def to_internal_value(self, data: Any) -> Any:
        """Check the names, then every field."""
        self._given = data if type(data) is dict else None
        wrong: dict[str, Any] = {}
        if isinstance(data, Mapping):
            known = ", ".join(self.fields)
            wrong = {
                name: serializers.ErrorDetail(
                    f"There is no field of this name here. Known: {known}.", "unknown-field"
                )
                for name in sorted(set(map(str, data)) - set(self.fields))[:UNKNOWN_TOLD_MAX]
            }
        try:
            found = super().to_internal_value(data)
        except serializers.ValidationError as others:
            if wrong and isinstance(others.detail, dict):
                raise serializers.ValidationError({**others.detail, **wrong}) from others
            raise
        if wrong:
            raise serializers.ValidationError(wrong)
        return found


def refuse(code: str, message: str) -> NoReturn:
    """Refuse one field's value."""
    raise serializers.ValidationError(message, code=code)


def refused_as_field(rule: Callable[[str], int], text: str) -> int:
    """Ask a rule of the domain; its refusal becomes the field's error."""
    try:
        return rule(text)
    except Refusal as refusal:
        refuse(refusal.code, f"{refusal.message()} {refusal.advice()}".strip())


class AmountField(serializers.Field[int, Any, str, Any]):
    """An amount of money as a decimal string; inside, whole nano-units.

    A JSON number is refused: it has passed through floating point somewhere.
    """

    def to_internal_value(self, data: Any) -> int:
        """Read `"2.15"` as nano-units."""
        if not isinstance(data, str):
            refuse("amount-not-a-string", 'Write an amount as a string, such as "2.15".')
        return refused_as_field(nanos_of, data)

    def to_representation(self, value: int) -> str:
        """Write nano-units with two to nine decimal places."""
        return decimal_of(value)


@extend_schema_field({"type": "string", "format": "date-time", "example": "2026-01-05T12:00:00Z"})
class MomentField(serializers.Field[datetime, Any, str, Any]):
    """An instant as RFC 3339 with its offset; inside, aware and in UTC."""

    def to_internal_value(self, data: Any) -> datetime:
        """Read `"2026-01-05T12:00:00+01:00"`."""
        form = _MOMENT.fullmatch(data) if isinstance(data, str) else None
        if form is None:
            refuse(
                "moment-unreadable",
                "Write a time as RFC 3339 with an offset, such as 2026-01-05T12:00:00Z.",
            )
        if form[2] is None:
            refuse("moment-without-offset", "Say which offset: end the time with Z or +01:00.")
        try:
            moment = datetime.fromisoformat(data).astimezone(UTC)
        except (ValueError, OverflowError):
            refuse("moment-unreadable", "There is no such day or time of day.")
        if not MOMENT_MIN <= moment < MOMENT_MAX:
            refuse("moment-out-of-range", "A time must lie between the years 2000 and 2200.")
        return moment

    def to_representation(self, value: datetime) -> str:
        """Write the instant in UTC with Z."""
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


class CountField(serializers.Field[int, Any, int, Any]):
    """A whole number between two bounds; 5.0, "5" and true are refused."""

    def __init__(self, *, value_min: int = 0, value_max: int = COUNT_MAX, **options: Any) -> None:
        super().__init__(**options)
        self.value_min, self.value_max = value_min, value_max

    def to_internal_value(self, data: Any) -> int:
        """Check kind and bounds."""
        if isinstance(data, bool) or not isinstance(data, int):
            refuse("not-a-whole-number", "Write a whole number, without quotes or a fraction.")
        if not self.value_min <= data <= self.value_max:
            bounds = f"Must lie between {self.value_min} and {self.value_max}."
            refuse("out-of-range", bounds)
        return int(data)

    def to_representation(self, value: int) -> int:
        """Write it as it is."""
        return value


class DurationField(serializers.Field[timedelta, Any, int, Any]):
    """A length of time in whole seconds between two bounds."""

    def __init__(
        self, *, seconds_min: int = 0, seconds_max: int = DURATION_SECONDS_MAX, **options: Any
    ) -> None:
        super().__init__(**options)
        self.seconds = CountField(value_min=seconds_min, value_max=seconds_max)

    def to_internal_value(self, data: Any) -> timedelta:
        """Read whole seconds."""
        return timedelta(seconds=self.seconds.to_internal_value(data))

    def to_representation(self, value: timedelta) -> int:
        """Write whole seconds."""
        return value // timedelta(seconds=1)


class TextField(serializers.CharField):
    """A string, trimmed; numbers are not taken for text."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"max_length": TEXT_LENGTH_MAX, **options})

    def to_internal_value(self, data: Any) -> str:
        """Check kind and length."""
        if not isinstance(data, str):
            refuse("not-a-string", "Write this as a string.")
        return super().to_internal_value(data)
