"""A lease of a consumer that was asked for on a page, and whose work runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.test import Client
from django.utils import timezone

from ledger.domain.ids import HostId, LeaseId
from marketplace.commands import leases
from marketplace.models import LeaseRow
from tests.pages.bid_form import form
from tests.pages.world import BY, World


def begin(world: World, row: LeaseRow, *, began: datetime) -> LeaseRow:
    """Let a lease's work start on all its hosts."""
    lease_id = LeaseId(row.lease_id)
    leases.advance_lease(
        world.store,
        lease_id=lease_id,
        start_grace=timedelta(minutes=10),
        by=BY,
        now=row.starts_at,
    )
    for host_id in row.host_ids:
        leases.lease_started(
            world.store, lease_id=lease_id, host_id=HostId(host_id), by=BY, now=row.starts_at
        )
    world.settle()
    # As if it had begun a while ago: leases of these tests start now.
    LeaseRow.objects.filter(pk=row.lease_id).update(work_began_at=began)
    return LeaseRow.objects.get(pk=row.lease_id)


def leased(world: World, consumer: Client, **changed: Any) -> LeaseRow:
    """Place a bid from the form, and let its lease start."""
    consumer.post("/bids/new", form(**changed))
    world.settle()
    return begin(world, LeaseRow.objects.get(), began=timezone.now() - timedelta(hours=1))
