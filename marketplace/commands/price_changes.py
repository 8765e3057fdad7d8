"""Propose another price for a lease that runs, agree to it, or decline it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from ledger.commands.repricing import repricing_hold
from ledger.domain.accounts import Account, FundsInsufficient
from ledger.domain.event import Event
from ledger.domain.ids import LeaseId, OfferId, TenantId, UserId
from ledger.domain.money import Rate
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from ledger.eventstore.together import Part, look, record_together
from listings.domain.offers import Offer
from marketplace.commands.spending import drawing
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts.price_events import LeasePriceProposed
from marketplace.domain.leases import price_changes as rules
from marketplace.domain.leases.lease import Lease, LeaseUnknown
from marketplace.domain.leases.price_changes import PriceChanges, Wish
from marketplace.domain.leases.renewals import BudgetSpent, need_budget
from marketplace.domain.spending.budget import BudgetUsedUp
from marketplace.domain.spending.budgets import Budgets

TRIES_MAX = 5
"""A lease that is extended or cut while its price is agreed is looked at again so often."""


class LeaseIsMoving(Refusal):
    """The lease changed several times while its price was agreed. Nothing happened: try again."""


class PriceNotCovered(Refusal):
    """The consumer's account or budgets do not cover what the lease would cost at most.

    Nothing changed. Agree again once they do, or propose a lower price.
    """


class _LookAgain(Refusal):
    """The lease is another by now than the money was worked out for."""


def propose_price(
    store: EventStore, *, lease_id: LeaseId, wish: Wish, by: Meta, now: datetime
) -> Position:
    """Propose another price for a lease, as its consumer or as an owner; once for each id.

    Raises: LeaseUnknown, and what `price_changes.propose` raises.
    """
    lease = _lease(store, lease_id)
    floors = floors_of(store, lease)

    def decide(known: PriceChanges | None) -> Sequence[LeasePriceProposed]:
        return rules.propose(known or PriceChanges(), lease, wish, floors=floors, now=now)

    return record(store, PriceChanges, lease_id, decide, by=by.step(f"propose:{wish.proposal_id}"))


def decline_price(
    store: EventStore,
    *,
    lease_id: LeaseId,
    proposal_id: UUID,
    tenant_id: TenantId,
    user_id: UserId | None,
    why: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Decline a price that was proposed; whoever proposed it withdraws it so.

    Raises: what `price_changes.decline` raises.
    """

    def decide(known: PriceChanges | None) -> Sequence[Event]:
        return rules.decline(
            known or PriceChanges(),
            proposal_id,
            tenant_id=tenant_id,
            user_id=user_id,
            why=why,
            now=now,
        )

    return record(store, PriceChanges, lease_id, decide, by=by.step(f"decline:{proposal_id}"))


def agree_price(
    store: EventStore,
    *,
    lease_id: LeaseId,
    proposal_id: UUID,
    tenant_id: TenantId,
    user_id: UserId | None,
    by: Meta,
    now: datetime,
) -> Position:
    """Agree to a price. With the last who has to, it changes: all in one append.

    What the lease costs at most at the new price is set aside, and drawn on the budgets that cover
    its bid, or nothing changes.

    Raises: LeaseUnknown, LeaseIsMoving, what `price_changes.agree` raises; FundsInsufficient,
        BudgetSpent and BudgetUsedUp to the consumer, and PriceNotCovered to an owner, who is not
        told what money the consumer has.
    """
    for attempt in range(TRIES_MAX):
        lease, step = _lease(store, lease_id), by.step(f"agree:{attempt}")
        try:
            parts = _agreeing(store, lease, proposal_id, tenant_id, user_id, by=step, now=now)
            return record_together(store, parts, whole=True)[-1]
        except _LookAgain:
            continue
        except (FundsInsufficient, BudgetSpent, BudgetUsedUp):
            if tenant_id == lease.terms.tenant_id:
                raise
            raise PriceNotCovered(lease_id=lease_id) from None
    raise LeaseIsMoving(lease_id=lease_id)


def _agreeing(
    store: EventStore,
    lease: Lease,
    proposal_id: UUID,
    tenant_id: TenantId,
    user_id: UserId | None,
    *,
    by: Meta,
    now: datetime,
) -> list[Part]:
    """Return the parts of an agreement: money first, so that no price stands without it."""
    lease_id, floors = lease.terms.lease_id, floors_of(store, lease)
    who, known = (tenant_id, user_id), load(store, PriceChanges, lease_id) or PriceChanges()
    agreed = rules.agree(known, lease, proposal_id, who=who, floors=floors, now=now)

    def say(found: PriceChanges | None) -> Sequence[Event]:
        again = rules.agree(
            found or PriceChanges(), lease, proposal_id, who=who, floors=floors, now=now
        )
        if again != agreed:  # another was the last who had to agree
            raise _LookAgain()
        return again

    said = Part(PriceChanges, lease_id, say, by.step(f"say:{proposal_id}"), holds=True)
    if not any(each.by_all for each in agreed):
        return [said]
    proposed = known.named(proposal_id).proposed
    [event] = rules.reprice(lease, proposed, now=now)
    after, until = Lease.evolve(lease, event), _held_until(store, lease)
    most, before = after.cost_at_most(ends_at=until), lease.cost_at_most(ends_at=until)
    bid = _bid_of(store, lease)
    need_budget(bid.terms, after, ends_at=until)

    def reprice(found: Lease | None) -> Sequence[Event]:
        ends = (lease.ends_at, lease.extension_asked, lease.repriced)
        if found is None or (found.ends_at, found.extension_asked, found.repriced) != ends:
            raise _LookAgain()
        return rules.reprice(found, proposed, now=now)

    hold = repricing_hold(
        account_id=lease.terms.account_id,
        hold_id=lease.terms.hold_id,
        before=event.before,
        price=event.price,
        since=event.since,
        money=most,
        by=by.step("hold"),
        now=now,
    )
    drawn: list[Part] = []
    if most > before:
        drawn = drawing(
            bid.terms,
            most - before,
            step=f"price:{proposal_id}",
            seen=look(store, Budgets, lease.terms.tenant_id),
            by=by.step("budgets"),
            now=now,
        )
    return [hold, *drawn, Part(Lease, lease_id, reprice, by.step("lease"), holds=True), said]


def _bid_of(store: EventStore, lease: Lease) -> Bid:
    bid = load(store, Bid, lease.terms.bid_id)
    assert bid is not None, "a lease comes from a bid"
    return bid


def _held_until(store: EventStore, lease: Lease) -> datetime:
    """Return until when its money is set aside: its end, or that of an extension asked for.

    One that was declined gave its money back.
    """
    account = load(store, Account, lease.terms.account_id)
    hold = None if account is None else account.holds.get(lease.terms.hold_id)
    asked = lease.extension_asked
    if hold is None or asked is None or asked <= lease.ends_at:
        return lease.ends_at
    return asked if hold.money >= lease.cost_at_most(ends_at=asked) else lease.ends_at


def floors_of(store: EventStore, lease: Lease) -> list[Rate]:
    """Return what the offers of a lease ask for now."""
    offers = dict.fromkeys(OfferId(share.offer_id) for share in lease.terms.shares)
    found = (load(store, Offer, offer_id) for offer_id in offers)
    return [offer.floor for offer in found if offer is not None]


def _lease(store: EventStore, lease_id: LeaseId) -> Lease:
    lease = load(store, Lease, lease_id)
    if lease is None:
        raise LeaseUnknown(lease_id=lease_id)
    return lease
