"""What a reader looks up is written down: every setting, event, command, loop and decision."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

import pytest
from django.core.management import get_commands

import config.wiring
from config.env import Env, variable_of
from ledger.domain.event import EVENT_TYPES, Event

DOCS = Path(config.wiring.__file__).parent / "docs"
SETTINGS = (DOCS / "settings.md").read_text()
EVENTS = (DOCS / "events.md").read_text()
OPERATING = (DOCS / "operating.md").read_text()
OURS = sorted(name for name, app in get_commands().items() if app == "config")


@pytest.mark.parametrize("field", [field.name for field in fields(Env)])
def test_every_setting_is_documented(field: str) -> None:
    assert f"`{variable_of(field)}`" in SETTINGS


@pytest.mark.parametrize("kind", EVENT_TYPES.values(), ids=lambda kind: kind.name)
def test_every_event_says_what_happened_and_is_documented(kind: type[Event]) -> None:
    if kind.__module__.startswith("tests."):
        pytest.skip("a test's own event")
    assert inspect.getdoc(kind), "an event's docstring is its documentation"
    assert f"`{kind.name}`" in EVENTS


@pytest.mark.parametrize("name", OURS)
def test_every_management_command_is_documented(name: str) -> None:
    assert f"manage.py {name}" in OPERATING
