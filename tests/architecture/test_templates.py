"""What every page has to keep, read from the templates themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TEMPLATES = Path(__file__).resolve().parents[2] / "config" / "templates"
WITHOUT_HEADINGS = {"allauth/elements/table.html"}
"""allauth hands whole rows to it."""
TABLE = re.compile(r'<table class="(?P<classes>[^"]*)">(?P<inside>.*?)</table>', re.DOTALL)
CELL = re.compile(r"<td(?P<attributes>(?:\s[^>]*)?)>(?P<inside>.*?)</td>", re.DOTALL)
ACTS = re.compile(r"<(form|button|a|details|confirm-dialog)\b")


def tables() -> Iterator[tuple[str, re.Match[str]]]:
    for template in sorted(TEMPLATES.rglob("*.html")):
        name = template.relative_to(TEMPLATES).as_posix()
        for table in TABLE.finditer(template.read_text()):
            if name not in WITHOUT_HEADINGS and "table" in table["classes"].split():
                yield name, table


@pytest.mark.parametrize(
    ("name", "table"), [pytest.param(name, table, id=name) for name, table in tables()]
)
def test_a_row_is_a_card_on_a_phone_with_every_value_named(name: str, table: re.Match[str]) -> None:
    assert "cards" in table["classes"].split(), f"{name}: a table that is only scrolled"
    _, _, body = table["inside"].partition("<tbody")
    for cell in CELL.finditer(body):
        named = "data-label=" in cell["attributes"] or "colspan=" in cell["attributes"]
        assert named or ACTS.search(cell["inside"]) or not cell["inside"].strip(), cell[0][:200]
