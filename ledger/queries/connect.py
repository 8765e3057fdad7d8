"""What came back of transfers to owners, and what Stripe paid to their banks, as one may see it."""

from __future__ import annotations

from django.db.models import QuerySet

from ledger.models import BankPayoutRow, PayeeRow, PayoutRow, TransferReversalRow


def bank_payouts(payee: PayeeRow) -> QuerySet[BankPayoutRow]:
    """Return what Stripe paid to the bank of an owner that the actor may see, newest first."""
    rows = BankPayoutRow.objects.filter(account_id=payee.account_id)
    return rows.order_by("-at", "reference")


def reversals(payout: PayoutRow) -> QuerySet[TransferReversalRow]:
    """Return what of a payout that the actor may see came back, or is to."""
    return TransferReversalRow.objects.filter(payout_id=payout.payout_id).order_by("key")


def reversals_asked(payout: PayoutRow) -> int:
    """Return how often something of a payout was asked back."""
    return TransferReversalRow.objects.filter(payout_id=payout.payout_id, number__gt=0).count()


def channel_of(payout: PayoutRow) -> str:
    """Return how a payout that the actor may see went out, or will."""
    if payout.channel:
        return payout.channel
    found = PayeeRow.objects.filter(pk=payout.account_id).values_list("channel", flat=True).first()
    return found or "bank-file"
