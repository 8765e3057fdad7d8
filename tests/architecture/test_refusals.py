"""What a refusal tells is for people and programs: amounts with their currency, times as times."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import config

ROOT = Path(config.__file__).parent.parent
APPS = ("ledger", "listings", "marketplace", "metering", "bursting", "config")
FILES = [
    path
    for app in APPS
    for path in sorted((ROOT / app).rglob("*.py"))
    if "migrations" not in path.parts
]


def figures(path: Path) -> Iterator[ast.keyword]:
    """Yield the keyword arguments of everything that is raised in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from node.exc.keywords


@pytest.mark.parametrize("app", APPS)
def test_no_refusal_counts_money_in_nano_units(app: str) -> None:
    told = [
        f"{path.relative_to(ROOT)}: {each.arg}"
        for path in FILES
        if path.is_relative_to(ROOT / app)
        for each in figures(path)
        if each.arg is not None
        and ("nanos" in each.arg or "nanos" in ast.unparse(each.value).rpartition(".")[2])
    ]
    assert told == []


def test_amounts_and_rates_are_told_with_their_currency() -> None:
    from ledger.domain.money import Money, Rate
    from ledger.rest.problems import plain

    assert plain(Money(1_250_000_000, "EUR")) == "1.25 EUR"
    assert plain(Rate(800_000_000)) == "0.80 USD per GPU-hour"
