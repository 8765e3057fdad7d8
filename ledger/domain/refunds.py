"""Money back: what was paid in and not used, by two people; and what a payer's bank takes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from ledger.domain.holds import TEXT_LENGTH_MAX, need_text
from ledger.domain.ids import AccountId, RefundId, UserId
from ledger.domain.minor_units import minor_of, minor_rounded_down, money_of
from ledger.domain.money import Money
from ledger.domain.refusal import Forbidden, Invalid, Refusal, Unknown
from ledger.domain.wallet import Refund, Wallet
from ledger.domain.wallet_events import (
    PaymentDisputeClosed,
    PaymentDisputed,
    RefundApproved,
    RefundAsked,
    RefundDeclined,
    RefundPart,
    RefundPartFailed,
    RefundPartPaid,
)


class RefundUnknown(Unknown):
    """This wallet has no such refund."""


class RefundAskedOtherwise(Refusal):
    """This id already names a refund on other terms."""


class RefundUnexplained(Invalid):
    """A refund needs a reason, which whoever approves it reads."""


class NothingToRefundTo(Refusal):
    """So much of what was paid in by card has not gone back yet; the rest came in another way.

    Ask for at most `refundable`. What came in by a transfer goes back by one.
    """


class RefundDecided(Refusal):
    """This refund is decided already."""


class OwnRefund(Forbidden):
    """Nobody approves their own refund. Somebody else has to."""


class PaymentNotKnown(Unknown):
    """No payment of this id came into this wallet."""


def refundable(wallet: Wallet, currency: str) -> Money:
    """Return how much of what came in by the payment service can still go back there."""
    left = sum(each.money.nanos - each.gone.nanos for each in wallet.received.values())
    asked = sum(each.asked.money.nanos for each in wallet.refunds.values() if each.state == "asked")
    return money_of(minor_rounded_down(Money(left - asked, currency)), currency)


def ask(
    wallet: Wallet | None,
    *,
    account_id: AccountId,
    refund_id: RefundId,
    money: Money,
    reason: str,
    asked_by: UserId,
    now: datetime,
) -> list[RefundAsked]:
    """Decide whether a refund may be asked for.

    Raises: RefundAskedOtherwise, RefundUnexplained, TextUnreadable, AmountNotPayable,
        NothingToRefundTo.
    """
    wallet = wallet or Wallet()
    event = RefundAsked(
        account_id=account_id,
        refund_id=refund_id,
        money=money,
        reason=reason.strip(),
        asked_by=asked_by,
        at=now,
    )
    before = wallet.refunds.get(refund_id)
    if before is not None:
        if replace(before.asked, at=now) != event:
            raise RefundAskedOtherwise(refund_id=refund_id)
        return []
    if not event.reason:
        raise RefundUnexplained()
    need_text(event.reason, length_max=TEXT_LENGTH_MAX)
    minor_of(money)
    most = refundable(wallet, money.currency)
    if money.nanos > most.nanos:
        raise NothingToRefundTo(asked=money, refundable=most)
    return [event]


def approve(
    wallet: Wallet | None,
    *,
    account_id: AccountId,
    refund_id: RefundId,
    approved_by: UserId,
    now: datetime,
) -> list[RefundApproved]:
    """Decide that a refund goes out, and to which payments: the newest first.

    Raises: RefundUnknown, OwnRefund, RefundDecided, NothingToRefundTo.
    """
    refund = refund_of(wallet, refund_id)
    assert wallet is not None
    if refund.asked.asked_by == approved_by:
        raise OwnRefund()
    if refund.state != "asked":
        if refund.state == "declined":
            raise RefundDecided(state=refund.state)
        return []
    parts: list[RefundPart] = []
    currency, left = refund.asked.money.currency, refund.asked.money.nanos
    for intent, came in reversed(list(wallet.received.items())):
        some = min(left, came.money.nanos - came.gone.nanos)
        if some > 0:
            parts.append(RefundPart(len(parts), intent, Money(some, currency)))
            left -= some
    if left:
        most = refund.asked.money - Money(left, currency)
        raise NothingToRefundTo(asked=refund.asked.money, refundable=most)
    return [
        RefundApproved(
            account_id=account_id,
            refund_id=refund_id,
            approved_by=approved_by,
            parts=tuple(parts),
            at=now,
        )
    ]


def decline(
    wallet: Wallet | None,
    *,
    account_id: AccountId,
    refund_id: RefundId,
    declined_by: UserId,
    now: datetime,
) -> list[RefundDeclined]:
    """Decide that a refund does not go out. Whoever asked may take it back so, too.

    Raises: RefundUnknown, RefundDecided.
    """
    refund = refund_of(wallet, refund_id)
    if refund.state == "declined":
        return []
    if refund.state != "asked":
        raise RefundDecided(state=refund.state)
    return [
        RefundDeclined(account_id=account_id, refund_id=refund_id, declined_by=declined_by, at=now)
    ]


def part_paid(
    wallet: Wallet | None,
    *,
    account_id: AccountId,
    refund_id: RefundId,
    number: int,
    reference: str,
    now: datetime,
) -> list[RefundPartPaid]:
    """Note that a part of a refund went out, once."""
    refund = refund_of(wallet, refund_id)
    if refund.parts[number][1] != "approved":
        return []
    return [
        RefundPartPaid(
            account_id=account_id, refund_id=refund_id, number=number, reference=reference, at=now
        )
    ]


def part_failed(
    wallet: Wallet | None,
    *,
    account_id: AccountId,
    refund_id: RefundId,
    number: int,
    reason: str,
    now: datetime,
) -> list[RefundPartFailed]:
    """Note that a part of a refund did not go out, or came back after it had, once."""
    refund = refund_of(wallet, refund_id)
    if refund.parts[number][1] == "failed":
        return []
    return [
        RefundPartFailed(
            account_id=account_id,
            refund_id=refund_id,
            number=number,
            reason=reason[:TEXT_LENGTH_MAX],
            at=now,
        )
    ]


def dispute(
    wallet: Wallet | None,
    *,
    account_id: AccountId,
    name: str,
    intent: str,
    money: Money,
    reason: str,
    now: datetime,
) -> list[PaymentDisputed]:
    """Note that a payer's bank took a payment back, once.

    Raises: PaymentNotKnown.
    """
    if wallet is None or intent not in wallet.received:
        raise PaymentNotKnown(intent=intent[:60])
    if name in wallet.disputes:
        return []
    return [
        PaymentDisputed(
            account_id=account_id,
            dispute=name,
            intent=intent,
            money=money,
            reason=reason[:TEXT_LENGTH_MAX],
            at=now,
        )
    ]


def close_dispute(
    wallet: Wallet | None, *, account_id: AccountId, name: str, won: bool, now: datetime
) -> list[PaymentDisputeClosed]:
    """Note what the bank decided, once."""
    if wallet is None or name not in wallet.disputes:
        raise PaymentNotKnown(dispute=name[:60])
    if wallet.disputes[name].state != "open":
        return []
    return [PaymentDisputeClosed(account_id=account_id, dispute=name, won=won, at=now)]


def refund_of(wallet: Wallet | None, refund_id: RefundId) -> Refund:
    """Return one of a wallet's refunds.

    Raises: RefundUnknown.
    """
    if wallet is None or refund_id not in wallet.refunds:
        raise RefundUnknown(refund_id=refund_id)
    return wallet.refunds[refund_id]


def still_to_go(refund: Refund, *, without: int) -> Money:
    """Return what of a refund is still to go out once one of its parts is dealt with."""
    waiting = (
        part.money.nanos
        for part, state in refund.parts.values()
        if state == "approved" and part.number != without
    )
    return Money(sum(waiting), refund.asked.money.currency)
