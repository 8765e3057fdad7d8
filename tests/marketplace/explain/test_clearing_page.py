"""The page about clearing names every constraint and every condition that the code knows."""

from __future__ import annotations

from pathlib import Path

import config
from marketplace.domain.bids.query_language import CONDITIONS
from marketplace.domain.facts.events import RULE
from marketplace.domain.placement.eligibility import CONSTRAINTS, REASONS

PAGE = (Path(config.__file__).parent / "docs" / "clearing.md").read_text()


def test_every_reason_is_on_the_page_as_people_read_it() -> None:
    for constraint, text in REASONS.items():
        assert f"| `{constraint}` | {text} |" in PAGE
    assert {name for name, _ in CONSTRAINTS} < set(REASONS)


def test_every_condition_is_on_the_page() -> None:
    for each in CONDITIONS.values():
        assert f"| `{each.name}` | `{each.example}` | {each.meaning} |" in PAGE


def test_the_rule_is_named() -> None:
    assert f"`{RULE}`" in PAGE
