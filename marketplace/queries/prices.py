"""Prices proposed for a lease, as its sides see them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db.models import QuerySet

from ledger.access import Actor, visible
from ledger.domain.ids import TenantId
from marketplace.domain.leases.actions import NotAParty
from marketplace.models.leases import LeaseRow
from marketplace.models.prices import PriceProposalRow
from marketplace.queries import leases

NEWEST_FIRST = ("-proposed_at", "proposal_id")


def prices_of(actor: Actor, lease_id: UUID) -> QuerySet[PriceProposalRow]:
    """Return what was proposed for a lease that `actor` sees, the newest first.

    Raises: LeaseUnknown.
    """
    leases.lease(actor, lease_id)
    rows = visible(actor, PriceProposalRow).filter(lease_id=lease_id)
    return rows.order_by(*NEWEST_FIRST)


def speaks_for(actor: Actor, lease_id: UUID) -> TenantId:
    """Return for which side of a lease `actor` speaks about its price: its own organisation's.

    An owner's people need the right to its offers, a consumer's that to their leases.

    Raises: LeaseUnknown, NotAParty, RoleMissing, ScopeMissing.
    """
    row = leases.lease(actor, lease_id)
    if actor.tenant_id not in (row.tenant_id, *row.owner_ids):
        raise NotAParty(lease_id=lease_id)
    actor.need_scope("leases:write" if actor.tenant_id == row.tenant_id else "offers:write")
    return actor.tenant_id


def price_of(row: LeaseRow, *, now: datetime) -> int:
    """Return what use of a lease costs now, in nano-units per GPU-hour; over: what it cost last."""
    until = row.closed_at or now
    return row.price_at(max(row.starts_at, min(until, row.ends_at))).nanos_per_gpu_hour
