"""Lists in pages: `{data, next}`, where `next` is an opaque cursor or null."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet
from rest_framework import serializers

from ledger.domain.refusal import Invalid
from ledger.domain.whole_numbers import whole_number

LIMIT_DEFAULT = 50
LIMIT_MAX = 200
CURSOR_LENGTH_MAX = 1_000

RowT = TypeVar("RowT", bound=Model)
Ordered = tuple[str, ...]
"""Fields to order by, `-` for descending. None may be null; together they name one row."""


class CursorUnreadable(Invalid):
    """That cursor did not come from this list.

    Use `next` of the page before as it is, with the same order.
    """


class LimitOutOfRange(Invalid):
    """A page holds between 1 and 200 entries."""


def paginate(
    rows: QuerySet[RowT],
    shape: type[serializers.BaseSerializer[Any]] | Callable[[RowT], Any],
    order: Ordered,
    *,
    query: Mapping[str, str],
) -> dict[str, Any]:
    """Return one page of `rows` as `{data, next}`.

    Rows that come or go between two pages shift nothing: a page starts after the last row of
    the one before, not at a number.

    Args:
        shape: a serializer class, or a function from a row to what is sent.
        query: the request's parameters; `limit` and `cursor` are read.
    Raises: CursorUnreadable, LimitOutOfRange.
    """
    limit = _limit(query.get("limit", str(LIMIT_DEFAULT)))
    cursor = query.get("cursor")
    if cursor is not None:
        rows = rows.filter(_after(order, _read_cursor(rows.model, order, cursor)))
    found = list(rows.order_by(*order)[: limit + 1])
    page = found[:limit]
    more = len(found) > limit
    return {"data": _shaped(page, shape), "next": write_cursor(order, page[-1]) if more else None}


def paginate_entries(
    entries: Sequence[Mapping[str, Any]], key: Sequence[str], query: Mapping[str, str]
) -> dict[str, Any]:
    """Return entries that are worked out as `{data, next}`: all of them, where no `limit` is said.

    Args:
        key: fields that together name an entry. A cursor names the last one of its page, so one
            that is gone meanwhile makes the cursor unreadable, as its place is not known.
    Raises: CursorUnreadable, LimitOutOfRange.
    """
    limit = _limit(query["limit"]) if "limit" in query else None
    names = [_written([str(entry[name]) for name in key]) for entry in entries]
    start = 0
    cursor = query.get("cursor")
    if cursor is not None:
        if cursor not in names:
            raise CursorUnreadable()
        start = names.index(cursor) + 1
    end = len(entries) if limit is None else start + limit
    more = end < len(entries)
    return {"data": list(entries[start:end]), "next": names[end - 1] if more else None}


def _written(values: Sequence[str]) -> str:
    text = json.dumps(values, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _limit(text: str) -> int:
    try:
        return whole_number(text, least=1, most=LIMIT_MAX)
    except ValueError:
        raise LimitOutOfRange(limit_max=LIMIT_MAX) from None


def _shaped(page: Sequence[RowT], shape: Any) -> list[Any]:
    if isinstance(shape, type) and issubclass(shape, serializers.BaseSerializer):
        return list(shape(page, many=True).data)
    return [shape(row) for row in page]


def write_cursor(order: Ordered, row: Model) -> str:
    """Write down where `row` stands in the order."""
    values = []
    for name in order:
        field = row._meta.get_field(name.removeprefix("-"))
        values.append(field.value_to_string(row))  # type: ignore[union-attr]  # a column, no relation
    return _written(values)


def _read_cursor(model: type[Model], order: Ordered, cursor: str) -> list[Any]:
    try:
        if len(cursor) > CURSOR_LENGTH_MAX:
            raise CursorUnreadable()
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        values = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        if not isinstance(values, list) or len(values) != len(order):
            raise CursorUnreadable()
        return [_value(model, name, text) for name, text in zip(order, values, strict=True)]
    except (binascii.Error, ValueError, ValidationError, RecursionError, OverflowError) as failure:
        raise CursorUnreadable() from failure


def _value(model: type[Model], name: str, text: object) -> Any:
    if not isinstance(text, str) or "\0" in text:
        raise CursorUnreadable()
    text.encode()  # refuses lone surrogates, which the database would
    field = model._meta.get_field(name.removeprefix("-"))
    value = field.to_python(text)  # type: ignore[union-attr]  # a column, no relation
    field.run_validators(value)  # type: ignore[union-attr]
    return value


def _after(order: Ordered, values: Sequence[Any]) -> Q:
    """Rows after the one with these values: equal in the first n fields, beyond in the next."""
    condition = Q()
    equal: dict[str, Any] = {}
    for name, value in zip(order, values, strict=True):
        field = name.removeprefix("-")
        beyond = "lt" if name.startswith("-") else "gt"
        condition |= Q(**equal, **{f"{field}__{beyond}": value})
        equal[field] = value
    return condition
