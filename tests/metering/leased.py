"""A lease that a host of the test runs for a consumer, and the API of both."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from django.urls import URLPattern, URLResolver, include, path
from django.utils import timezone

from ledger.domain.ids import AccountId, BidId, HoldId, LeaseId, SubscriberId, TenantId
from ledger.domain.span import Window
from ledger.eventstore.port import Expect, NewEvent
from ledger.eventstore.postgres import PostgresStore
from ledger.following import follow_projections
from marketplace.domain.facts.events import LeaseActivated, LeaseScheduled, LeaseStarting, Workload
from marketplace.projections.leases import PROJECTIONS
from marketplace.urls import api_urls as of_market
from metering.urls import api_urls as of_use
from tests.access.conftest import Caller
from tests.conftest import SOMEBODY
from tests.metering.host_agent import HostAgent
from tests.metering.world import PRICE, share

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", include(of_use)),
    path("api/v1/", include(of_market)),
]


def lease_on(host: HostAgent, consumer: Caller, lease_id: LeaseId | None = None) -> None:
    """Record that the host's lease, or another on it, runs for the consumer; write its rows."""
    now, lease_id = timezone.now(), lease_id or host.lease_id
    terms = LeaseScheduled(
        lease_id=lease_id,
        bid_id=BidId(uuid4()),
        tenant_id=TenantId(consumer.tenant_id),
        subscriber_id=SubscriberId(consumer.tenant_id),
        user_id=None,
        account_id=AccountId(uuid4()),
        hold_id=HoldId(uuid4()),
        market="main",
        shares=(share(host.host_id, host.tenant_id, "GPU-a"),),
        gpu_model="H100-80GB",
        window=Window(now, now + timedelta(hours=1)),
        price=PRICE,
        fee_ppm=50_000,
        service_class="on-demand",
        workload=Workload(kind="train", command=("true",)),
        cost_centre="CC-1",
        at=now,
    )
    begun = (LeaseStarting(lease_id=lease_id, at=now), LeaseActivated(lease_id=lease_id, at=now))
    store = PostgresStore()
    store.append(
        f"lease-{lease_id}",
        [NewEvent(uuid4(), event) for event in (terms, *begun)],
        expected=Expect.ANY,
        by=SOMEBODY,
    )
    while follow_projections(store, PROJECTIONS):
        pass
