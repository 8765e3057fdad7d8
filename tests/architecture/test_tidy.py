"""The style rules that a machine can check. Each failure names the file and the rule."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
APPS = ("ledger", "listings", "marketplace", "metering", "bursting", "config")
FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 450
"""A hint to look again: one story of 430 lines is better than two that only make sense together."""
GRAB_BAGS = {"utils", "helpers", "common", "misc", "services", "managers", "base", "core"}
NAMED_BY_DJANGO = {"config/database/base.py"}
"""A database backend must have a module of that name."""


MODULES = [
    path
    for app in APPS
    for path in sorted((ROOT / app).rglob("*.py"))
    if not {"migrations", "build"} & set(path.parts)
]
RULES = [
    path
    for path in MODULES
    if {"commands", "domain"} & {path.stem, *path.parts} and "management" not in path.parts
]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_module_is_tidy(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    grab_bag = path.stem in GRAB_BAGS and name_of(path) not in NAMED_BY_DJANGO
    assert not grab_bag, "name the module after what it knows, not after its kind"
    assert text.count("\n") <= FILE_LINES_MAX, "split it where the story changes"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("path", RULES, ids=name_of)
def test_rules_do_not_read_the_clock(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"now", "utcnow", "today"}, f"line {node.lineno}: pass `now` in"


def test_what_tests_share_is_in_no_test_module() -> None:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
                modules = [*str(node.module).split("."), *(each.name for each in node.names)]
                test = next((name for name in modules if name.startswith("test_")), None)
                assert test is None, f"{name_of(path)}: move what it takes of {test} out of it"
