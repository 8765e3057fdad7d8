"""Strict JSON for frozen dataclasses: what does not fit is refused, with its place and reason.

A decoder is compiled once per type, so that a server can read thousands of rows a second with it.
Understood types: str, int, bool, UUID, datetime, Literal, X | None, tuple[X, ...],
Mapping[str, str], other `Message` classes, and Annotated with `Between` or `Length`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin, get_type_hints
from uuid import UUID

Decoder = Callable[[object], Any]

TEXT_LENGTH_MAX = 65_536
JSON_BYTES_MAX = 8 * 1024 * 1024


class WireError(ValueError):
    """A message is not what the contract says. `place` is the path in it, `reason` the fault."""

    def __init__(self, reason: str, place: str = "") -> None:
        self.reason = reason
        self.place = place
        super().__init__(f"{place}: {reason}" if place else reason)

    def under(self, step: str) -> WireError:
        """Return the same error seen from one level further out."""
        joint = "" if not self.place or self.place.startswith("[") else "."
        self.place = f"{step}{joint}{self.place}"
        self.args = (f"{self.place}: {self.reason}",)
        return self


class UnknownWord(WireError):
    """A text is none of the words that may stand there: whoever wrote it may be of a later version.

    word: the text.
    """

    def __init__(self, reason: str, word: str) -> None:
        super().__init__(reason)
        self.word = word


@dataclass(frozen=True, slots=True)
class Between:
    """Bounds of a whole number, both included."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Length:
    """Bounds of the length of a text, list or mapping, both included."""

    low: int
    high: int


class Message:
    """Gives a frozen dataclass `from_json` and `to_json`."""

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read one message from parsed JSON.

        Raises:
            WireError: a field is missing, unknown, of another type or out of bounds.
        """
        kind: Any = cls
        message: Self = _decoder(kind)(data)
        return message

    def to_json(self) -> dict[str, Any]:
        """Return the message as JSON values; `from_json` gives it back unchanged."""
        own: Any = self
        return {field.name: _encode(getattr(self, field.name)) for field in fields(own)}

    def unusual(self) -> dict[str, Any]:
        """Return it as JSON without the fields that have their default.

        Who is of before refuses a field that it does not know, and with it all the message.
        """
        own: Any = self
        usual = {field.name: field.default for field in fields(own)}
        said = Message.to_json(self)
        return {name: said[name] for name in said if getattr(self, name) != usual[name]}


def parse(text: bytes | str) -> object:
    """Parse JSON, without what JSON does not have (NaN, Infinity) and without repeated keys.

    Raises:
        WireError: not JSON, or larger than JSON_BYTES_MAX.
    """
    if len(text) > JSON_BYTES_MAX:
        raise WireError(f"is larger than {JSON_BYTES_MAX} bytes")
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except WireError:
        raise
    except (ValueError, RecursionError) as error:
        raise WireError(f"is not JSON ({error})") from error


def dump(data: Mapping[str, Any]) -> bytes:
    """Return compact JSON; NaN cannot be written."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).encode()


def _refuse_constant(name: str) -> object:
    raise WireError(f"{name} is not a number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise WireError("a field is given twice")
    return found


def _encode(value: object) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case UUID():
            return str(value)
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case tuple() | list():
            return [_encode(item) for item in value]
        case Mapping():
            return {str(key): _encode(item) for key, item in value.items()}
        case Message():
            return value.to_json()
    raise TypeError(f"{type(value).__name__} has no place in a message")


@cache
def _decoder(kind: Any) -> Decoder:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _bounded(_decoder(arguments[0]), arguments[1:])
    if origin in (Union, UnionType):
        (inner,) = (argument for argument in arguments if argument is not NoneType)
        return _optional(_decoder(inner))
    if origin is Literal:
        return _choice(arguments)
    if origin is tuple:
        return _sequence(_decoder(arguments[0]))
    if origin is Mapping:
        return _mapping(_decoder(arguments[1]))
    if isinstance(kind, type) and issubclass(kind, Message):
        return _message(kind)
    return _SCALARS[kind]


def _bounded(inner: Decoder, bounds: tuple[Any, ...]) -> Decoder:
    (bound,) = bounds
    low, high = bound.low, bound.high
    if isinstance(bound, Between):

        def number(data: object) -> Any:
            value = inner(data)
            if not low <= value <= high:
                raise WireError(f"must be from {low} to {high}, not {value}")
            return value

        return number

    def sized(data: object) -> Any:
        value = inner(data)
        if not low <= len(value) <= high:
            raise WireError(f"must have a length from {low} to {high}, not {len(value)}")
        return value

    return sized


def _optional(inner: Decoder) -> Decoder:
    return lambda data: None if data is None else inner(data)


def _choice(choices: tuple[Any, ...]) -> Decoder:
    def choice(data: object) -> Any:
        if not isinstance(data, str):
            raise WireError(f"must be one of {', '.join(choices)}")
        if data not in choices:
            raise UnknownWord(f"must be one of {', '.join(choices)}", data)
        return data

    return choice


def _sequence(inner: Decoder) -> Decoder:
    def sequence(data: object) -> Any:
        if not isinstance(data, list | tuple):
            raise WireError("must be a list")
        items = []
        for index, item in enumerate(data):
            try:
                items.append(inner(item))
            except WireError as error:
                raise error.under(f"[{index}]") from None
        return tuple(items)

    return sequence


def _mapping(inner: Decoder) -> Decoder:
    def mapping(data: object) -> Any:
        if not isinstance(data, Mapping):
            raise WireError("must be an object")
        found = {}
        for key, item in data.items():
            try:
                found[_text(key)] = inner(item)
            except WireError as error:
                raise error.under(str(key)[:80]) from None
        return found

    return mapping


def _message(kind: Any) -> Decoder:
    hints = get_type_hints(kind, include_extras=True)
    decoders = {field.name: _decoder(hints[field.name]) for field in fields(kind)}
    needed = {field.name for field in fields(kind) if field.default is MISSING}

    def message(data: object) -> Any:
        if not isinstance(data, Mapping):
            raise WireError("must be an object")
        values = {}
        for name, item in data.items():
            decode = decoders.get(name)
            if decode is None:
                raise WireError("is not a known field", str(name)[:80])
            try:
                values[name] = decode(item)
            except WireError as error:
                raise error.under(name) from None
        if not needed <= values.keys():
            raise WireError("is missing", min(needed - values.keys()))
        return kind(**values)

    return message


def _text(data: object) -> str:
    if not isinstance(data, str):
        raise WireError("must be a text")
    if len(data) > TEXT_LENGTH_MAX:
        raise WireError(f"is longer than {TEXT_LENGTH_MAX} characters")
    odd = not data.isascii() and any("\ud800" <= character <= "\udfff" for character in data)
    if "\x00" in data or odd:
        raise WireError("holds a character that is not text")
    return data


def _whole(data: object) -> int:
    if type(data) is not int:
        raise WireError("must be a whole number")
    return data


def _truth(data: object) -> bool:
    if type(data) is not bool:
        raise WireError("must be true or false")
    return data


def _uuid(data: object) -> UUID:
    if isinstance(data, UUID):
        return data
    try:
        if isinstance(data, str) and len(data) == 36:
            return UUID(data)
    except ValueError:
        pass
    raise WireError("must be a UUID")


def _moment(data: object) -> datetime:
    if not isinstance(data, datetime):
        if not isinstance(data, str):
            raise WireError("must be a time as text")
        try:
            data = datetime.fromisoformat(data)
        except ValueError:
            raise WireError("must be an ISO 8601 time") from None
    if data.utcoffset() is None:
        raise WireError("must name its time zone")
    try:
        return data.astimezone(UTC)
    except OverflowError:
        raise WireError("must be an ISO 8601 time") from None


_SCALARS: dict[Any, Decoder] = {
    str: _text,
    int: _whole,
    bool: _truth,
    UUID: _uuid,
    datetime: _moment,
}
