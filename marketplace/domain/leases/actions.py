"""What may be done with a lease as it stands: one rule for what is refused and for what is offered.

A command that is refused whatever it says about times and money is refused here; so a page, a list
and the API offer exactly what these rules let through, and none of them knows a state by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, assert_never, get_args
from uuid import UUID

from ledger.domain.ids import LeaseId, TenantId
from ledger.domain.refusal import Forbidden, Invalid, Refusal
from marketplace.domain.facts.instants import ONE_SECOND
from marketplace.domain.leases.reclaim_schedule import least_notice
from marketplace.domain.leases.state import LeaseState, State

Action = Literal["end", "extend", "sell", "keep", "checkpoint", "reclaim", "take-first", "reprice"]
ACTIONS: tuple[Action, ...] = get_args(Action)
OF_CONSUMERS: frozenset[Action] = frozenset({"end", "extend", "sell", "keep", "checkpoint"})
"""The others are an owner's; `reprice` is of both sides."""

Sale = Literal["", "first-refusal", "open", "sold"]

LEASE_MAX = timedelta(days=30)
"""A lease longer than a month outlives every price it was cleared at."""

FIRST_REFUSAL = timedelta(minutes=15)
"""How long the rest of a lease is the owner's alone to take, once its consumer wants to sell it."""

PRICE_AHEAD_MIN = timedelta(minutes=5)
"""So long before it holds another price is proposed, at the least."""

REST_MIN = timedelta(minutes=1)
"""The shortest rest that can be sold."""


class LeaseOver(Refusal):
    """That lease is over."""


class ReclaimUnderWay(Refusal):
    """An owner is already taking that lease's capacity back, at least as soon: by `stop_at`."""


class RestOnSale(Refusal):
    """The rest of the lease is for sale, or sold: it cannot be extended."""


class ResoldIsFixed(Refusal):
    """A lease bought from another consumer ends when that one's would have ended."""


class LeaseTooLong(Invalid):
    """A lease may last thirty days at most."""


class NotTheOwner(Forbidden):
    """Only an owner of its GPUs may reclaim a lease."""


class LeaseEndsSooner(Refusal):
    """The lease ends before the notice of a reclaim would be over.

    Nothing needs to be done: the capacity comes back at `ends_at`.
    """


class RestTooShort(Invalid):
    """Nothing is left to sell: the rest must last a minute, and the shortest lease sold of it.

    The owner has a quarter of an hour to take it first.
    """


class GangCannotBeResold(Refusal):
    """Only a lease on one host can be sold on."""


class ResaleOfResale(Refusal):
    """A lease bought from another consumer cannot be sold on once more."""


class ResaleOfRented(Refusal):
    """Rented cloud capacity is not sold on."""


class NothingOnSale(Refusal):
    """The rest of that lease is not for sale."""


class FirstRefusalOver(Refusal):
    """The time in which the owner could take the rest first is over: it is open to the market.

    A reclaim is always possible, at the fee that was agreed.
    """


class NotAParty(Forbidden):
    """The consumer and the owners of a lease agree on its price, nobody else."""


class PriceIsYourOwn(Refusal):
    """Consumer and owner are one organisation: there is nobody to agree with."""


class PriceTooSoon(Invalid):
    """A new price holds from five minutes ahead at the soonest, and before the lease ends.

    It holds after the last that was agreed. It is answered a minute before that at the latest.
    """


class PriceIsFixed(Refusal):
    """The price of rented capacity, and of a lease bought from another consumer, is fixed."""


class CheckpointOutOfLease(Invalid):
    """A checkpoint lies between the start of the work, `since`, and now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What decides on the actions that a lease allows: told by its stream, or by its row.

    notices: the least notice that each owner promised for its shares. opens_at: until when a rest
    that is for sale is its owner's alone. bought: it is the rest of another lease.
    """

    lease_id: LeaseId
    consumer_id: TenantId
    state: State
    starts_at: datetime
    ends_at: datetime
    stop_at: datetime | None
    is_started: bool
    hosts: int
    notices: Mapping[TenantId, timedelta]
    is_bought: bool
    is_rented: bool
    sale: Sale
    opens_at: datetime | None

    @property
    def due_at(self) -> datetime:
        """Return when the right to the GPUs ends, as far as is known."""
        return self.ends_at if self.stop_at is None else min(self.ends_at, self.stop_at)


def standing_of(lease: LeaseState) -> Standing:
    """Return how a lease stands by its own stream."""
    shares, resale = lease.terms.shares, lease.rights.resale
    sale: Sale = ""
    if resale is not None:
        sale = "open" if lease.rights.resale_open else "first-refusal"
    elif lease.rights.shortened is not None:
        sale = "sold"
    return Standing(
        lease_id=lease.terms.lease_id,
        consumer_id=lease.terms.tenant_id,
        state=lease.state,
        starts_at=lease.starts_at,
        ends_at=lease.ends_at,
        stop_at=lease.stop_at,
        is_started=bool(lease.started),
        hosts=len(lease.hosts),
        notices={
            owner_id: least_notice(share for share in shares if share.owner_id == owner_id)
            for owner_id in {share.owner_id for share in shares}
        },
        is_bought=any(share.resold for share in shares),
        is_rented=any(share.source == "burst" for share in shares),
        sale=sale,
        opens_at=None if resale is None else resale.opens_at,
    )


def offered(lease: Standing, *, tenant_id: TenantId, now: datetime) -> tuple[Action, ...]:
    """Return what an organisation may do with a lease at `now`, in the order of `ACTIONS`."""
    return tuple(
        action
        for action in ACTIONS
        if (action not in OF_CONSUMERS or tenant_id == lease.consumer_id)
        and refusal_of(action, lease, tenant_id=tenant_id, now=now) is None
    )


def is_consumers(action: Action, consumer_id: UUID, tenant_id: UUID) -> bool:
    """Tell if an action is the consumer's: also one of both sides that the consumer asks for."""
    return action in OF_CONSUMERS or (action == "reprice" and tenant_id == consumer_id)


def need(action: Action, lease: LeaseState, *, tenant_id: TenantId, now: datetime) -> None:
    """Refuse an action that the lease does not allow, whatever else is asked.

    Raises: what `refusal_of` returns.
    """
    refusal = refusal_of(action, standing_of(lease), tenant_id=tenant_id, now=now)
    if refusal is not None:
        raise refusal


def refusal_of(
    action: Action, lease: Standing, *, tenant_id: TenantId, now: datetime
) -> Refusal | None:
    """Return why nobody, or this owner, may do that with the lease now; None: it is allowed."""
    match action:
        case "end":
            return _ended(lease)
        case "extend":
            return _ended(lease, by=now) or _cut(lease) or _not_extended(lease)
        case "sell":
            return _ended(lease, by=now) or _cut(lease) or _not_sold(lease, now)
        case "keep":
            return _not_on_sale(lease) or _ended(lease)
        case "checkpoint":
            return _not_saved(lease, now)
        case "reclaim":
            return _not_reclaimed(lease, tenant_id, now)
        case "take-first":
            return _not_taken(lease, tenant_id, now)
        case "reprice":
            return not_repriced(lease, tenant_id, now) or _no_time_left(lease, now)
        case _:
            assert_never(action)


def _ended(lease: Standing, *, by: datetime | None = None) -> Refusal | None:
    """Refuse what is asked of a lease that is over or about to be.

    by: also of one whose right is over by then, though the market's clock has not looked yet.
    """
    if lease.state not in ("ending", "closed", "failed") and (by is None or by < lease.due_at):
        return None
    return LeaseOver(lease_id=lease.lease_id, state=lease.state)


def _cut(lease: Standing) -> Refusal | None:
    if lease.stop_at is None:
        return None
    return ReclaimUnderWay(lease_id=lease.lease_id, stop_at=lease.stop_at)


def _not_extended(lease: Standing) -> Refusal | None:
    if lease.sale:
        return RestOnSale(lease_id=lease.lease_id)
    if lease.is_bought:
        return ResoldIsFixed(lease_id=lease.lease_id)
    if lease.ends_at - lease.starts_at >= LEASE_MAX:
        return LeaseTooLong(days_max=LEASE_MAX.days)
    return None


def _not_sold(lease: Standing, now: datetime) -> Refusal | None:
    if lease.hosts > 1:
        return GangCannotBeResold(hosts=lease.hosts)
    if lease.is_bought:
        return ResaleOfResale(lease_id=lease.lease_id)
    if lease.is_rented:
        return ResaleOfRented(lease_id=lease.lease_id)
    if lease.sale:
        return RestOnSale(lease_id=lease.lease_id)
    left = lease.ends_at - max(now + FIRST_REFUSAL, lease.starts_at)
    if left < REST_MIN:
        return RestTooShort(
            seconds_left=max(0, left // ONE_SECOND), lease_min_seconds=REST_MIN // ONE_SECOND
        )
    return None


def _not_on_sale(lease: Standing) -> Refusal | None:
    if lease.sale in ("first-refusal", "open"):
        return None
    return NothingOnSale(lease_id=lease.lease_id)


def _not_saved(lease: Standing, now: datetime) -> Refusal | None:
    if lease.state in ("closed", "failed"):
        return LeaseOver(lease_id=lease.lease_id, state=lease.state)
    if not lease.is_started:
        return CheckpointOutOfLease(since=lease.starts_at, until=now)
    return None


def _not_reclaimed(lease: Standing, owner_id: TenantId, now: datetime) -> Refusal | None:
    least = lease.notices.get(owner_id)
    if least is None:
        return NotTheOwner(lease_id=lease.lease_id)
    if refusal := _ended(lease):
        return refusal
    if lease.stop_at is not None and now + least >= lease.stop_at:
        return ReclaimUnderWay(lease_id=lease.lease_id, stop_at=lease.stop_at)
    if now + least >= lease.ends_at:
        return LeaseEndsSooner(lease_id=lease.lease_id, ends_at=lease.ends_at)
    return None


def _not_taken(lease: Standing, owner_id: TenantId, now: datetime) -> Refusal | None:
    if owner_id not in lease.notices:
        return NotTheOwner(lease_id=lease.lease_id)
    if refusal := _not_on_sale(lease) or _ended(lease):
        return refusal
    assert lease.opens_at is not None
    if lease.sale == "open" or now >= lease.opens_at:
        return FirstRefusalOver(opened_at=lease.opens_at)
    return None


def not_repriced(lease: Standing, tenant_id: TenantId, now: datetime) -> Refusal | None:
    """Return why an organisation has no say in the price of a lease as it stands; None: it has."""
    if tenant_id != lease.consumer_id and tenant_id not in lease.notices:
        return NotAParty(lease_id=lease.lease_id)
    if set(lease.notices) == {lease.consumer_id}:
        return PriceIsYourOwn(lease_id=lease.lease_id)
    if lease.is_bought or lease.is_rented:
        return PriceIsFixed(lease_id=lease.lease_id)
    if lease.sale:
        return RestOnSale(lease_id=lease.lease_id)
    return _ended(lease, by=now) or _cut(lease)


def _no_time_left(lease: Standing, now: datetime) -> Refusal | None:
    if now + PRICE_AHEAD_MIN < lease.ends_at:
        return None
    return PriceTooSoon(soonest=now + PRICE_AHEAD_MIN, lease_ends_at=lease.ends_at)
