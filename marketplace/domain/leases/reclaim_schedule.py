"""What a reclaim costs its owner: known before it is asked for, and paid to the nano-unit.

An offer promises steps of notice and fee, and each grant takes them over. The fee is a share of
the value of the rest that the consumer loses, at the lease's price; with more notice it is less.
Notice is what the consumer can use: the time from the reclaim to the first instant lost, so a
lease that has not begun by then has had notice up to its start.

By notice, and not by how much of the lease has passed: what a reclaim does to a consumer depends
on how long there is to save the work and to find another place, and the rest whose value is paid
for shrinks by itself as the lease goes on (ADR 16).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ledger.domain.ids import TenantId
from ledger.domain.money import Money, Rate
from listings.domain.events import ReclaimStep
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import Compensation, Share
from marketplace.domain.facts.instants import ONE_MILLI, ONE_SECOND

OWED_NOTHING = frozenset(
    {
        close_reasons.WORK_DONE,
        close_reasons.WORK_FAILED,
        close_reasons.BID_WITHDRAWN,
        close_reasons.RESOLD,
        close_reasons.MONEY_SPENT,
        close_reasons.AWAITS_MONEY,
        close_reasons.MOVED,
    }
)
"""The lease ended by itself before the reclaim was due, so the reclaim took nothing.

Any other end is compensated: a consumer who leaves because of the reclaim, and a host that lets
the work go in the meantime, do not make it cheaper.
"""


@dataclass(frozen=True, slots=True)
class Reclaim:
    """An owner takes back what is left of a lease from `stop_at` on, and pays `money` for it."""

    owner_id: TenantId
    stop_at: datetime
    money: Money


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to reclaim: with this notice, for this money."""

    notice_seconds: int
    stop_at: datetime
    compensation: Money


def schedule_of(share: Share) -> tuple[ReclaimStep, ...]:
    """Return the steps that were agreed, the least notice first."""
    least = ReclaimStep(share.notice_seconds, share.reclaim_fee_ppm)
    return (least, *share.reclaim_steps)


def least_notice(shares: Iterable[Share]) -> timedelta:
    """Return the shortest notice with which all of these shares may be reclaimed together."""
    return timedelta(seconds=max(share.notice_seconds for share in shares))


def fee_ppm(share: Share, notice: timedelta) -> int:
    """Return the share of the lost value that a reclaim with this notice pays."""
    steps = [step for step in schedule_of(share) if step.notice_seconds * ONE_SECOND <= notice]
    return steps[-1].fee_ppm if steps else share.reclaim_fee_ppm


def compensation(
    shares: Iterable[Share],
    price: Rate,
    *,
    starts_at: datetime,
    ends_at: datetime,
    asked_at: datetime,
    stop_at: datetime,
) -> Money:
    """Return what a reclaim of these shares of a lease over [starts_at, ends_at) pays.

    Exactly: for each share the value of its lost GPU-time, rounded down to a nano-unit, then the
    fee's part of it, rounded down again. Down, because who pays an amount should never pay more
    than the terms say. Of a share that was resold the value is at the price its owner agreed to.
    """
    lost_from = max(stop_at, starts_at)
    lost_millis = max(timedelta(0), ends_at - lost_from) // ONE_MILLI
    notice = lost_from - asked_at
    total = 0
    for share in shares:
        worth = share.resold.price if share.resold else price
        lost = worth.charge(lost_millis * len(share.gpu_uuids))
        total += lost.share(fee_ppm(share, notice)).nanos
    return Money(total, price.currency)


def choices(
    shares: Sequence[Share],
    price: Rate,
    *,
    starts_at: datetime,
    ends_at: datetime,
    due_at: datetime,
    now: datetime,
) -> tuple[Choice, ...]:
    """Return what a reclaim asked for now costs: at the least notice, and where more is cheaper.

    due_at: when the capacity comes back anyway; a notice that lasts until then is no choice.
    """
    least = least_notice(shares) // ONE_SECOND
    notices = {least} | {
        step.notice_seconds
        for share in shares
        for step in schedule_of(share)
        if step.notice_seconds > least
    }
    found: list[Choice] = []
    for seconds in sorted(notices):
        stop_at = now + seconds * ONE_SECOND
        if stop_at >= due_at:
            break
        money = compensation(
            shares, price, starts_at=starts_at, ends_at=ends_at, asked_at=now, stop_at=stop_at
        )
        if not found or money < found[-1].compensation:
            found.append(Choice(seconds, stop_at, money))
    return tuple(found)


def due_from(reclaims: Iterable[Reclaim], reason: int) -> list[Compensation]:
    """Return who pays what when a lease closes for `reason`, in the order of `reclaims`."""
    if reason in OWED_NOTHING:
        return []
    return [Compensation(each.owner_id, each.money) for each in reclaims if each.money.nanos > 0]
