"""What owners promised a lease of their service, and what came of it: streams lease-sla-<lease id>.

Apart from the lease's own stream: no decision on the lease depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ledger.domain.event import Event
from ledger.domain.ids import HostId, LeaseId, OfferId, TenantId
from listings.domain.sla_events import SlaTerms


@dataclass(frozen=True, slots=True)
class SlaPart:
    """What one owner promised for its GPUs on one host of a lease."""

    owner_id: TenantId
    offer_id: OfferId
    host_id: HostId
    gpus: int
    terms: SlaTerms


@dataclass(frozen=True, slots=True)
class SlaResult:
    """What came of one part.

    late_seconds: from the lease's begin, or from when the market asked later than that, to when its
    work started there; None: it never did, or that was not the owner's doing. available_seconds: of
    agreed_seconds, how long the host gave. credit_ppm: of what its GPUs were charged.
    """

    owner_id: TenantId
    host_id: HostId
    gpus: int
    late_seconds: int | None
    available_seconds: int
    agreed_seconds: int
    credit_ppm: int


class SlaAgreed(Event, name="marketplace.sla-agreed"):
    """A lease was granted on promises of its owners' service."""

    lease_id: LeaseId
    parts: tuple[SlaPart, ...]
    at: datetime


class SlaMeasured(Event, name="marketplace.sla-measured"):
    """The lease is over and paid: how each promise was kept, and what is credited."""

    lease_id: LeaseId
    results: tuple[SlaResult, ...]
    at: datetime


SlaEvent = SlaAgreed | SlaMeasured
