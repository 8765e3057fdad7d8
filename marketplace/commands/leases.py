"""What can be asked of a lease, and what its hosts and the clock say about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from ledger.commands.money import resize_hold, resizing_hold
from ledger.domain.ids import HostId, LeaseId, TenantId
from ledger.domain.money import Money, Rate
from ledger.domain.uptime import ALWAYS_UP, Uptime
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from ledger.eventstore.together import Part, look, record_together
from marketplace.commands.spending import drawing
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import LeaseEvent
from marketplace.domain.leases import outputs
from marketplace.domain.leases.lease import Lease, LeaseUnknown, save
from marketplace.domain.leases.reclaim import reclaim, take_at_once, take_back_rented
from marketplace.domain.leases.resale import keep_rest, list_rest, take_first
from marketplace.domain.spending.budgets import Budgets


def close_lease(store: EventStore, *, lease_id: LeaseId, by: Meta, now: datetime) -> Position:
    """End a lease because its consumer wants that.

    Returns: the store position of the decision. The agents stop the work; the lease is closed
        when they say so.
    Raises: LeaseUnknown, LeaseOver.
    """
    return decide_on(store, lease_id, lambda lease: lease.close(now=now), by)


def release_idle_lease(
    store: EventStore, *, lease_id: LeaseId, by: Meta, now: datetime
) -> Position:
    """End a lease that was idle by its consumer's own rule, as if the consumer ended it.

    What is left of it is not charged. Raises: LeaseUnknown.
    """
    return decide_on(
        store, lease_id, lambda lease: lease.abandon(now=now, reason=close_reasons.IDLE), by
    )


def reclaim_lease(
    store: EventStore,
    *,
    lease_id: LeaseId,
    owner_id: TenantId,
    notice: timedelta | None = None,
    by: Meta,
    now: datetime,
) -> Position:
    """Take an owner's capacity back from a lease, after the agreed notice.

    notice: more than the least that was agreed, which costs less; None: the least.

    Raises: LeaseUnknown, LeaseOver, NotTheOwner, NoticeTooShort, ReclaimUnderWay,
        LeaseEndsSooner.
    """
    return decide_on(
        store,
        lease_id,
        lambda lease: reclaim(lease, owner_id=owner_id, now=now, notice=notice),
        by,
    )


def take_rented_back(
    store: EventStore,
    *,
    lease_id: LeaseId,
    owner_id: TenantId,
    gone_at: datetime,
    by: Meta,
    now: datetime,
) -> Position:
    """Tell a lease that the cloud takes its rented machine back. Harmless when repeated.

    gone_at: when it goes, as far as the cloud says.

    Raises: LeaseUnknown, LeaseOver, NotTheOwner.
    """
    return decide_on(
        store,
        lease_id,
        lambda lease: take_back_rented(lease, owner_id=owner_id, gone_at=gone_at, now=now),
        by,
    )


def take_lease_at_once(
    store: EventStore, *, lease_id: LeaseId, host_id: HostId, by: Meta, now: datetime
) -> Position:
    """Take a lease's GPUs on a host back for their owner, without notice. Harmless when repeated.

    Raises: LeaseUnknown.
    """
    return decide_on(
        store, lease_id, lambda lease: take_at_once(lease, host_id=host_id, now=now), by
    )


def sell_rest(
    store: EventStore,
    *,
    lease_id: LeaseId,
    since: datetime | None,
    floor: Rate,
    lease_min_seconds: int = 900,
    by: Meta,
    now: datetime,
) -> Position:
    """Put what is left of a lease from `since` on (None: now) back on the market.

    Raises: LeaseUnknown, and the refusals of `resale.list_rest`.
    """
    return decide_on(
        store,
        lease_id,
        lambda lease: list_rest(
            lease, since=since, floor=floor, lease_min_seconds=lease_min_seconds, now=now
        ),
        by,
    )


def keep_rest_of_lease(
    store: EventStore, *, lease_id: LeaseId, by: Meta, now: datetime
) -> Position:
    """Take the rest of a lease off the market again, as long as nobody bought it.

    Raises: LeaseUnknown, NothingOnSale.
    """
    return decide_on(store, lease_id, lambda lease: keep_rest(lease, now=now), by)


def take_rest_first(
    store: EventStore, *, lease_id: LeaseId, owner_id: TenantId, by: Meta, now: datetime
) -> Position:
    """As the owner, take the rest that is for sale before the market is asked.

    Raises: LeaseUnknown, NotTheOwner, NothingOnSale, FirstRefusalOver.
    """
    return decide_on(
        store, lease_id, lambda lease: take_first(lease, owner_id=owner_id, now=now), by
    )


def request_extension(
    store: EventStore, *, lease_id: LeaseId, ends_at: datetime, by: Meta, now: datetime
) -> Position:
    """Ask to go on until `ends_at` on the same GPUs at the same price.

    The money for it is set aside first; the engine then grants or declines.

    Raises: LeaseUnknown, LeaseOver, ReclaimUnderWay, ExtensionNotLater, LeaseTooLong,
        BudgetUsedUp, and what `resize_hold` raises where the account does not cover it.
    """
    lease = load(store, Lease, lease_id)
    if lease is None:
        raise LeaseUnknown(lease_id=lease_id)
    if lease.ask_extension(ends_at=ends_at, now=now):
        most = lease.cost_at_most(ends_at=ends_at)
        hold = resizing_hold(
            account_id=lease.terms.account_id,
            hold_id=lease.terms.hold_id,
            money=most,
            by=by.step("hold"),
            now=now,
        )
        record_together(store, [hold, *_drawing_step(store, lease, most, ends_at, by, now)])
    return decide_on(
        store, lease_id, lambda lease: lease.ask_extension(ends_at=ends_at, now=now), by
    )


def _drawing_step(
    store: EventStore, lease: Lease, most: Money, ends_at: datetime, by: Meta, now: datetime
) -> list[Part]:
    """Return what draws the growth of a lease on the budgets that cover it."""
    bid = load(store, Bid, lease.terms.bid_id)
    assert bid is not None, "a lease comes from a bid"
    grown = most - lease.cost_at_most(ends_at=lease.ends_at)
    known, step = look(store, Budgets, lease.terms.tenant_id), f"until:{ends_at.isoformat()}"
    return drawing(bid.terms, grown, step=step, seen=known, by=by.step("budgets"), now=now)


def hold_what_remains(store: EventStore, *, lease_id: LeaseId, by: Meta, now: datetime) -> None:
    """Hold what a running lease costs at most until its end as it stands now, no more, no less.

    Raises: what `resize_hold` raises where the account does not cover it.
    """
    lease = load(store, Lease, lease_id)
    assert lease is not None, "it has an end to be held for"
    if not lease.over:
        resize_hold(
            store,
            account_id=lease.terms.account_id,
            hold_id=lease.terms.hold_id,
            money=lease.cost_at_most(ends_at=lease.ends_at),
            by=by.step("hold"),
            now=now,
        )


def refuse_extension(
    store: EventStore,
    *,
    lease_id: LeaseId,
    ends_at: datetime,
    reason: str,
    by: Meta,
    now: datetime,
    pausing: bool = False,
) -> Position:
    """Take note that a lease cannot go on by itself, and why.

    pausing: its work waits for money once the lease is over, and is asked to save itself.

    Raises: LeaseUnknown.
    """

    def decide(lease: Lease) -> Sequence[LeaseEvent]:
        return lease.refuse_extension(ends_at=ends_at, reason=reason, now=now, pausing=pausing)

    return decide_on(store, lease_id, decide, by)


def extend_lease(
    store: EventStore, *, lease_id: LeaseId, ends_at: datetime, by: Meta, now: datetime
) -> Position:
    """Take up an extension that the engine granted."""
    return decide_on(store, lease_id, lambda lease: lease.extend(ends_at=ends_at, now=now), by)


def files_awaited(
    store: EventStore, *, lease_id: LeaseId, host_id: HostId, by: Meta, now: datetime
) -> Position:
    """Take note that a host's agent brings what the work needs before it can start.

    Raises: LeaseUnknown.
    """
    return decide_on(
        store, lease_id, lambda lease: lease.files_awaited(host_id=host_id, now=now), by
    )


def lease_started(
    store: EventStore,
    *,
    lease_id: LeaseId,
    host_id: HostId,
    by: Meta,
    now: datetime,
    commit: str = "",
    left_out: Sequence[str] = (),
) -> Position:
    """Take note that a host's agent started its part of the work.

    commit: which one its source was resolved to; left_out: what of that did not come.
    Raises: LeaseUnknown.
    """

    def decide(lease: Lease) -> Sequence[LeaseEvent]:
        return lease.work_started(host_id=host_id, now=now, commit=commit, left_out=left_out)

    return decide_on(store, lease_id, decide, by)


def save_work(
    store: EventStore,
    *,
    lease_id: LeaseId,
    host_id: HostId | None,
    safe_at: datetime,
    by: Meta,
    now: datetime,
) -> Position:
    """Take note of a checkpoint: what the work did until `safe_at` is safe.

    host_id: whose agent reports it; None: the consumer says so.
    Raises: LeaseUnknown; where the consumer says so, LeaseOver, CheckpointOutOfLease.
    """
    return decide_on(
        store,
        lease_id,
        lambda lease: save(lease, host_id=host_id, safe_at=safe_at, now=now),
        by,
    )


def outputs_failed(
    store: EventStore,
    *,
    lease_id: LeaseId,
    host_id: HostId,
    reason: str,
    final: bool,
    volume: str = "",
    by: Meta,
    now: datetime,
) -> Position:
    """Take note of what a host could not keep of the files that the work left.

    volume: of which volume it is the next version; empty: it is of the outputs.
    Raises: LeaseUnknown.
    """
    return decide_on(
        store,
        lease_id,
        lambda lease: outputs.outputs_failed(
            lease, host_id=host_id, reason=reason, final=final, volume=volume, now=now
        ),
        by,
    )


def lease_stopped(
    store: EventStore,
    *,
    lease_id: LeaseId,
    host_id: HostId,
    exit_code: int | None,
    detail: str = "",
    by: Meta,
    now: datetime,
    over_share: bool = False,
) -> Position:
    """Take note that the work on a host is gone.

    exit_code: its own, or None where the agent stopped it. over_share: for holding more GPU memory
    than its share has.
    Raises: LeaseUnknown.
    """
    return decide_on(
        store,
        lease_id,
        lambda lease: lease.work_stopped(
            host_id=host_id,
            exit_code=exit_code,
            failed=False,
            detail=detail,
            now=now,
            over_share=over_share,
        ),
        by,
    )


def lease_failed(
    store: EventStore,
    *,
    lease_id: LeaseId,
    host_id: HostId,
    detail: str,
    by: Meta,
    now: datetime,
    occupied: bool = False,
) -> Position:
    """Take note that a host could not start its part of the work.

    occupied: because processes of others fill its GPU.

    Raises: LeaseUnknown.
    """
    return decide_on(
        store,
        lease_id,
        lambda lease: lease.work_stopped(
            host_id=host_id,
            exit_code=None,
            failed=True,
            detail=detail,
            now=now,
            occupied=occupied,
        ),
        by,
    )


def advance_lease(
    store: EventStore,
    *,
    lease_id: LeaseId,
    start_grace: timedelta,
    by: Meta,
    now: datetime,
    uptime: Uptime = ALWAYS_UP,
) -> Position:
    """Bring a lease to where the clock says it belongs: started, ended, closed.

    Raises: LeaseUnknown.
    """
    return decide_on(
        store,
        lease_id,
        lambda lease: lease.tick(now=now, start_grace=start_grace, uptime=uptime),
        by,
    )


def decide_on(
    store: EventStore,
    lease_id: LeaseId,
    rule: Callable[[Lease], Sequence[LeaseEvent]],
    by: Meta,
) -> Position:
    """Record what a rule decides of a lease.

    Raises: LeaseUnknown, and what the rule raises.
    """

    def decide(lease: Lease | None) -> Sequence[LeaseEvent]:
        if lease is None:
            raise LeaseUnknown(lease_id=lease_id)
        return rule(lease)

    return record(store, Lease, lease_id, decide, by=by)
