"""A person who bids over HTTP, and what they send and read."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from ledger.commands.money import open_account
from ledger.domain.account_ids import funds_account
from ledger.domain.ids import SubscriberId, TenantId
from ledger.eventstore.postgres import PostgresStore
from ledger.following import follow_projections
from ledger.models import Checkpoint, SubscriberRow
from listings.domain.sandboxes import ABILITIES
from marketplace.projections import PROJECTIONS
from tests.access.conftest import Caller, admit
from tests.conftest import SOMEBODY
from tests.marketplace.support.market import Market


def with_unit(caller: Caller, *, overdraft_nanos: int | None = None) -> str:
    """Give a tenant a business unit with an account that pays."""
    unit = SubscriberId(uuid4())
    SubscriberRow.objects.create(
        subscriber_id=unit,
        tenant_id=caller.tenant_id,
        title="Vision",
        cost_centre="CC-7",
        registered_at=timezone.now(),
    )
    open_account(
        PostgresStore(),
        account_id=funds_account(unit, "USD"),
        tenant_id=TenantId(caller.tenant_id),
        subscriber_id=unit,
        kind="chargeback",
        title="Vision",
        currency="USD",
        overdraft_nanos=overdraft_nanos,
        by=SOMEBODY,
        now=timezone.now(),
    )
    return str(unit)


@pytest.fixture
def ada(db: None) -> Caller:
    return admit("ada-labs", "consumer")


@pytest.fixture
def unit(ada: Caller) -> str:
    return with_unit(ada)


@pytest.fixture
def market() -> Market:
    """Two GPUs at 1.50 and two at 2.50, from now on, on hosts whose agents can do all there is."""
    made = Market(PostgresStore(), now=timezone.now().replace(microsecond=0))
    made.offer("a", gpus=2, at="1.50")
    made.offer("b", gpus=2, at="2.50", model="A100-80GB")
    for host in ("a", "b"):
        made.agent(host, "full", *ABILITIES)
    return made


def body(unit: str, **fields: Any) -> dict[str, Any]:
    return {
        "subscriber_id": unit,
        "query": "gpu=H100",
        "gpus": 2,
        "duration_seconds": 7200,
        "limit": "2.00",
        "service_class": "on-demand",
        "workload": {"kind": "inference-7b", "command": ["serve"], "environment": {"PORT": "80"}},
        **fields,
    }


def read() -> None:
    while follow_projections(PostgresStore(), PROJECTIONS):
        pass
    assert not Checkpoint.objects.exclude(error="").exists()
