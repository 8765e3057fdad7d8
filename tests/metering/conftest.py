from __future__ import annotations

import pytest

from ledger.eventstore.memory import MemoryStore
from tests.metering.world import World


@pytest.fixture
def world(db: None, store: MemoryStore) -> World:
    """The memory store, real tables."""
    return World(store)
