"""Messages of a later version: read without what they have beyond this one, which is noted.

A field that is not known is left out. A word that is not known has a cautious one in its place, or
the item of a list that it stands in is set aside, so that it never keeps what is beside it from
being taken. Everything else that does not fit is refused as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from .strict import Message, UnknownWord, WireError
from .wire import Assignments, LogBatch, LogPieceTaken, Registration, ReportBatch, Unread

M = TypeVar("M", bound=Message)

CAUTIOUS: Mapping[tuple[type[Message], str], str] = {
    (Registration, "taking"): "paused",
    (Assignments, "taking"): "paused",
    (LogPieceTaken, "outcome"): "closed",
}
"""What stands in the place of a word that is not known."""
APART: Mapping[tuple[type[Message], str], type[WireError]] = {
    (ReportBatch, "reports"): UnknownWord,
    (LogBatch, "pieces"): UnknownWord,
    (Assignments, "assignments"): WireError,
}
"""Lists whose items stand for themselves, and which fault sets one of them aside."""
NOTED_MAX = 100
NAME_LENGTH_MAX = 80


@dataclass(frozen=True, slots=True)
class Beyond:
    """One thing that was left out. place: in the message, `[]` for any item of a list.

    said: the word, or why an item could not be read. index, item: of one that was set aside.
    """

    place: str
    said: str = ""
    index: int | None = None
    item: object = None

    def __str__(self) -> str:
        said = f" ({self.said})" if self.said else ""
        return f"{self.place}{said}"


def read(kind: type[M], data: object) -> tuple[M, tuple[Beyond, ...]]:
    """Read a message; return with it what was left out, the first NOTED_MAX.

    Raises:
        WireError: it does not fit, and not for being of a later version.
    """
    try:
        return kind.from_json(data), ()
    except WireError:
        beyond: list[Beyond] = []
        known = _known(kind, data, "", beyond)
        if not beyond:
            raise
        return kind.from_json(known), tuple(beyond[:NOTED_MAX])


def unread(beyond: Iterable[Beyond]) -> tuple[Unread, ...]:
    """Return the leases of assignments that were set aside, as far as they name one."""
    found: dict[UUID, Unread] = {}
    for each in beyond:
        name = each.item.get("lease_id") if isinstance(each.item, Mapping) else None
        try:
            lease_id = UUID(str(name))
        except ValueError:
            continue
        found[lease_id] = Unread(lease_id=lease_id, reason=str(each))
    return tuple(found.values())


def _known(kind: Any, data: object, place: str, beyond: list[Beyond]) -> object:
    """Return of a value what a type of a message knows."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _known(arguments[0], data, place, beyond)
    if origin in (Union, UnionType):
        (inner,) = (each for each in arguments if each is not NoneType)
        return _known(inner, data, place, beyond)
    if origin is tuple and isinstance(data, list | tuple):
        return [_known(arguments[0], each, f"{place}[]", beyond) for each in data]
    if isinstance(kind, type) and issubclass(kind, Message) and isinstance(data, Mapping):
        return _known_of(kind, data, place, beyond)
    return data


def _known_of(
    kind: type[Message], data: Mapping[str, object], place: str, beyond: list[Beyond]
) -> dict[str, object]:
    every: Any = kind
    hints: dict[str, Any] = _hints(every)
    found: dict[str, object] = {}
    for name, item in data.items():
        inner = f"{place}.{str(name)[:NAME_LENGTH_MAX]}".lstrip(".")
        if name not in hints:
            beyond.append(Beyond(inner))
        elif (kind, name) in CAUTIOUS and _is_new_word(hints[name], item):
            beyond.append(Beyond(inner, str(item)[:NAME_LENGTH_MAX]))
            found[name] = CAUTIOUS[kind, name]
        elif (fault := APART.get((kind, name))) is not None and isinstance(item, list | tuple):
            each_kind = get_args(_bare(hints[name]))[0]
            found[name] = _readable(each_kind, item, inner, beyond, fault)
        else:
            found[name] = _known(hints[name], item, inner, beyond)
    return found


def _readable(
    kind: type[Message],
    items: list[object] | tuple[object, ...],
    place: str,
    beyond: list[Beyond],
    fault: type[WireError],
) -> list[object]:
    """Return the items that can be read; those that cannot for such a fault are set aside."""
    found = []
    for index, item in enumerate(items):
        noted: list[Beyond] = []
        known = _known(kind, item, f"{place}[]", noted)
        try:
            kind.from_json(known)
        except fault as error:
            where = f"{place}[].{error.place}" if error.place else f"{place}[]"
            said = error.word if isinstance(error, UnknownWord) else error.reason
            beyond.append(Beyond(where, said[:NAME_LENGTH_MAX], index, item))
            continue
        except WireError:
            pass  # it is refused, with all of the message
        beyond += noted
        found.append(known)
    return found


def _is_new_word(kind: Any, item: object) -> bool:
    return isinstance(item, str) and item not in get_args(kind)


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}
