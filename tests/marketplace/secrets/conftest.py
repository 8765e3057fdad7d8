from __future__ import annotations

import pytest

from ledger.eventstore.postgres import PostgresStore
from ledger.following import follow_projections
from marketplace.projections import secrets
from tests.access.conftest import Caller, admit

VALUE = "hunter2-0ff9ea40-Aa%+"


@pytest.fixture
def ada(db: None) -> Caller:
    return admit("ada-labs", "consumer")


@pytest.fixture
def bob(db: None) -> Caller:
    return admit("bob-works", "consumer")


def read() -> None:
    while follow_projections(PostgresStore(), secrets.PROJECTIONS):
        pass
