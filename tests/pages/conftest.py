"""A founded market for the tests of pages."""

from __future__ import annotations

import pytest

from tests.pages.world import World


@pytest.fixture
def world(db: None) -> World:
    made = World()
    made.found()
    return made
