"""What cuts a lease short besides its owners: its consumer sells the rest, a firm bid needs it."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.event import Event
from ledger.domain.ids import HostId, LeaseId, TenantId
from ledger.domain.money import Money, Rate
from marketplace.domain.facts.values import Compensation

# --- on lease-<lease_id>, beside the events of `events` -----------------------------------------


class ResaleListed(Event, name="marketplace.resale-listed"):
    """The consumer wants to sell what is left of the lease from `since` on.

    floor: least per GPU-hour, not below the lease's own price. Until `opens_at` the owner of the
    GPUs has the right of first refusal; then it is open to the market.
    """

    lease_id: LeaseId
    market: str
    since: datetime
    ends_at: datetime
    floor: Rate
    lease_min_seconds: int
    opens_at: datetime
    at: datetime


class ResaleOpened(Event, name="marketplace.resale-opened"):
    """The owner did not take the rest of the lease: whoever bids for it may have it."""

    lease_id: LeaseId
    market: str
    tenant_id: TenantId
    since: datetime
    ends_at: datetime
    floor: Rate
    lease_min_seconds: int
    at: datetime


class ResaleEnded(Event, name="marketplace.resale-ended"):
    """The consumer keeps the rest of the lease after all."""

    lease_id: LeaseId
    market: str
    at: datetime


class LeaseShortened(Event, name="marketplace.lease-shortened"):
    """The rest of the lease from `ends_at` on was sold: it belongs to `sold_to` now.

    stands: False where an owner's reclaim came first; the lease sold is given back to the owner.
    """

    lease_id: LeaseId
    market: str
    sold_to: LeaseId
    ends_at: datetime
    stands: bool
    at: datetime


class LeaseInterrupted(Event, name="marketplace.lease-interrupted"):
    """The market takes an interruptible lease's capacity for a firm bid, from `stop_at` on.

    compensations: what the owners pay for it, by the terms of a reclaim with that notice.
    """

    lease_id: LeaseId
    in_favour_of: LeaseId
    stop_at: datetime
    compensations: tuple[Compensation, ...]
    at: datetime


class LeaseHostLost(Event, name="marketplace.lease-host-lost"):
    """A host of the lease was not heard for so long that the lease ends.

    heard_at: when its agent was heard last. compensation: by its owner, as of a reclaim without
    notice.
    """

    lease_id: LeaseId
    market: str
    host_id: HostId
    owner_id: TenantId
    heard_at: datetime
    compensation: Money
    at: datetime


class CutWithdrawn(Event, name="marketplace.cut-withdrawn"):
    """The grant for which the lease was to end sooner did not become one: it goes on as before.

    Only where a store cannot write to several streams at once. ends_at, stop_at: as they are
    without that grant. for_sale: whether the rest is for sale again.
    """

    lease_id: LeaseId
    market: str
    in_favour_of: LeaseId
    ends_at: datetime
    stop_at: datetime | None
    for_sale: bool
    at: datetime
