"""A founded market for the tests of pages; the lab answers in the process of the test."""

from __future__ import annotations

import pytest

from marketplace.lab import comparing
from tests.pages.world import World


@pytest.fixture
def world(db: None) -> World:
    made = World()
    made.found()
    return made


@pytest.fixture(autouse=True)
def the_lab_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the lab run where it is asked: to start its own process takes seconds.

    That it comes to the same there is shown in tests/marketplace/lab; a site that is served for a
    browser starts one as ever.
    """
    for asks in ("config.pages.lab", "config.pages.fairness_try", "marketplace.api.lab"):
        monkeypatch.setattr(f"{asks}.compare_apart", comparing.answered)
