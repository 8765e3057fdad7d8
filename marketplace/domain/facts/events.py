"""Every fact of the market: what was asked, what the engine decided, what became of it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import (
    AccountId,
    BidId,
    HoldId,
    HostId,
    LeaseId,
    SubscriberId,
    TenantId,
    UserId,
)
from ledger.domain.money import Money, Rate
from ledger.domain.span import Window
from marketplace.domain.facts.bid_events import (
    BidAmended,
    BidCancelled,
    BidChainEnded,
    BidEvent,
    BidExpired,
    BidFilled,
    BidMoveAsked,
    BidPlaced,
    GrantRefused,
)
from marketplace.domain.facts.claim_events import (
    CutWithdrawn,
    LeaseHostLost,
    LeaseInterrupted,
    LeaseShortened,
    ResaleEnded,
    ResaleListed,
    ResaleOpened,
)
from marketplace.domain.facts.values import (
    Certificate,
    Compensation,
    Continues,
    Cut,
    ExpiryReason,
    GoodTill,
    GpuRequest,
    GrantRefusal,
    Patience,
    Placement,
    Resold,
    Seeks,
    ServiceClass,
    Share,
    Unmatched,
    Workload,
)
from marketplace.domain.facts.work_events import WorkSaved

__all__ = [
    "BidAmended",
    "BidCancelled",
    "BidChainEnded",
    "BidEvent",
    "BidExpired",
    "BidFilled",
    "BidMoveAsked",
    "BidPlaced",
    "Certificate",
    "Compensation",
    "Continues",
    "Cut",
    "CutWithdrawn",
    "ExpiryReason",
    "GoodTill",
    "GpuRequest",
    "GrantRefusal",
    "GrantRefused",
    "LeaseHostLost",
    "LeaseInterrupted",
    "LeaseShortened",
    "Patience",
    "Placement",
    "ResaleEnded",
    "ResaleListed",
    "ResaleOpened",
    "Resold",
    "Seeks",
    "ServiceClass",
    "Share",
    "Unmatched",
    "WorkSaved",
    "Workload",
]
"""The values that events are made of, and the events of bids, are imported from here too."""
# --- the engine's decisions: stream market-<name>, one append a round -------------------------


class RoundCleared(Event, name="marketplace.round-cleared", version=4, grown_from=1):
    """The engine looked at the book and decided.

    lane: `instant` or `round`. through: store position up to which it had read.
    price: the lowest, and highest price per GPU-hour of the round's grants; 0 without any.
    rule: name of the clearing rule; the same book and rule give the same grants.
    certificate: of a round of patient bids; None in the instant lane.
    """

    market: str
    round_id: UUID
    lane: Literal["instant", "round"]
    through: int
    bids: int
    offers: int
    grants: int
    gpus: int
    unmatched: tuple[Unmatched, ...]
    price_low: int
    price_high: int
    rule: str
    at: datetime
    certificate: Certificate | None = None


class LeaseGranted(Event, name="marketplace.lease-granted", version=5, grown_from=1):
    """The engine found these GPUs over this window at this price for a bid.

    It becomes a lease if all it was decided on still holds when it is taken up (`grant_checks`);
    else it is refused and binds nobody (`GrantRefused`).

    cuts: leases that end sooner to make room for it, once it is taken up.
    own: the GPUs are the bidder's own organisation's: price 0, and no trade.
    binds: grants of older versions were leases by this very fact; new ones once they are taken up.
    """

    lease_id: LeaseId
    bid_id: BidId
    market: str
    round_id: UUID
    shares: tuple[Share, ...]
    gpu_model: str
    window: Window
    price: Rate
    at: datetime
    cuts: tuple[Cut, ...] = ()
    own: bool = False
    binds: bool = True


class ExtensionGranted(Event, name="marketplace.extension-granted"):
    """The engine let a lease go on in place until `ends_at`. through: as in RoundCleared."""

    lease_id: LeaseId
    market: str
    ends_at: datetime
    through: int
    at: datetime


class ExtensionDeclined(Event, name="marketplace.extension-declined"):
    """The engine could not let a lease go on: `reason` names what stands in the way.

    through: as in RoundCleared.
    """

    lease_id: LeaseId
    market: str
    ends_at: datetime
    reason: str
    through: int
    at: datetime


class BidHandedOn(Event, name="marketplace.bid-handed-on"):
    """The bid waits in the market `to` from here on, and in this one no more.

    One fact for both: it is never in two markets, and never in none. through: as in RoundCleared.
    """

    bid_id: BidId
    market: str
    to: str
    through: int
    at: datetime


class NothingDecided(Event, name="marketplace.nothing-decided"):
    """The engine went through many facts and had nothing to decide. through: as in RoundCleared.

    By it a fold need not wait for the next decision of a quiet market beside busy ones.
    """

    market: str
    through: int
    at: datetime


MarketEvent = (
    RoundCleared
    | LeaseGranted
    | ExtensionGranted
    | ExtensionDeclined
    | BidHandedOn
    | NothingDecided
)
DECISIONS = (RoundCleared, ExtensionGranted, ExtensionDeclined, BidHandedOn, NothingDecided)
"""Those that say how far the engine had read; grants follow their round."""


# --- leases: streams lease-<lease_id> -----------------------------------------------------------


class LeaseScheduled(Event, name="marketplace.lease-scheduled", version=5, grown_from=1):
    """A grant became a lease with all its terms.

    round_id: of the decision; None in old events, whose grants were binding by themselves.
    """

    lease_id: LeaseId
    bid_id: BidId
    tenant_id: TenantId
    subscriber_id: SubscriberId
    user_id: UserId | None
    account_id: AccountId
    hold_id: HoldId
    market: str
    shares: tuple[Share, ...]
    gpu_model: str
    window: Window
    price: Rate
    fee_ppm: int
    service_class: ServiceClass
    workload: Workload
    cost_centre: str
    at: datetime
    round_id: UUID | None = None

    @property
    def own(self) -> bool:
        """Tell if the GPUs are the consumer's own organisation's: at no price, and no trade."""
        at_home = all(share.owner_id == self.tenant_id for share in self.shares)
        return at_home and self.price.nanos_per_gpu_hour == 0


class LeaseStarting(Event, name="marketplace.lease-starting"):
    """The start has come: the hosts' agents are asked to start the work."""

    lease_id: LeaseId
    at: datetime


class LeaseActivated(Event, name="marketplace.lease-activated"):
    """Every host of the lease has started its part of the work."""

    lease_id: LeaseId
    at: datetime


class WorkStarted(Event, name="marketplace.work-started"):
    """The agent of one host started its part of the work."""

    lease_id: LeaseId
    host_id: HostId
    at: datetime


class WorkStopped(Event, name="marketplace.work-stopped"):
    """The work on one host is gone. exit_code: None where it was stopped or never ran."""

    lease_id: LeaseId
    host_id: HostId
    exit_code: int | None
    detail: str
    at: datetime


class ReclaimRequested(Event, name="marketplace.reclaim-requested", version=2, grown_from=1):
    """An owner takes capacity back: the work has until `stop_at`, then it is stopped.

    compensation: what the owner pays for it, by the lease's terms; None in old events, where it
    is worked out from the same terms.
    """

    lease_id: LeaseId
    owner_id: TenantId
    stop_at: datetime
    at: datetime
    compensation: Money | None = None


class ExtensionRequested(Event, name="marketplace.extension-requested"):
    """The consumer asked to go on until `ends_at`; the engine answers."""

    lease_id: LeaseId
    market: str
    ends_at: datetime
    at: datetime


class ExtensionRefused(Event, name="marketplace.extension-refused"):
    """A lease that goes on by itself could not be extended until `ends_at`; it may yet be.

    reason: the code of the refusal, such as `funds-insufficient`, or `budget-spent`.
    """

    lease_id: LeaseId
    market: str
    ends_at: datetime
    reason: str
    at: datetime


class LeaseExtended(Event, name="marketplace.lease-extended"):
    """The lease now ends at `ends_at`, on the same GPUs at the same price."""

    lease_id: LeaseId
    ends_at: datetime
    at: datetime


class LeaseEnding(Event, name="marketplace.lease-ending"):
    """The end has come: the agents are asked to stop the work. `reason`: a close reason."""

    lease_id: LeaseId
    reason: int
    at: datetime


class LeaseClosed(Event, name="marketplace.lease-closed", version=4, grown_from=1):
    """The lease is over and its capacity free from `at` on.

    ended_at: when the right to the GPUs ended: the consumer's close, the deadline, the end of the
    window. Nothing after it is charged. None in old events, where it is `at`.

    reason: 1xx consumer, 2xx owner, 3xx platform, 4xx money, 5xx fault
    (marketplace/domain/facts/close_reasons.py). failed: the work never came up or was lost.
    compensation: what the owner whose reclaim was due first pays the consumer.
    compensations: what other owners pay, who had reclaimed the lease too, for later.
    kept_seconds, lost_seconds: of work that others cut short, how much of the lease's time is safe
    (its last checkpoint), and how much was worked after that in vain. None: it was not cut short.
    """

    lease_id: LeaseId
    market: str
    reason: int
    failed: bool
    compensation: Money | None
    compensation_from: TenantId | None
    at: datetime
    compensations: tuple[Compensation, ...] = ()
    kept_seconds: int | None = None
    lost_seconds: int | None = None
    ended_at: datetime | None = None


LeaseEvent = (
    LeaseScheduled
    | LeaseStarting
    | LeaseActivated
    | WorkStarted
    | WorkStopped
    | WorkSaved
    | ReclaimRequested
    | ExtensionRequested
    | ExtensionRefused
    | LeaseExtended
    | ResaleListed
    | ResaleOpened
    | ResaleEnded
    | LeaseShortened
    | LeaseInterrupted
    | LeaseHostLost
    | CutWithdrawn
    | LeaseEnding
    | LeaseClosed
)
