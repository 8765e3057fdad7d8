"""Intervals as plain rows, read without an object for each.

A batch of a thousand is read in the time in which the careful reader makes a hundred objects.
Whoever reads so says only that all is well; whatever is not, the careful reader reads again, and
what it says of it is what the agent hears.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import MISSING, fields
from functools import cache
from itertools import islice
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from metering.agent.strict import Between, Length, WireError
from metering.agent.wire import BATCH_MAX, Health, Interval

Row = tuple[Any, ...]
"""The values of FIELDS: the first five are number, lease, GPU, start and end."""
FIELDS = tuple(each.name for each in fields(Interval) if each.name != "granted_ms")
"""What is stored of an interval; its granted time is end less start."""

_of_interval = operator.attrgetter(*FIELDS)


def rows_of(intervals: Sequence[Interval]) -> list[Row]:
    """Return intervals that were read carefully."""
    return [_of_interval(each) for each in intervals]


def read_quickly(body: bytes) -> tuple[UUID, list[Row], tuple[Health, ...]] | None:
    """Return the boot id, intervals and health events of a `SampleBatch`; None: read it carefully.

    What it returns is what the careful reader would, but of a field that is given twice the last.
    """
    try:
        batch = _decoder().decode(body)
        health = tuple(map(Health.from_json, batch.health))
        rows = [*map(_of_struct(), batch.batch)]
        names = {text: _uuid(text) for text in {batch.boot_id, *(row[1] for row in rows)}}
    except (msgspec.MsgspecError, WireError, ValueError):
        return None
    rows = [(row[0], names[row[1]], *row[2:-1]) for row in rows] if _are_sound(rows) else []
    if len(rows) < len(batch.batch) or not _in_order([each.seq for each in health]):
        return None
    if health and {row[0] for row in rows} & {each.seq for each in health}:
        return None
    return names[batch.boot_id], rows, health


def _are_sound(rows: Sequence[Row]) -> bool:
    """Tell if rows, with their granted time last, are as `Interval` and `SampleBatch` ask."""
    if not rows:
        return True
    column = dict(zip((*FIELDS, "granted_ms"), zip(*rows, strict=True), strict=True))
    granted = column["granted_ms"]
    if not _in_order(column["seq"]) or not all(map(operator.gt, granted, [0] * len(rows))):
        return False
    if [*map(operator.sub, column["end_ms"], column["start_ms"])] != [*granted]:
        return False
    for name in ("occupied_ms", "busy_ms"):
        pairs = zip(column[name], granted, strict=True)
        if any(value is not None and value > most for value, most in pairs):
            return False
    return all(_is_text(name) for name in set(column["gpu_uuid"]))


def _in_order(seqs: Sequence[int]) -> bool:
    return all(map(operator.lt, seqs, islice(seqs, 1, None)))


def _is_text(name: str) -> bool:
    return name.isascii() and "\x00" not in name


def _uuid(text: str) -> UUID:
    if len(text) != 36:
        raise ValueError(text)
    return UUID(text)


@cache
def _struct() -> Any:
    hints = get_type_hints(Interval, include_extras=True)
    known = [(each.name, _bounded(hints[each.name]), each.default) for each in fields(Interval)]
    return msgspec.defstruct(
        "IntervalRow",
        [
            (name, kind) if default is MISSING else (name, kind, default)
            for name, kind, default in known
        ],
        forbid_unknown_fields=True,
        kw_only=True,
        gc=False,
    )


@cache
def _of_struct() -> operator.attrgetter[Row]:
    return operator.attrgetter(*FIELDS, "granted_ms")


@cache
def _decoder() -> msgspec.json.Decoder[Any]:
    batch = msgspec.defstruct(
        "BatchOfRows",
        [
            ("boot_id", str),
            ("batch", Annotated[list[_struct()], msgspec.Meta(max_length=BATCH_MAX)]),  # type: ignore[misc]  # made here
            ("health", Annotated[list[Any], msgspec.Meta(max_length=BATCH_MAX)]),
        ],
        forbid_unknown_fields=True,
        kw_only=True,
    )
    return msgspec.json.Decoder(batch)


def _bounded(kind: Any) -> Any:
    """Return a type of `strict` as msgspec has it."""
    if kind is UUID:
        return str
    if get_origin(kind) is Annotated:
        inner, bound = get_args(kind)
        match bound:
            case Between():
                return Annotated[inner, msgspec.Meta(ge=bound.low, le=bound.high)]
            case Length():
                return Annotated[inner, msgspec.Meta(min_length=bound.low, max_length=bound.high)]
    options = [each for each in get_args(kind) if each is not NoneType]
    return _bounded(options[0]) | None if options else kind
