"""Answers on the terminal: a table for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

WIDTH = 240
"""Wide enough that no cell is cut: a terminal wraps long lines, a pipe keeps them whole."""

Column = tuple[str, str]
"""A field of an entry and its heading."""

NUMBERS = frozenset({"gpus", "price", "limit", "floor", "charged", "available", "held", "total"})


class Printer:
    """Writes results to standard output and everything else to standard error."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.out = Console(file=sys.stdout, width=WIDTH, highlight=False)
        self.err = Console(file=sys.stderr, soft_wrap=True, highlight=False)

    def table(
        self, entries: Iterable[Mapping[str, Any]], columns: Sequence[Column], *, empty: str
    ) -> None:
        """Print a list; `empty` says what to do where there is nothing."""
        entries = list(entries)
        if self.as_json:
            self.json(entries)
            return
        if not entries:
            self.err.print(empty)
            return
        table = Table(box=None, header_style="bold", pad_edge=False)
        for field, heading in columns:
            right = field.rpartition(".")[2] in NUMBERS
            table.add_column(heading, justify="right" if right else "left", no_wrap=True)
        for entry in entries:
            table.add_row(*(shown(_field(entry, field)) for field, _ in columns))
        self.out.print(table)

    def facts(self, entry: Mapping[str, Any], columns: Sequence[Column]) -> None:
        """Print one thing, a line a field."""
        if self.as_json:
            self.json(entry)
            return
        width = max(len(heading) for _, heading in columns)
        for field, heading in columns:
            self.out.print(f"{heading:<{width}}  {shown(_field(entry, field))}")

    def json(self, value: object) -> None:
        """Print JSON, as the API sent it."""
        print(json.dumps(value, indent=2), file=sys.stdout)

    def say(self, sentence: str) -> None:
        """Tell a person how things stand, out of the way of the result."""
        if not self.as_json:
            self.err.print(sentence)


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
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(shown(each) for each in value) or "-"
    if isinstance(value, str) and len(value) >= 20 and value.endswith("Z") and value[10] == "T":
        moment = datetime.fromisoformat(value).astimezone(UTC).astimezone()
        return moment.strftime("%d %b %H:%M %Z")
    return str(value)
