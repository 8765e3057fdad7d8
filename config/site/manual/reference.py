"""Reference pages made from the code itself, so that they cannot drift from it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from types import ModuleType

from config import env
from config.env import Env, variable_of
from ledger.domain.event import EVENT_TYPES, Event
from ledger.domain.refusal import Refusal


def settings_page() -> str:
    """Return every environment variable with its default and meaning, as Markdown."""
    lines = [
        "# Settings",
        "",
        "Every environment variable the server reads, once, at its start. A wrong value stops the"
        " start with the variable's name.",
        "",
        "| variable | default | meaning |",
        "|---|---|---|",
    ]
    told = _field_docs(env)
    for field in fields(Env):
        default = "" if field.default in ("", MISSING) else f"`{field.default}`"
        meaning = " ".join(told.get(field.name, "").split())
        lines.append(f"| `{variable_of(field.name)}` | {default} | {meaning} |")
    return "\n".join(lines)


def events_page() -> str:
    """Return every event type with its docstring and fields, as Markdown."""
    lines = [
        "# Events",
        "",
        "Everything that can be recorded, by its permanent name. The record of the market is these"
        " and nothing else.",
    ]
    app = ""
    for name, kind in sorted(EVENT_TYPES.items()):
        if name.partition(".")[0] != app:
            app = name.partition(".")[0]
            lines += ["", f"## {app.capitalize()}"]
        lines += ["", f"### `{name}`", "", inspect.getdoc(kind) or "", "", _fields_of(kind)]
    return "\n".join(lines)


def refusals_page() -> str:
    """Return every refusal with its code, status, message and advice, as Markdown."""
    lines = [
        "# Refusals",
        "",
        "What the API answers, as `application/problem+json`, where a rule says no. `code` is"
        " permanent; `details` carries the figures.",
        "",
        "| code | status | message | what to do |",
        "|---|---|---|---|",
    ]
    for kind in sorted(_all_refusals(Refusal), key=lambda kind: kind.__name__):
        code = kind.code.fget(kind.__new__(kind))  # type: ignore[attr-defined]  # a property
        message, advice = kind.message(), kind.advice()
        lines.append(f"| `{code}` | {kind.status} | {message} | {advice} |")
    return "\n".join(lines)


def _all_refusals(kind: type[Refusal]) -> Iterator[type[Refusal]]:
    for sub in kind.__subclasses__():
        if not sub.__module__.startswith("tests."):
            yield sub
            yield from _all_refusals(sub)


def _fields_of(kind: type[Event]) -> str:
    return ", ".join(
        f"`{field.name}`: {field.type}"
        for field in fields(kind)  # type: ignore[arg-type]  # made one
    )


def _field_docs(module: ModuleType) -> dict[str, str]:
    """Read the string under each field of the module's dataclasses, which Python drops."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(Path(inspect.getfile(module)).read_text())):
        if not isinstance(node, ast.ClassDef):
            continue
        for field, text in zip(node.body, node.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                found[field.target.id] = str(text.value.value)
    return found
