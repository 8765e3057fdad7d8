"""Payouts over Stripe: a transfer to the owner's account there, and what comes back of it.

An approved payout is sent at once, and is paid when the transfer is made. Where our balance there
is too low it waits, for a week at most; then it is earnings again, as a returned payout is.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from uuid import UUID, uuid5

from ledger.domain import payees
from ledger.domain.accounts import AmountNotPositive
from ledger.domain.connect_events import (
    TransferReversalAsked,
    TransferReversalFailed,
    TransferReversed,
    TransferWaited,
)
from ledger.domain.connecting import StripeAccountNotReady, details_named, need_made
from ledger.domain.holds import TEXT_LENGTH_MAX
from ledger.domain.ids import AccountId, UserId
from ledger.domain.journal import transfer
from ledger.domain.money import Money
from ledger.domain.payees import Payee, Payout, PayoutsPaused, PayoutStateOtherwise, entry_of
from ledger.domain.payout_events import PayoutPaid, PayoutReturned, PayoutSent
from ledger.domain.refusal import Invalid, Refusal

PAUSE_MIN, PAUSE_MAX = timedelta(hours=1), timedelta(hours=12)
WAITS_FOR = timedelta(days=7)
"""How long a transfer waits for our balance at Stripe."""


class NotPaidOverStripe(Refusal):
    """This payout did not go out over Stripe, or has not arrived there."""


class MoreThanArrived(Invalid):
    """No more can come back than arrived and did not come back yet; `left` says how much."""


class NotWholeUnits(Invalid):
    """Stripe moves whole cents only, or whole units where a currency has none."""


def is_sendable(payee: Payee, payout_id: UUID, now: datetime) -> bool:
    """Tell if an approved payout can go to Stripe now."""
    found = payee.payouts.get(payout_id)
    return (
        found is not None
        and found.state == "approved"
        and payee.channel == "stripe"
        and payee.chosen is not None
        and payee.chosen.usable_from <= now
        and payee.connected is not None
        and payee.connected.state == "ready"
    )


def send(payee: Payee, payout_id: UUID, *, now: datetime) -> list[PayoutSent]:
    """Decide that an approved payout goes to the owner's account at Stripe.

    Raises: PayoutUnknown, PayoutStateOtherwise, StripeAccountMissing, StripeAccountNotReady,
        PayoutsPaused.
    """
    payout = payee.payout(payout_id)
    if payout.channel == "stripe":
        return []
    payee.needed(payout_id, "approved")
    known, chosen = need_made(payee), payee.chosen
    if chosen is None or chosen.channel != "stripe" or known.state != "ready":
        raise StripeAccountNotReady(state=known.state, words=known.words)
    if now < chosen.usable_from:
        raise PayoutsPaused(payout_id=payout_id, usable_from=chosen.usable_from)
    account_id = payout.requested.account_id
    return [
        PayoutSent(
            account_id=account_id,
            payout_id=payout_id,
            channel="stripe",
            batch_id=uuid5(payout_id, "transfer"),
            details_id=details_named(account_id, known.connected),
            by_user=payout.approved_by[-1],
            at=now,
        )
    ]


def wait(payee: Payee, payout_id: UUID, *, reason: str, now: datetime) -> list[TransferWaited]:
    """Decide that a transfer is asked for again later. Raises: PayoutUnknown and the like."""
    payout = _over_stripe(payee, payout_id, "sent")
    tries = 1 if payout.waited is None else payout.waited.tries + 1
    doubled: timedelta = PAUSE_MIN * (1 << min(tries - 1, 10))
    return [
        TransferWaited(
            account_id=payout.requested.account_id,
            payout_id=payout_id,
            tries=tries,
            reason=reason[:TEXT_LENGTH_MAX],
            again_at=now + min(PAUSE_MAX, doubled),
            at=now,
        )
    ]


def is_over(payout: Payout, now: datetime) -> bool:
    """Tell if a transfer has waited for our balance as long as it may."""
    return payout.sent is not None and now >= payout.sent.at + WAITS_FOR


def arrive(
    payee: Payee, payout_id: UUID, *, reference: str, paid_on: date, cash: AccountId, now: datetime
) -> list[PayoutPaid]:
    """Decide that a transfer was made, once. One that came back since stays so.

    Raises: PayoutUnknown, PayoutStateOtherwise, PayoutPaidOtherwise.
    """
    before = payee.payout(payout_id).paid
    if before is not None and before.reference == reference:
        return []
    return payees.pay(
        payee,
        payout_id,
        reference=reference,
        paid_on=paid_on,
        cash=cash,
        by_user=_sender(_over_stripe(payee, payout_id, "sent", "paid")),
        now=now,
        channel="stripe",
    )


def refuse(
    payee: Payee, payout_id: UUID, *, reason: str, cash: AccountId, now: datetime
) -> list[PayoutReturned]:
    """Decide that Stripe makes no transfer: the payout is earnings again.

    Raises: PayoutUnknown, PayoutStateOtherwise: it was made, for example.
    """
    payout = _over_stripe(payee, payout_id, "sent", "returned")
    return payees.give_back(
        payee,
        payout_id,
        reason=reason[:TEXT_LENGTH_MAX] or "Stripe did not say why",
        cash=cash,
        by_user=_sender(payout),
        now=now,
        channel="stripe",
    )


def ask_back(
    payee: Payee,
    payout_id: UUID,
    *,
    number: int,
    money: Money,
    unit: int,
    reason: str,
    by_user: UserId,
    now: datetime,
) -> list[TransferReversalAsked]:
    """Decide that a part of a transfer is to come back.

    number: which request of the payout it is; one more than there were. unit: the nano-units of the
    currency's smallest unit.

    Raises: PayoutUnknown, NotPaidOverStripe, PayoutStateOtherwise, MoreThanArrived, NotWholeUnits,
        AmountNotPositive, ReasonMissing, TextUnreadable.
    """
    payout = payee.payout(payout_id)
    if payout.channel != "stripe" or payout.paid is None:
        raise NotPaidOverStripe(payout_id=payout_id)
    if number <= len(payout.asked_back):
        before = payout.asked_back.get(number)
        if before is not None and before.money == money:
            return []
        raise PayoutStateOtherwise(payout_id=payout_id, state=payout.state, needed="paid")
    payee.needed(payout_id, "paid")
    if money.nanos <= 0:
        raise AmountNotPositive()
    if money.nanos % unit:
        raise NotWholeUnits(amount=money)
    rest = left(payout)
    if money.currency != rest.currency or money.nanos > rest.nanos:
        raise MoreThanArrived(left=rest)
    return [
        TransferReversalAsked(
            account_id=payout.requested.account_id,
            payout_id=payout_id,
            number=number,
            money=money,
            reason=payees.need_reason(reason),
            by_user=by_user,
            at=now,
        )
    ]


def left(payout: Payout) -> Money:
    """Return what arrived, did not come back, and is not asked back either."""
    gone = sum(payout.came_back.values())
    asked = sum(each.money.nanos for each in payout.asked_back.values() if each is not None)
    whole = payout.requested.money
    return Money(whole.nanos - gone - asked, whole.currency)


def not_back(
    payee: Payee, payout_id: UUID, *, number: int, reason: str, now: datetime
) -> list[TransferReversalFailed]:
    """Decide that Stripe gives nothing back for a request. Raises: PayoutUnknown."""
    payout = payee.payout(payout_id)
    if payout.asked_back.get(number) is None:
        return []
    return [
        TransferReversalFailed(
            account_id=payout.requested.account_id,
            payout_id=payout_id,
            number=number,
            reason=reason[:TEXT_LENGTH_MAX],
            at=now,
        )
    ]


def come_back(
    payee: Payee,
    payout_id: UUID,
    *,
    number: int,
    reference: str,
    money: Money,
    cash: AccountId,
    now: datetime,
) -> list[TransferReversed]:
    """Decide what a reversal does: the amount is earnings again, once for its id at Stripe.

    Raises: PayoutUnknown, NotPaidOverStripe, MoreThanArrived.
    """
    payout = payee.payout(payout_id)
    if payout.paid is None or payout.channel != "stripe":
        raise NotPaidOverStripe(payout_id=payout_id)
    if reference in payout.came_back:
        return []
    rest = payout.requested.money.nanos - sum(payout.came_back.values())
    if not 0 < money.nanos <= rest or money.currency != payout.requested.money.currency:
        raise MoreThanArrived(left=Money(rest, payout.requested.money.currency))
    asked = payout.asked_back.get(number)
    account_id = payout.requested.account_id
    return [
        TransferReversed(
            account_id=account_id,
            entry_id=entry_of(payout_id, f"reversed:{reference}"),
            payout_id=payout_id,
            number=number,
            corrects=payout.paid.entry_id,
            money=money,
            reference=reference,
            reason="reversed at Stripe" if asked is None else asked.reason,
            postings=transfer(source=cash, target=account_id, money=money),
            at=now,
        )
    ]


def _over_stripe(payee: Payee, payout_id: UUID, *states: payees.PayoutState) -> Payout:
    payout = payee.needed(payout_id, *states)
    if payout.channel != "stripe":
        raise NotPaidOverStripe(payout_id=payout_id)
    return payout


def _sender(payout: Payout) -> UserId:
    """Return who let it go out: the last one to approve it."""
    assert payout.sent is not None
    return payout.sent.by_user
