"""Hides the values of secrets in what work prints, before it is kept or leaves the host.

A value is found also where it comes in several pieces, and as it stands in an address, in JSON or
in base64, and so is each long line of one of several lines. Values under 8 bytes are not looked
for: they would be found everywhere. What work disguises otherwise is not found; this keeps
honest work from telling by accident.

With the standard library alone: the keeper uses it as a script (see keeper.py).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Protocol
from urllib.parse import quote, quote_plus

HIDDEN = b"[secret]"
LENGTH_MIN = 8
BEGIN_BYTES = 4
"""So much of a value is looked for at once, where output ends within one."""


class Output(Protocol):
    """Where output goes."""

    def write(self, data: bytes) -> object:
        """Take some."""


class Redactor:
    """Hides values in one stream of bytes. What could be the beginning of one is held back."""

    def __init__(self, values: Iterable[bytes]) -> None:
        found = {form for value in values for form in _forms(value)}
        self._forms = sorted(found, key=len, reverse=True)
        self._longest = max(map(len, self._forms), default=0)
        self._found = re.compile(b"|".join(map(re.escape, self._forms)))
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return what may be shown by now."""
        if not self._forms:
            return data
        data = self._held + data
        clean, since, edge = list[bytes](), 0, len(data) - self._begun(data)
        for match in self._found.finditer(data):
            if match.start() >= edge:
                break  # it may be part of a longer one, of which the rest is to come
            clean += [data[since : match.start()], HIDDEN]
            since = match.end()
            if since > edge:
                edge = len(data) - self._begun(data[since:])
        self._held = data[edge:]
        return b"".join(clean) + data[since:edge]

    def end(self) -> bytes:
        """Return what is left at the end."""
        rest, self._held = self._held, b""
        return self._found.sub(HIDDEN, rest) if self._forms else rest

    def _begun(self, data: bytes) -> int:
        """Return how many bytes at the end could be the beginning of a value."""
        tail = data[max(0, len(data) - self._longest + 1) :]
        most = 0
        for form in self._forms:
            for length in range(min(len(tail), len(form) - 1, BEGIN_BYTES), most, -1):
                if tail.endswith(form[:length]):
                    most = length
                    break
            start = tail.find(form[:BEGIN_BYTES])
            while 0 <= start < len(tail) - most:
                if len(tail) - start < len(form) and form.startswith(tail[start:]):
                    most = len(tail) - start
                    break
                start = tail.find(form[:BEGIN_BYTES], start + 1)
        return most


class Redacted:
    """Output from which values are hidden before it goes on."""

    def __init__(self, to: Output, values: Iterable[bytes]) -> None:
        self._to = to
        self._redactor = Redactor(values)

    def write(self, data: bytes) -> None:
        """Pass on what may be shown."""
        if clean := self._redactor.feed(data):
            self._to.write(clean)

    def end(self) -> None:
        """Pass on what was held back; again changes nothing."""
        if rest := self._redactor.end():
            self._to.write(rest)


def _forms(value: bytes) -> Iterator[bytes]:
    """Yield how a value may stand in what work prints."""
    text = value.decode(errors="surrogateescape")
    lines = value.split() if b"\n" in value.strip() else []
    for part in (value, value.strip(), *lines):
        if len(part) >= LENGTH_MIN:
            yield part
    if len(value) < LENGTH_MIN:
        return
    for quoted in (quote(text, safe="", errors="surrogateescape"), quote_plus(value)):
        yield quoted.encode()
    yield json.dumps(text)[1:-1].encode()
    yield from _base64(value)


def _base64(value: bytes) -> Iterator[bytes]:
    """Yield what base64 makes of a value wherever it begins in what is encoded."""
    for before in range(3):
        # Characters that hold bits of what stands beside it are left out.
        whole = value[(3 - before) % 3 :]
        whole = whole[: len(whole) // 3 * 3]
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            if len(whole) >= LENGTH_MIN:
                yield encode(whole)
