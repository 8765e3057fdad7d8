"""People who set policies on their page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.test import Client

from ledger.eventstore.port import load
from marketplace.domain.quotas.policies_in_force import Policies
from tests.pages.governing import govern
from tests.pages.reading import text
from tests.pages.world import CONSUMER, PLATFORM, World

POLICIES = "/fairness/policies"


@pytest.fixture
def olivia(world: World) -> Client:
    """Return the browser of an operator of the platform, in a market with quotas."""
    world.list_gpus(0, 1, 2)
    govern(world)
    return world.member(PLATFORM, "operator")


@pytest.fixture
def dean(world: World, olivia: Client) -> Client:
    """Return the browser of an operator of the consumer, whose grant is the cohort `cirrus`."""
    put(olivia, "cohort", cohort="cirrus", parent="research", tenant_id=world.tenant(CONSUMER))
    put(olivia, "unit", subscriber_id=world.unit_id, cohort="cirrus")
    put(olivia, "quota", node="cirrus", gpu_class="H100", nominal="4")
    world.settle()
    return world.member(CONSUMER, "operator")


def put(client: Client, kind: str, *, fails: str = "", **fields: Any) -> str:
    """Send a form; return the page that comes, which says `fails` where it must."""
    sent = {"token": uuid4(), "market": settings.ENV.market, "why": "because", "do": "set"}
    answer = client.post(f"{POLICIES}/{kind}", {**sent, **fields})
    if fails:
        assert answer.status_code == 422, answer.status_code
        assert fails in text(answer.content)
    else:
        assert answer.status_code == 302, text(answer.content)
    return answer.content.decode() if fails else answer["Location"]


def policies(world: World, market: str | None = None) -> Policies:
    found = load(world.store, Policies, market or settings.ENV.market)
    assert found is not None
    return found


def moment(hours: float) -> str:
    return f"{datetime.now(UTC) + timedelta(hours=hours):%Y-%m-%dT%H:%M}"
