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
    MaintenanceId,
    SubscriberId,
    TenantId,
    UserId,
)
from ledger.domain.money import Money, Rate
from ledger.domain.span import Window
from marketplace.domain.facts.bid_events import BidAmended as BidAmended
from marketplace.domain.facts.bid_events import BidAwaitsMoney as BidAwaitsMoney
from marketplace.domain.facts.bid_events import BidCancelled as BidCancelled
from marketplace.domain.facts.bid_events import BidChainEnded as BidChainEnded
from marketplace.domain.facts.bid_events import BidEvent as BidEvent
from marketplace.domain.facts.bid_events import BidExpired as BidExpired
from marketplace.domain.facts.bid_events import BidFilled as BidFilled
from marketplace.domain.facts.bid_events import BidMoveAsked as BidMoveAsked
from marketplace.domain.facts.bid_events import BidPlaced as BidPlaced
from marketplace.domain.facts.bid_events import GrantRefused as GrantRefused
from marketplace.domain.facts.bid_events import ReturnDue as ReturnDue
from marketplace.domain.facts.maintenance_events import MaintenanceNoticed as MaintenanceNoticed
from marketplace.domain.facts.maintenance_events import (
    MaintenanceNoticeWithdrawn as MaintenanceNoticeWithdrawn,
)
from marketplace.domain.facts.price_events import LeaseRepriced as LeaseRepriced
from marketplace.domain.facts.values import Certificate as Certificate
from marketplace.domain.facts.values import Compensation as Compensation
from marketplace.domain.facts.values import Continues as Continues
from marketplace.domain.facts.values import Cut as Cut
from marketplace.domain.facts.values import ExpiryReason as ExpiryReason
from marketplace.domain.facts.values import GoodTill as GoodTill
from marketplace.domain.facts.values import GpuRequest as GpuRequest
from marketplace.domain.facts.values import GrantRefusal as GrantRefusal
from marketplace.domain.facts.values import KeptOff as KeptOff
from marketplace.domain.facts.values import Patience as Patience
from marketplace.domain.facts.values import Placement as Placement
from marketplace.domain.facts.values import Posed as Posed
from marketplace.domain.facts.values import Resold as Resold
from marketplace.domain.facts.values import Seeks as Seeks
from marketplace.domain.facts.values import ServiceClass as ServiceClass
from marketplace.domain.facts.values import Share as Share
from marketplace.domain.facts.values import Unmatched as Unmatched
from marketplace.domain.facts.values import Workload as Workload
from marketplace.domain.facts.work_events import FilesAwaited as FilesAwaited
from marketplace.domain.facts.work_events import LeaseHardwareFailed as LeaseHardwareFailed
from marketplace.domain.facts.work_events import LeaseMoved as LeaseMoved
from marketplace.domain.facts.work_events import OutputsFailed as OutputsFailed
from marketplace.domain.facts.work_events import WorkSaved as WorkSaved
from marketplace.domain.facts.work_events import WorkStarted as WorkStarted
from marketplace.domain.facts.work_events import WorkStopped as WorkStopped

RULE = "price-time-7"
"""The version of the rule by which the instant lane matches, as its rounds are stamped."""
ROUND_RULE = "welfare-9"
"""That of rounds: see `batch_clearing.clear_round`."""

# --- the engine's decisions: stream market-<name>, one append a round -------------------------


class RoundCleared(Event, name="marketplace.round-cleared", version=5, grown_from=1):
    """The engine looked at the book and decided.

    lane: `instant` or `round`. through: store position up to which it had read.
    price: the lowest, and highest price per GPU-hour of the round's grants; 0 without any.
    rule: name of the clearing rule; the same book and rule give the same grants.
    certificate: of a round of patient bids; None in the instant lane.
    at: when it began, from which grants may start.
    posed: the book it was worked out on, beside the instant lane, if it was; what held of it on the
    book up to `through` is here. None: it was cleared on that book, as all old ones.
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
    posed: Posed | None = None


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


class LeaseScheduled(Event, name="marketplace.lease-scheduled", version=12, grown_from=1):
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


class ReclaimRequested(Event, name="marketplace.reclaim-requested", version=4, grown_from=1):
    """An owner takes capacity back: the work has until `stop_at`, then it is stopped.

    maintenance_id: for maintenance that was announced; None: for good.

    compensation: what the owner pays for it, by the lease's terms; None in old events, where it
    is worked out from the same terms. rented: the owner has it from a cloud, which takes it back.
    """

    lease_id: LeaseId
    owner_id: TenantId
    stop_at: datetime
    at: datetime
    compensation: Money | None = None
    maintenance_id: MaintenanceId | None = None
    rented: bool = False


class ExtensionRequested(Event, name="marketplace.extension-requested"):
    """The consumer asked to go on until `ends_at`; the engine answers."""

    lease_id: LeaseId
    market: str
    ends_at: datetime
    at: datetime


class ExtensionRefused(Event, name="marketplace.extension-refused", version=2, grown_from=1):
    """A lease that goes on by itself could not be extended until `ends_at`; it may yet be.

    reason: the code of the refusal, such as `funds-insufficient`, or `budget-spent`. pausing: its
    work saves itself, and waits for money once the lease is over; it is asked to save now.
    """

    lease_id: LeaseId
    market: str
    ends_at: datetime
    reason: str
    at: datetime
    pausing: bool = False


class LeaseExtended(Event, name="marketplace.lease-extended"):
    """The lease now ends at `ends_at`, on the same GPUs at the same price."""

    lease_id: LeaseId
    ends_at: datetime
    at: datetime


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


class LeaseInterrupted(Event, name="marketplace.lease-interrupted", version=2, grown_from=1):
    """The market takes a lease's capacity for another bid, from `stop_at` on.

    compensations: what the owners pay for it, by the terms of a reclaim with that notice.
    pausing: its bid lets the market pause the work: nobody pays anything, and the rest goes on. In
    favour of itself: a budget was reached.
    """

    lease_id: LeaseId
    in_favour_of: LeaseId
    stop_at: datetime
    compensations: tuple[Compensation, ...]
    at: datetime
    pausing: bool = False


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


class LeaseEnding(Event, name="marketplace.lease-ending"):
    """The end has come: the agents are asked to stop the work. `reason`: a close reason."""

    lease_id: LeaseId
    reason: int
    at: datetime


class LeaseClosed(Event, name="marketplace.lease-closed", version=5, grown_from=1):
    """The lease is over and its capacity free from `at` on.

    ended_at: when the right to the GPUs ended: the consumer's close, the deadline, the end of the
    window. Nothing after it is charged. None in old events, where it is `at`.

    reason: 1xx consumer, 2xx owner, 3xx platform, 4xx money, 5xx fault
    (marketplace/domain/facts/close_reasons.py). failed: the work never came up or was lost.
    compensation: what the owner whose reclaim was due first pays the consumer.
    compensations: what other owners pay, who had reclaimed the lease too, for later.
    kept_seconds, lost_seconds: of work that others cut short, how much of the lease's time is safe
    (its last checkpoint), and how much was worked after that in vain. None: it was not cut short.
    of_host: whose silence or hardware ended it; None: no one host's.
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
    of_host: HostId | None = None


LeaseEvent = (
    LeaseScheduled
    | LeaseStarting
    | LeaseActivated
    | FilesAwaited
    | WorkStarted
    | WorkStopped
    | WorkSaved
    | OutputsFailed
    | ReclaimRequested
    | ExtensionRequested
    | ExtensionRefused
    | LeaseExtended
    | LeaseRepriced
    | ResaleListed
    | ResaleOpened
    | ResaleEnded
    | LeaseShortened
    | LeaseInterrupted
    | LeaseMoved
    | LeaseHostLost
    | LeaseHardwareFailed
    | CutWithdrawn
    | MaintenanceNoticed
    | MaintenanceNoticeWithdrawn
    | LeaseEnding
    | LeaseClosed
)
