"""What happens to a bid: streams bid-<bid_id>, and route-<bid_id> if it had several markets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from ledger.domain.event import Event
from ledger.domain.ids import AccountId, BidId, HoldId, LeaseId, SubscriberId, TenantId, UserId
from ledger.domain.money import Money, Rate
from marketplace.domain.facts.values import (
    Continues,
    ExpiryReason,
    GoodTill,
    GpuRequest,
    GrantRefusal,
    Patience,
    Placement,
    Seeks,
    ServiceClass,
    Workload,
)


class BidPlaced(Event, name="marketplace.bid-placed", version=22, grown_from=1):
    """A consumer asked for `gpus` GPUs for `duration_seconds` and said what they pay at most.

    earliest_start, deadline: the lease must lie between them. A fixed window is one whose
    length is the duration. limit: most per GPU-hour. The hold `hold_id` on `account_id` covers
    limit × gpus × duration, and not more than the budget.

    good_until: with good-till-moment. gpus_min, duration_min_seconds: with less it would make do;
    None: with nothing less. budget: the most the whole lease may cost; None: what the limit says.
    auto_extend_until: the lease goes on in place, step by step, while that can be had at its
    price, but not beyond; None: it ends when its time is over.

    repeat_until: after its lease, or when it expires, the same is asked for again until then.
    resume: what is left of a lease that was cut short is asked for again. continues: it was placed
    for one of these reasons. seeks: which of several places within its limit it takes.
    pausable: once it had the market's firm time, its work may be paused for others, and goes on
    when there is room; it may have others paused until then (`preemption/pause.py`).
    """

    bid_id: BidId
    tenant_id: TenantId
    subscriber_id: SubscriberId
    user_id: UserId | None
    account_id: AccountId
    hold_id: HoldId
    market: str
    request: GpuRequest
    gpus: int
    placement: Placement
    duration_seconds: int
    earliest_start: datetime
    deadline: datetime
    limit: Rate
    service_class: ServiceClass
    patience: Patience
    workload: Workload
    cost_centre: str
    burst_allowed: bool
    at: datetime
    good_till: GoodTill = "good-till-deadline"
    good_until: datetime | None = None
    gpus_min: int | None = None
    duration_min_seconds: int | None = None
    budget: Money | None = None
    auto_extend_until: datetime | None = None
    repeat_until: datetime | None = None
    resume: bool = False
    continues: Continues | None = None
    seeks: Seeks = "cheapest"
    pausable: bool = False


class BidAmended(Event, name="marketplace.bid-amended", version=8, grown_from=1):
    """The consumer changed limit, deadline or number of GPUs; the bid queues anew from here.

    gpus: None: as before; else gpus_min is the least it makes do with from here on, and request
    what each GPU must be: of fewer ones each may need more memory.
    """

    bid_id: BidId
    limit: Rate
    deadline: datetime
    at: datetime
    gpus: int | None = None
    gpus_min: int | None = None
    request: GpuRequest | None = None

    def taken_over(self, placed: BidPlaced) -> BidPlaced:
        """Return a bid as placed with the number of GPUs as amended."""
        if self.gpus is None or self.request is None:
            return placed
        return replace(placed, gpus=self.gpus, gpus_min=self.gpus_min, request=self.request)


class BidCancelled(Event, name="marketplace.bid-cancelled"):
    """The consumer withdrew the bid before it was filled."""

    bid_id: BidId
    at: datetime


class BidExpired(Event, name="marketplace.bid-expired", version=2, grown_from=1):
    """The bid can no longer be met by its deadline, or waits no longer.

    reason: its deadline, the moment it was good till, or that it was not met when it came.
    """

    bid_id: BidId
    at: datetime
    reason: ExpiryReason = "deadline"


class BidFilled(Event, name="marketplace.bid-filled"):
    """The engine's grant was taken up: the bid is now the lease `lease_id`."""

    bid_id: BidId
    lease_id: LeaseId
    at: datetime


class GrantRefused(Event, name="marketplace.grant-refused"):
    """A grant of the engine did not become a lease: what it was decided on had changed since.

    It binds nobody: its capacity is free, the leases it would have cut go on, and the bid, if it
    is still open, is offered capacity again.
    """

    bid_id: BidId
    lease_id: LeaseId
    market: str
    reason: GrantRefusal
    at: datetime


class BidChainEnded(Event, name="marketplace.bid-chain-ended"):
    """No bid follows this one, which is to be placed again or resumed.

    because: a word of `marketplace/domain/leases/renewals.py`, or the code by which the next was
    refused.
    """

    bid_id: BidId
    because: str
    at: datetime


class BidAwaitsMoney(Event, name="marketplace.bid-awaits-money", version=2, grown_from=1):
    """What is to follow this bid is placed once its account covers it, and until then waits.

    needs: what the next bid sets aside. until: from when on nothing follows any more. budget: the
    title of the organisation's budget that has no room for it; empty: the account has not the
    money. opens_at: when the next period of that budget begins.
    """

    bid_id: BidId
    account_id: AccountId
    needs: Money
    until: datetime
    at: datetime
    budget: str = ""
    opens_at: datetime | None = None


class ReturnDue(Event, name="marketplace.return-due"):
    """The rest of paused work cannot wait longer: from here on others may be paused for it."""

    bid_id: BidId
    market: str
    at: datetime


class BidMoveAsked(Event, name="marketplace.bid-move-asked", version=17, grown_from=1):
    """Another market would serve the bid now: that of `market` is asked to hand it on to `to`.

    placed: the bid as it was placed, in its new market; limit, deadline: as last amended. What is
    amended from here on, until it is handed on, both markets hear. price, starts_at: what it
    would get there.
    """

    bid_id: BidId
    market: str
    to: str
    placed: BidPlaced
    limit: Rate
    deadline: datetime
    price: Rate
    starts_at: datetime
    at: datetime


BidEvent = (
    BidPlaced
    | BidAmended
    | BidCancelled
    | BidExpired
    | BidFilled
    | GrantRefused
    | BidChainEnded
    | BidMoveAsked
    | ReturnDue
    | BidAwaitsMoney
)


RouteReason = Literal["cheapest-now", "soonest", "least-waited-for", "nowhere"]


@dataclass(frozen=True, slots=True)
class Considered:
    """What one market would do with a bid.

    price, starts_at: of a quote; None: no room. fitting: GPUs listed that could serve it, taken or
    not. wanted: GPUs that those ahead of it wait for.
    """

    market: str
    price: Rate | None = None
    starts_at: datetime | None = None
    fitting: int = 0
    wanted: int = 0

    @property
    def crowd_ppm(self) -> int:
        """Return how many GPUs are waited for on each that could serve, in millionths."""
        return self.wanted * 1_000_000 // self.fitting


class BidRouted(Event, name="marketplace.bid-routed"):
    """A bid that several markets could serve goes to one of them."""

    bid_id: BidId
    market: str
    because: RouteReason
    considered: tuple[Considered, ...]
    at: datetime
