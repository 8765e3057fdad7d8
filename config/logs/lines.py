"""What a line of the log may hold: no variables of ours, no secrets, and a bounded length.

A traceback tells types, sentences and places, never the values of variables: those are tokens,
passwords and people's data. What a library quotes in its sentences is hidden by its shape
(`ledger.domain.redaction`), and the secrets of this installation wherever they stand.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Hashable, Mapping, MutableMapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import structlog

from ledger.domain.redaction import HIDDEN, is_secret_name, redact

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]

TEXT_MAX = 4_000
READ_MAX = 20_000
"""How much of a text is read before it is cut: what is hidden must be seen whole."""
ITEMS_MAX = 50
DEPTH_MAX = 6
FRAMES_MAX = 20
CAUSES_MAX = 5
LINES_PER_MINUTE = 60
"""Of one kind: what a stranger can cause at will fills no disk, and hides nothing else."""
KINDS_MAX = 1_000
MINUTE_SECONDS = 60.0


class Redaction:
    """The last step before a line is written."""

    def __init__(self, known: tuple[str, ...]) -> None:
        self._known = known

    def line(self, line: str) -> str:
        """Return a line that a process wrote, without what it should not have held."""
        return redact(line, self._known)

    def text(self, text: str) -> str:
        """Return a text that may be written."""
        clean = redact(text[:READ_MAX], self._known)
        return clean if len(clean) <= TEXT_MAX else f"{clean[:TEXT_MAX]}…"

    def __call__(
        self, logger: Any, method: str, fields: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Redact every field of a line."""
        return {name: self._clean(name, value, 0) for name, value in fields.items()}

    def _clean(self, name: str, value: Any, depth: int) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        if is_secret_name(name):
            return HIDDEN
        if depth < DEPTH_MAX:
            if isinstance(value, Mapping):
                items = list(value.items())[:ITEMS_MAX]
                return {
                    self.text(str(key)): self._clean(str(key), each, depth + 1)
                    for key, each in items
                }
            if isinstance(value, list | tuple | set | frozenset):
                return [self._clean("", each, depth + 1) for each in list(value)[:ITEMS_MAX]]
        return self.text(value if isinstance(value, str) else said(value))


def said(thing: object) -> str:
    """Return a thing's own words; one that cannot say any is called by its type."""
    try:
        return str(thing)
    except Exception:  # whatever a library's __str__ raises: a log line must not fail
        return f"<{type(thing).__name__}>"


def plain_tracebacks(
    logger: Any, method: str, fields: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Turn `exc_info` into types, sentences and places."""
    given = fields.pop("exc_info", None)
    failure = given[1] if isinstance(given, tuple) else given
    if given and not isinstance(failure, BaseException):
        failure = sys.exc_info()[1]
    if isinstance(failure, BaseException):
        fields["exception"] = told(failure)
    return fields


def told(failure: BaseException) -> list[dict[str, Any]]:
    """Return an exception and what caused it, the last one first."""
    found: list[dict[str, Any]] = []
    each: BaseException | None = failure
    while each is not None and len(found) < CAUSES_MAX:
        kind = type(each)
        entry: dict[str, Any] = {
            "type": f"{kind.__module__}.{kind.__qualname__}",
            "said": said(each),
            "where": _places(each.__traceback__),
        }
        if isinstance(each, BaseExceptionGroup):
            entry["group"] = [f"{type(one).__name__}: {said(one)}" for one in each.exceptions[:10]]
        found.append(entry)
        hidden = each.__suppress_context__ and each.__cause__ is None
        each = None if hidden else each.__cause__ or each.__context__
    return found


def _places(trace: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(trace)[-FRAMES_MAX:]
    return [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]


@dataclass(slots=True)
class _Count:
    since: float
    passed: int = 0
    left_out: int = 0


@dataclass(slots=True)
class Pace:
    """How many lines of a kind are written in a minute; the next one tells how many were not."""

    _counts: dict[Hashable, _Count] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def take(self, kind: Hashable) -> int | None:
        """Return how many like it were left out before, or None if this one is too."""
        now = time.monotonic()
        with self._guard:
            count = self._counts.get(kind)
            if count is None or now - count.since >= MINUTE_SECONDS:
                left_out = count.left_out if count else 0
                if len(self._counts) >= KINDS_MAX:
                    self._counts.clear()
                self._counts[kind] = _Count(now, passed=1)
                return left_out
            if count.passed >= LINES_PER_MINUTE:
                count.left_out += 1
                return None
            count.passed += 1
            return 0

    def __call__(
        self, logger: Any, method: str, fields: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """As a step of structlog."""
        left_out = self.take((method, str(fields.get("event"))[:200]))
        if left_out is None:
            raise structlog.DropEvent
        if left_out:
            fields["left_out_before"] = left_out
        return fields


class PaceFilter(logging.Filter):
    """The same for the records of libraries: by the place in the code that writes them."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell if the record is written; foreign hosts and the like need no traceback."""
        failure = record.exc_info[1] if record.exc_info else None
        kind = (record.name, record.pathname, record.lineno, record.levelno, type(failure))
        left_out = self._pace.take(kind)
        if left_out is None:
            return False
        if left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out} like it left out)", None
        if record.name.startswith("django.security"):
            record.exc_info = None
        return True
