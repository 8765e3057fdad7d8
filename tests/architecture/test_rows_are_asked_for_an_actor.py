"""Web code reaches rows only through queries, and queries through `ledger.access.visible`."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, cast

import pytest
from django.apps import apps
from django.core.exceptions import FieldDoesNotExist

ROOT = Path(__file__).resolve().parents[2]
APPS = ("ledger", "listings", "marketplace", "metering", "bursting", "config")
WEB = {"api", "pages", "consumers", "sockets"}
AROUND = {"objects", "_base_manager", "_default_manager", "cursor"}
"""Attributes that lead to rows without asking whose they are."""

MODULES = [
    path
    for app in APPS
    for path in sorted((ROOT / app).rglob("*.py"))
    if WEB & {path.stem, *path.parent.relative_to(ROOT).parts}
]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_there_is_web_code_to_look_at() -> None:
    assert {"ledger/api/parties.py", "listings/api/offers.py"} <= {name_of(p) for p in MODULES}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_web_code_makes_no_queryset_of_its_own(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            where = f"line {node.lineno}: ask a query, which asks ledger.access.visible"
            assert node.attr not in AROUND, where


def test_the_tenant_columns_of_a_read_model_are_columns() -> None:
    shown = [model for model in apps.get_models() if hasattr(model, "TENANT_COLUMNS")]

    wrong = []
    for model in shown:
        for name in cast(Any, model).TENANT_COLUMNS:
            try:
                model._meta.get_field(name.removesuffix("__contains"))
            except FieldDoesNotExist:
                wrong.append(f"{model.__name__}.{name}")
    assert len(shown) >= 6
    assert wrong == []
