"""What is agreed on idle leases, and what came of it, as facts.

Streams idle-rule-<bid_id or tenant_id> and idle-<lease_id>.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import LeaseId, TenantId

RuleOf = Literal["bid", "tenant"]
LiftedBy = Literal["use", "gap", "consumer", "rule"]
"""Why a warning no longer holds: the work did something; it was not measured for a while; its
consumer keeps it; there is no such rule any more, or a longer one."""


@dataclass(frozen=True, slots=True)
class IdleTerms:
    """When a lease counts as idle: all of it below all of these, for so long.

    busy_percent: of the busiest GPU. cpu_millicores, disk_bytes and network_bytes (both per
    second): of its work on one host.
    """

    after_seconds: int
    busy_percent: int = 5
    cpu_millicores: int = 500
    disk_bytes: int = 1_048_576
    network_bytes: int = 1_048_576


class IdleRuleSet(Event, name="metering.idle-rule-set"):
    """A bid's leases, or a tenant's, are released when idle; terms None: they are not any more."""

    rule_id: UUID
    of: RuleOf
    tenant_id: TenantId
    terms: IdleTerms | None
    at: datetime


class IdleWarned(Event, name="metering.idle-warned"):
    """A lease is idle since then, and released at `release_at` unless it does something."""

    lease_id: LeaseId
    tenant_id: TenantId
    terms: IdleTerms
    since: datetime
    release_at: datetime
    at: datetime


class IdleWarningLifted(Event, name="metering.idle-warning-lifted"):
    """A warning no longer holds."""

    lease_id: LeaseId
    by: LiftedBy
    at: datetime


class IdleLeaseKept(Event, name="metering.idle-lease-kept"):
    """The consumer keeps a lease, idle as it may be: it counts anew from then on."""

    lease_id: LeaseId
    tenant_id: TenantId
    at: datetime


class IdleLeaseReleased(Event, name="metering.idle-lease-released"):
    """The rest of a lease was given back, since it was idle from then on."""

    lease_id: LeaseId
    since: datetime
    at: datetime


IdleEvent = IdleWarned | IdleWarningLifted | IdleLeaseKept | IdleLeaseReleased
