"""Answers on the terminal: a table for people, JSON for programs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TextIO

from .plain import folded, padded, plain, width_of

GAP = "  "
NOTHING = "-"
"""Between two columns."""
WIDTH_LEAST = 40
"""A terminal that says it is narrower is not believed: nothing could be read."""

Form = Callable[[Any, Mapping[str, Any]], str]
"""How a value of an entry is written."""
Column = tuple[str, str] | tuple[str, str, Form]
"""A field of an entry, its heading, and where it is not written as it is, how."""

NUMBERS = frozenset(
    {"gpus", "price", "limit", "floor", "charged", "available", "held", "total", "contested"}
)


class NotPrinted(Exception):
    """Standard output takes nothing: the disk is full, or its reader has gone."""


class Printer:
    """Writes results to standard output and everything else to standard error.

    Every value is text of somebody else: it is printed as text, no mark-up and no control
    character in it means anything, and what the terminal's encoding lacks is written out.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        for stream in (sys.stdout, sys.stderr):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="backslashreplace")

    def table(
        self, entries: Iterable[Mapping[str, Any]], columns: Sequence[Column], *, empty: str
    ) -> None:
        """Print a list; `empty` says what to do where there is nothing.

        Where a terminal is too narrow for the table, each entry is a block of lines. A file or a
        pipe gets whole rows.
        """
        entries = list(entries)
        if self.as_json:
            self.json(entries)
            return
        if not entries:
            self.say(empty)
            return
        rows = [[_cell(entry, column) for column in columns] for entry in entries]
        headings = [column[1] for column in columns]
        widths = [max(map(width_of, cells)) for cells in zip(headings, *rows, strict=True)]
        room = _terminal_width(sys.stdout)
        if room is not None and sum(widths) + len(GAP) * (len(widths) - 1) > room:
            for number, row in enumerate(rows):
                self.print(*([""] if number else ()), *_block(headings, row, room))
            return
        rights = [column[0].rpartition(".")[2] in NUMBERS for column in columns]
        lines = [
            GAP.join(
                padded(cell, width, right=right)
                for cell, width, right in zip(row, widths, rights, strict=True)
            ).rstrip()
            for row in [headings, *rows]
        ]
        if room is not None and "NO_COLOR" not in os.environ:
            lines[0] = f"\x1b[1m{lines[0]}\x1b[0m"
        self.print(*lines)

    def facts(self, entry: Mapping[str, Any], columns: Sequence[Column]) -> None:
        """Print one thing, a line a field that it has."""
        if self.as_json:
            self.json(entry)
            return
        told = [(column[1], _cell(entry, column)) for column in columns]
        told = [(heading, cell) for heading, cell in told if cell != NOTHING] or told
        headings, cells = zip(*told, strict=True)
        self.print(*_block(headings, cells, _terminal_width(sys.stdout)))

    def json(self, value: object) -> None:
        """Print JSON, as the API sent it."""
        self.print(json.dumps(value, indent=2))

    def done(self, answer: object, sentence: str) -> None:
        """Say that something was done that there is nothing to show of."""
        if self.as_json:
            self.json(answer)
        else:
            self.tell(sentence)

    def say(self, sentence: str) -> None:
        """Tell a person how things stand, out of the way of the result."""
        if not self.as_json:
            self.tell(sentence)

    def tell(self, sentence: str) -> None:
        """Tell it in any case, on standard error; that nobody may read it stops nothing."""
        with suppress(OSError, ValueError):
            print(plain(sentence), file=sys.stderr, flush=True)

    def tell_json(self, value: object) -> None:
        """Tell a program how things stand: one object on standard error."""
        with suppress(OSError, ValueError):
            print(json.dumps(value, indent=2), file=sys.stderr, flush=True)

    def write(self, part: bytes) -> None:
        """Write a part of a file to standard output as it is. Raises: NotPrinted."""
        try:
            sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()
        except (OSError, ValueError) as failure:
            raise _cannot(failure) from failure

    def print(self, *lines: str) -> None:
        """Print lines as they are. Raises: NotPrinted."""
        try:
            for line in lines:
                print(line, file=sys.stdout)
            sys.stdout.flush()
        except (OSError, ValueError) as failure:
            raise _cannot(failure) from failure


def _cannot(failure: Exception) -> NotPrinted:
    """Close standard output, so that its end cannot fail a second time; say why it was closed."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    return NotPrinted(getattr(failure, "strerror", None) or str(failure))


def _terminal_width(stream: TextIO) -> int | None:
    """Return how wide the terminal is; None for a file or a pipe."""
    try:
        if not stream.isatty():
            return None
    except ValueError:
        return None
    return max(WIDTH_LEAST, shutil.get_terminal_size().columns)


def _block(headings: Sequence[str], cells: Sequence[str], room: int | None) -> list[str]:
    """Return the lines of one entry, a line a field, long ones folded under themselves."""
    width = max(map(width_of, headings))
    lines = []
    for heading, cell in zip(headings, cells, strict=True):
        left = width + len(GAP)
        parts = [cell] if room is None else list(folded(cell, max(room - left, 20)))
        lines.append(padded(heading, width) + GAP + parts[0])
        lines += [" " * left + part for part in parts[1:]]
    return lines


def _cell(entry: Mapping[str, Any], column: Column) -> str:
    value = _field(entry, column[0])
    text = plain(column[2](value, entry)) if len(column) == 3 else shown(value)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        # Here and not as it is written: what is written out is longer, and columns shall line up.
        text = text.replace("\N{NO-BREAK SPACE}", " ")
        return text.encode(encoding, errors="backslashreplace").decode(encoding)
    return text


def _field(entry: Mapping[str, Any], path: str) -> Any:
    value: Any = entry
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def shown(value: Any) -> str:
    """Return a value as people read it: local times with their zone, dashes for nothing.

    Decimal numbers keep four figures; JSON has them whole. Money comes as text and stays as it is.
    """
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(shown(each) for each in value) or NOTHING
    if isinstance(value, str) and len(value) >= 20 and value.endswith("Z") and value[10] == "T":
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(value).astimezone(UTC).astimezone()
            return moment.strftime("%d %b %H:%M %Z")
    return plain(str(value))
