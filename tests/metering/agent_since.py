"""An agent of a host whose GPU is leased since an hour ago, over HTTP on the real tables."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from ledger.eventstore.postgres import PostgresStore
from ledger.following import follow_projections
from listings.projections import PROJECTIONS as LISTINGS
from marketplace.projections.leases import PROJECTIONS as LEASES
from tests.access.conftest import Caller
from tests.metering.host_agent import HostAgent
from tests.metering.world import World, share


@pytest.fixture
def agent(owner: Caller) -> HostAgent:
    return HostAgent(owner)


@pytest.fixture
def since(agent: HostAgent) -> datetime:
    """An hour ago, when the agent's GPU was leased for two hours."""
    starts_at = timezone.now().replace(microsecond=0) - timedelta(hours=1)
    world = World(PostgresStore())
    world.schedule(
        share(agent.host_id, agent.tenant_id, "GPU-a"),
        lease_id=agent.lease_id,
        starts_at=starts_at,
        minutes=120,
    )
    while follow_projections(PostgresStore(), (*LISTINGS, *LEASES)):
        pass
    return starts_at
