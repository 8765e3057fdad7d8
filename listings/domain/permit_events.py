"""Who may list what on a market, as facts: streams listing-permits-<market>."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.event import Event
from ledger.domain.ids import TenantId


class ListingAllowed(Event, name="listings.listing-allowed"):
    """An organisation may, or may not, list GPUs of a class from now on.

    tenant_id: None: each organisation of which no other permit speaks. gpu_class: a model or its
    kind, or `any`. why: what whoever decided it says for it.
    """

    market: str
    tenant_id: TenantId | None
    gpu_class: str
    allowed: bool
    at: datetime
    why: str = ""
