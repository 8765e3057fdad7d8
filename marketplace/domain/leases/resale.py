"""A consumer sells the rest of a lease; its owner may take it first.

All of it in one rule: **where the rest is sold, the first lease ends.** Buyers bid for the rest as
for any offer; the first grant on it cuts the first lease at the instant it begins, on all its GPUs
and in the same fact, and what it leaves unsold is the owner's again. So no GPU ever has two
leases, nobody pays for the same GPU-time twice, and until somebody buys the holder keeps it.

The floor is not below the price of the first lease: a lease can be left at any time for nothing,
so nobody needs to sell at a loss, and the owner can always get what the first lease agreed.
"""

from __future__ import annotations

from datetime import datetime

from ledger.domain.ids import LeaseId, TenantId
from ledger.domain.money import Money, Rate
from ledger.domain.refusal import Invalid
from marketplace.domain.facts.events import (
    LeaseEvent,
    LeaseShortened,
    ReclaimRequested,
    ResaleEnded,
    ResaleListed,
)
from marketplace.domain.facts.instants import ONE_MILLI, ONE_SECOND
from marketplace.domain.leases.actions import FIRST_REFUSAL, NothingOnSale, RestTooShort, need
from marketplace.domain.leases.lease import Lease

LEASE_MIN_SECONDS_MAX = 30 * 86_400


class FloorBelowPrice(Invalid):
    """The rest of a lease is sold at its own price or above: `price` per GPU-hour.

    A lease that is not needed any more can be ended; then it costs nothing more.
    """


def list_rest(
    lease: Lease,
    *,
    since: datetime | None,
    floor: Rate,
    lease_min_seconds: int = 900,
    now: datetime,
) -> list[LeaseEvent]:
    """Decide whether the consumer may put what is left from `since` on back on the market.

    Args:
        since: None: from now on, or all of a lease that has not begun.

    Raises: LeaseOver, ReclaimUnderWay, RestOnSale, GangCannotBeResold, ResaleOfResale,
        ResaleOfRented, FloorBelowPrice, RestTooShort.
    """
    terms = lease.terms
    need("sell", lease, tenant_id=terms.tenant_id, now=now)
    price = max(terms.price, lease.price_at(lease.ends_at))
    if floor.currency != price.currency or floor < price:
        raise FloorBelowPrice(price=price)
    begins = max(since or now, now, lease.starts_at)
    opens_at = now + FIRST_REFUSAL
    left = (lease.ends_at - max(begins, opens_at)) // ONE_SECOND
    if not 1 <= lease_min_seconds <= LEASE_MIN_SECONDS_MAX or left < max(60, lease_min_seconds):
        raise RestTooShort(seconds_left=max(0, left), lease_min_seconds=lease_min_seconds)
    listed = ResaleListed(
        lease_id=terms.lease_id,
        market=terms.market,
        since=begins,
        ends_at=lease.ends_at,
        floor=floor,
        lease_min_seconds=lease_min_seconds,
        opens_at=opens_at,
        at=now,
    )
    return [listed]


def keep_rest(lease: Lease, *, now: datetime) -> list[LeaseEvent]:
    """Decide whether the consumer keeps the rest after all: until somebody bought it.

    Raises: NothingOnSale, LeaseOver.
    """
    need("keep", lease, tenant_id=lease.terms.tenant_id, now=now)
    return [ResaleEnded(lease_id=lease.terms.lease_id, market=lease.terms.market, at=now)]


def price_of_rest(lease: Lease, *, now: datetime) -> Money:
    """Return what the owner pays to take the rest first: what the consumer would gain by a sale.

    (floor − price) × GPU-time from `since` (or from now, if that is later) to the lease's end,
    each rounded down to a nano-unit. The owner's own price is saved by not being charged.

    Raises: NothingOnSale.
    """
    resale = lease.rights.resale
    if resale is None:
        raise NothingOnSale(lease_id=lease.terms.lease_id)
    gpu_millis = (lease.ends_at - max(resale.since, now)) // ONE_MILLI * lease.gpus
    return resale.floor.charge(gpu_millis) - lease.price_at(now).charge(gpu_millis)


def take_first(lease: Lease, *, owner_id: TenantId, now: datetime) -> list[LeaseEvent]:
    """Decide whether the owner takes the rest that is for sale, before the market is asked.

    It is a reclaim at the resale's own terms: from the instant that the consumer named, without
    further notice, for what the consumer would have gained at the floor.

    Raises: NotTheOwner, NothingOnSale, LeaseOver, FirstRefusalOver.
    """
    need("take-first", lease, tenant_id=owner_id, now=now)
    price = price_of_rest(lease, now=now)
    resale = lease.rights.resale
    assert resale is not None
    return [
        ReclaimRequested(
            lease_id=lease.terms.lease_id,
            owner_id=owner_id,
            stop_at=max(resale.since, now),
            at=now,
            compensation=price,
        )
    ]


def shorten(
    lease: Lease, *, sold_to: LeaseId, ends_at: datetime, now: datetime
) -> list[LeaseEvent]:
    """Take up that the rest is sold: the lease ends where the one sold begins.

    Whether that still may be is asked before (`grant_checks.cut_short`).
    """
    return [
        LeaseShortened(
            lease_id=lease.terms.lease_id,
            market=lease.terms.market,
            sold_to=sold_to,
            ends_at=ends_at,
            stands=True,
            at=now,
        )
    ]
