"""Events to JSON bytes and back, old versions included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from ledger.domain.event import EVENT_TYPES, Event

T = TypeVar("T")
Upcast = Callable[[dict[str, Any]], dict[str, Any]]

_upcasters: dict[tuple[str, int], Upcast] = {}
_present: dict[tuple[str, int], msgspec.json.Decoder[Any]] = {}
"""By name and version, of the events that need no upcasting: nearly all that is ever read."""
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_encoder = msgspec.json.Encoder(order="deterministic")


class UnknownEventType(Exception):
    """A stored event has a name that no code of this version knows. Upgrade before reading."""


def upcaster(name: str, *, from_version: int) -> Callable[[Upcast], Upcast]:
    """Register how the fields of `name` at `from_version` become those of the next version."""

    def register(upcast: Upcast) -> Upcast:
        key = (name, from_version)
        assert key not in _upcasters, f"two upcasters for {key}"
        _upcasters[key] = upcast
        return upcast

    return register


def encode(value: object) -> bytes:
    """Write a dataclass as JSON: sorted keys, so that equal values are equal bytes."""
    return _encoder.encode(value)


def decode(name: str, schema_version: int, data: bytes) -> Event:
    """Read back what `encode` wrote for the event type `name`, whichever version wrote it.

    Raises:
        UnknownEventType: no such event, or written by a newer version of the program.
    """
    decoder = _present.get((name, schema_version))
    if decoder is not None:
        event: Event = decoder.decode(data)
        return event
    kind = EVENT_TYPES.get(name)
    if kind is None or schema_version > kind.schema_version:
        raise UnknownEventType(f"{name} version {schema_version}")
    if schema_version >= kind.grown_from:
        _present[name, schema_version] = msgspec.json.Decoder(kind)
        return decode(name, schema_version, data)
    fields: dict[str, Any] = msgspec.json.decode(data)
    for version in range(schema_version, kind.grown_from):
        fields = _upcasters[name, version](fields)
    event = msgspec.convert(fields, kind)
    return event


def decode_as(kind: type[T], data: bytes) -> T:
    """Read JSON as a `kind`, strictly by its field types."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    value: T = decoder.decode(data)
    return value


def missing_upcasters() -> list[str]:
    """Name every old version of an event type that could not be read: a start-up check."""
    return [
        f"{name} version {version}"
        for name, kind in sorted(EVENT_TYPES.items())
        for version in range(1, kind.grown_from)
        if (name, version) not in _upcasters
    ]
