"""Wallets as one actor may see them: top-ups, saved cards, refunds, disputes."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet

from ledger.access import Actor, visible
from ledger.domain.ids import AccountId, PaymentId, RefundId
from ledger.domain.refunds import RefundUnknown
from ledger.domain.top_ups import PaymentUnknown
from ledger.models import (
    AccountRow,
    WalletDisputeRow,
    WalletMethodRow,
    WalletPaymentRow,
    WalletRefundRow,
    WalletRow,
)


def wallets(actor: Actor) -> QuerySet[AccountRow]:
    """Return the prepaid accounts that the actor may see, by title."""
    return visible(actor, AccountRow).filter(kind="prepaid").order_by("title", "account_id")


def wallet(actor: Actor, account_id: AccountId) -> WalletRow | None:
    """Return a wallet as the payment service knows it; None where it does not."""
    return visible(actor, WalletRow).filter(pk=account_id).first()


def top_ups(actor: Actor, account_id: AccountId) -> QuerySet[WalletPaymentRow]:
    """Return the top-ups of a wallet."""
    return visible(actor, WalletPaymentRow).filter(account_id=account_id)


def top_up(actor: Actor, payment_id: PaymentId) -> WalletPaymentRow:
    """Return one top-up.

    Raises: PaymentUnknown, also for one that the actor may not see.
    """
    found = visible(actor, WalletPaymentRow).filter(pk=payment_id).first()
    if found is None:
        raise PaymentUnknown(payment_id=payment_id)
    return found


def methods(actor: Actor, account_id: AccountId) -> QuerySet[WalletMethodRow]:
    """Return the saved cards of a wallet."""
    rows = visible(actor, WalletMethodRow).filter(account_id=account_id, state="saved")
    return rows.order_by("at", "method")


def refunds(actor: Actor, account_id: AccountId | None = None) -> QuerySet[WalletRefundRow]:
    """Return refunds: of one wallet, or of all that the actor may see."""
    rows = visible(actor, WalletRefundRow)
    return rows if account_id is None else rows.filter(account_id=account_id)


def refund(actor: Actor, refund_id: UUID) -> WalletRefundRow:
    """Return one refund.

    Raises: RefundUnknown, also for one that the actor may not see.
    """
    found = visible(actor, WalletRefundRow).filter(pk=refund_id).first()
    if found is None:
        raise RefundUnknown(refund_id=RefundId(refund_id))
    return found


def disputes(actor: Actor, account_id: AccountId) -> QuerySet[WalletDisputeRow]:
    """Return the chargebacks of a wallet."""
    return visible(actor, WalletDisputeRow).filter(account_id=account_id)
