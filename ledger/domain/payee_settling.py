"""Whether a settlement pays an owner anything, and how often an owner is paid."""

from __future__ import annotations

from datetime import datetime

from ledger.domain.ids import AccountId, UserId
from ledger.domain.journal import transfer
from ledger.domain.money import NANOS_MAX, AmountTooLarge, Money
from ledger.domain.payees import Payee, PayeeOf, entry_of, payout_named
from ledger.domain.payout_events import PayoutRequested, PayoutScheduleSet, Schedule
from ledger.domain.refusal import Refusal
from ledger.domain.settling import Due, Earned, PayoutTerms, payable


class NothingPayable(Refusal):
    """Nothing of these earnings may be paid now.

    What was earned lately is held back for corrections, and what disputes set aside is, too.
    """


def settle(
    payee: Payee,
    of: PayeeOf,
    due: Due,
    earned: Earned,
    *,
    terms: PayoutTerms,
    transit: AccountId,
    unit: int,
    by_user: UserId | None,
    now: datetime,
) -> list[PayoutRequested]:
    """Decide what is paid out of what was earned up to a cut-off.

    by_user: None: by the schedule, once for each period, and nothing below the minimum. A person
    may ask at any time, for whatever is payable. transit: the account of what is on its way. unit:
    the nano-units of the currency's smallest unit.

    Raises: NothingPayable, only where a person asks; AmountTooLarge.
    """
    is_scheduled = by_user is None
    if is_scheduled and due.period in payee.revisions:
        return []
    found = payable(earned, paid_out=payee.paid_out, held_share_ppm=terms.held_share_ppm, unit=unit)
    own = payee.schedule.minimum_nanos if payee.schedule else None
    least = max(unit, terms.minimum_nanos if own is None else own) if is_scheduled else unit
    if found.nanos < least:
        if is_scheduled:
            return []
        raise NothingPayable(
            owed=Money(found.owed, of.currency), held_back=Money(found.held_back, of.currency)
        )
    if found.nanos > NANOS_MAX:
        raise AmountTooLarge(most=Money(NANOS_MAX, of.currency))
    revision = payee.revisions.get(due.period, -1) + 1
    money = Money(found.nanos, of.currency)
    payout_id = payout_named(of.account_id, due.period, revision)
    return [
        PayoutRequested(
            account_id=of.account_id,
            tenant_id=of.tenant_id,
            entry_id=entry_of(payout_id, "requested"),
            payout_id=payout_id,
            period=due.period,
            revision=revision,
            cut_off=due.cut_off,
            money=money,
            owed_nanos=found.owed,
            later_nanos=found.later,
            held_back_nanos=found.held_back,
            set_aside_nanos=found.set_aside,
            approvals_needed=1 if found.nanos <= terms.alone_nanos_max else 2,
            requested_by=by_user,
            postings=transfer(source=of.account_id, target=transit, money=money),
            at=now,
        )
    ]


def set_schedule(
    payee: Payee,
    of: PayeeOf,
    *,
    schedule: Schedule,
    minimum_nanos: int | None,
    by_user: UserId,
    now: datetime,
) -> list[PayoutScheduleSet]:
    """Decide how often an owner is paid. Raises: AmountTooLarge."""
    if minimum_nanos is not None and not 0 <= minimum_nanos <= NANOS_MAX:
        raise AmountTooLarge(most=Money(NANOS_MAX, of.currency))
    known = payee.schedule
    if known is not None and (known.schedule, known.minimum_nanos) == (schedule, minimum_nanos):
        return []
    return [
        PayoutScheduleSet(
            account_id=of.account_id,
            tenant_id=of.tenant_id,
            currency=of.currency,
            schedule=schedule,
            minimum_nanos=minimum_nanos,
            by_user=by_user,
            at=now,
        )
    ]
