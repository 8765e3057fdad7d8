"""Changes of the price of a lease that runs: proposed by one side, agreed by all, or not.

Proposals are in streams of their own, `lease-prices-<lease id>`; only what was agreed is in the
lease's.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import LeaseId, TenantId, UserId
from ledger.domain.money import Rate


class LeasePriceProposed(Event, name="marketplace.lease-price-proposed"):
    """One side of a lease wants another price per GPU-hour from `since` on.

    tenant_id: who. of: the organisations that have to agree, the one that proposes among them.
    before: the price until then. answer_by: what nobody answered by then comes to nothing.
    """

    lease_id: LeaseId
    market: str
    proposal_id: UUID
    tenant_id: TenantId
    user_id: UserId | None
    of: tuple[TenantId, ...]
    before: Rate
    price: Rate
    since: datetime
    answer_by: datetime
    why: str
    at: datetime


class LeasePriceAgreed(Event, name="marketplace.lease-price-agreed"):
    """An organisation that was asked agrees. by_all: it was the last; the price changes."""

    lease_id: LeaseId
    proposal_id: UUID
    tenant_id: TenantId
    user_id: UserId | None
    by_all: bool
    at: datetime


class LeasePriceDeclined(Event, name="marketplace.lease-price-declined"):
    """An organisation that was asked does not agree: the price stays."""

    lease_id: LeaseId
    proposal_id: UUID
    tenant_id: TenantId
    user_id: UserId | None
    why: str
    at: datetime


class LeasePriceWithdrawn(Event, name="marketplace.lease-price-withdrawn"):
    """Who proposed a price does not want it any more."""

    lease_id: LeaseId
    proposal_id: UUID
    tenant_id: TenantId
    user_id: UserId | None
    at: datetime


class LeaseRepriced(Event, name="marketplace.lease-repriced"):
    """All sides agreed: use of the lease from `since` on is charged at `price`.

    before: what use until then is charged at. What is bid for and traded does not change by it.
    """

    lease_id: LeaseId
    market: str
    proposal_id: UUID
    before: Rate
    price: Rate
    since: datetime
    at: datetime


PriceChangeEvent = LeasePriceProposed | LeasePriceAgreed | LeasePriceDeclined | LeasePriceWithdrawn
