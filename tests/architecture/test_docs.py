"""What a reader looks up is written down: every setting, event, refusal, command and loop."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

import pytest
from django.conf import settings
from django.core.management import get_commands
from django.test import Client
from django.urls import resolve

from config.env import Env, variable_of
from config.site.manual import pages as manual
from config.site.manual import reference
from config.wiring import loops
from ledger.domain.event import EVENT_TYPES, Event

SETTINGS = reference.settings_page()
EVENTS = reference.events_page()
OPERATING = (manual.DOCS / "operating.md").read_text()
OURS = sorted(
    name for name, app in get_commands().items() if app in ("config", "ledger", "listings")
)
OWN_EVENTS = [kind for kind in EVENT_TYPES.values() if not kind.__module__.startswith("tests.")]


@pytest.mark.parametrize("field", [field.name for field in fields(Env)])
def test_every_setting_is_explained(field: str) -> None:
    [line] = [line for line in SETTINGS.splitlines() if f"`{variable_of(field)}`" in line]
    assert line.split("|")[3].strip(), "the string under the field is its documentation"


@pytest.mark.parametrize("kind", OWN_EVENTS, ids=lambda kind: kind.name)
def test_every_event_says_what_happened(kind: type[Event]) -> None:
    told = kind.__dict__.get("__doc__") or ""
    assert told.strip() and not told.startswith(f"{kind.__name__}("), "its docstring is its page"
    assert f"`{kind.name}`" in EVENTS
    assert inspect.cleandoc(told).partition("\n")[0] in EVENTS


def test_every_refusal_has_a_sentence() -> None:
    rows = [line for line in reference.refusals_page().splitlines() if line.startswith("| `")]
    assert len(rows) > 50
    for row in rows:
        assert row.split("|")[3].strip().endswith((".", "?")), row


@pytest.mark.parametrize("name", OURS)
def test_every_management_command_is_documented(name: str) -> None:
    assert f"manage.py {name}" in OPERATING


@pytest.mark.parametrize(
    "name", [loop.name for loop in loops(settings.ENV)] + ["bursting", "homecoming"]
)
def test_every_loop_is_documented(name: str) -> None:
    assert f"`{name}`" in OPERATING


def test_every_chapter_has_a_title_and_can_be_read() -> None:
    for chapter in manual.chapters().values():
        assert chapter.title
        assert "<p>" in chapter.html or "<table>" in chapter.html


def test_no_page_names_a_host_of_the_outside_world() -> None:
    """The product is whole where it stands: nothing is fetched from elsewhere."""
    templates = settings.BASE_DIR.glob("*/templates/**/*.html")
    for template in templates:
        text = template.read_text()
        assert "//cdn" not in text and 'src="http' not in text, template


@pytest.mark.django_db
def test_no_link_of_the_manual_leads_nowhere(client: Client) -> None:
    for path in ("/docs/", *(f"/docs/{slug}/" for slug in manual.chapters())):
        page = client.get(path).content.decode()
        main = page.partition('<main class="main"')[2].partition("</main>")[0]
        for target in set(re.findall(r'href="(/[^"#]*)', main)):
            resolve(target)  # raises for an address that is none
