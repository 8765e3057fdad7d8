"""A founded market for the tests of pages; the lab answers in the process of the test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pytest_django.plugin import DjangoDbBlocker

from ledger import eventstore
from ledger.eventstore.memory import MemoryStore
from marketplace.lab import comparing
from tests.kept import kept
from tests.pages.world import World


@pytest.fixture(scope="module")
def founded(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[World]:
    with kept(django_db_blocker) as made:
        world = World()
        world.found()
    yield world
    made.end()


@pytest.fixture
def world(founded: World, db: None) -> World:
    """The founded market, with an engine that starts now."""
    return replace(founded, now=datetime.now(UTC).replace(microsecond=0))


@pytest.fixture
def installed(store: MemoryStore) -> Iterator[MemoryStore]:
    """A store in memory that the site takes for its own."""
    before = eventstore._build
    eventstore.install(lambda: store)
    yield store
    if before is not None:
        eventstore.install(before)


@pytest.fixture(autouse=True)
def the_lab_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the lab run where it is asked: to start its own process takes seconds.

    That it comes to the same there is shown in tests/marketplace/lab; a site that is served for a
    browser starts one as ever.
    """
    for asks in (
        "config.site.pages.lab.views",
        "config.site.pages.fairness.trial",
        "marketplace.api.lab",
    ):
        monkeypatch.setattr(f"{asks}.compare_apart", comparing.answered)
