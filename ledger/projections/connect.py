"""Rows of paying owners over Stripe, kept with those of payees and payouts."""

from __future__ import annotations

from typing import assert_never

from ledger.domain.connect_events import (
    BankPayoutSeen,
    ConnectEvent,
    PayoutChannelChosen,
    StripeAccountAsked,
    StripeAccountMade,
    StripeAccountSeen,
    TransferReversalAsked,
    TransferReversalFailed,
    TransferReversed,
    TransferWaited,
)
from ledger.models import BankPayoutRow, PayeeRow, PayoutRow, TransferReversalRow
from ledger.projections.earnings import payee_of
from ledger.rows import Rows

TABLES = (TransferReversalRow, BankPayoutRow)
EVENTS = (
    StripeAccountAsked,
    StripeAccountMade,
    StripeAccountSeen,
    PayoutChannelChosen,
    TransferWaited,
    TransferReversalAsked,
    TransferReversalFailed,
    TransferReversed,
    BankPayoutSeen,
)


def project_connect(event: ConnectEvent, rows: Rows) -> None:
    """Keep accounts at Stripe, transfers and what came back of them equal to their streams."""
    match event:
        case StripeAccountAsked():
            payee_of(rows, event.account_id, event.tenant_id, event.currency)
            rows.change(
                PayeeRow, event.account_id, stripe_state="asked", stripe_country=event.country
            )
        case StripeAccountMade():
            rows.change(
                PayeeRow,
                event.account_id,
                stripe_account=event.connected,
                stripe_state="details-missing",
            )
        case StripeAccountSeen():
            rows.change(
                PayeeRow,
                event.account_id,
                stripe_state=event.state,
                stripe_missing=list(event.missing),
                stripe_words=event.words,
            )
        case PayoutChannelChosen():
            rows.change(
                PayeeRow,
                event.account_id,
                channel=event.channel,
                channel_from=event.usable_from,
            )
        case TransferWaited():
            rows.change(
                PayoutRow,
                event.payout_id,
                waits=event.tries,
                waits_because=event.reason,
                again_at=event.again_at,
                changed_at=event.at,
            )
        case TransferReversalAsked() | TransferReversalFailed() | TransferReversed():
            _project_reversal(event, rows)
        case BankPayoutSeen():
            _project_bank_payout(event, rows)
        case _:
            assert_never(event)


def _project_reversal(
    event: TransferReversalAsked | TransferReversalFailed | TransferReversed, rows: Rows
) -> None:
    payout = rows.get(PayoutRow, event.payout_id)
    match event:
        case TransferReversalAsked():
            rows.make(
                TransferReversalRow,
                key=f"{event.payout_id}:{event.number}",
                payout_id=event.payout_id,
                account_id=event.account_id,
                tenant_id=payout.tenant_id,
                number=event.number,
                currency=event.money.currency,
                nanos=event.money.nanos,
                state="asked",
                reason=event.reason,
                changed_at=event.at,
            )
        case TransferReversalFailed():
            key = f"{event.payout_id}:{event.number}"
            rows.change(
                TransferReversalRow,
                key,
                state="failed",
                reason=event.reason,
                changed_at=event.at,
            )
        case TransferReversed():
            _come_back(event, payout, rows)


def _come_back(event: TransferReversed, payout: PayoutRow, rows: Rows) -> None:
    key = f"{event.payout_id}:{event.number or event.reference}"
    if rows.find(TransferReversalRow, key) is None:
        rows.make(
            TransferReversalRow,
            key=key,
            payout_id=event.payout_id,
            account_id=event.account_id,
            tenant_id=payout.tenant_id,
            number=event.number,
            currency=event.money.currency,
            nanos=event.money.nanos,
            state="back",
            reason=event.reason,
            changed_at=event.at,
        )
    rows.change(
        TransferReversalRow,
        key,
        state="back",
        nanos=event.money.nanos,
        reference=event.reference,
        changed_at=event.at,
    )
    gone = payout.reversed_nanos + event.money.nanos
    changed: dict[str, object] = {"reversed_nanos": gone, "changed_at": event.at}
    if gone >= payout.nanos:
        changed |= {"state": "returned", "reason": event.reason}
    rows.change(PayoutRow, event.payout_id, **changed)


def _project_bank_payout(event: BankPayoutSeen, rows: Rows) -> None:
    row = rows.find(BankPayoutRow, event.reference)
    if row is None:
        rows.make(
            BankPayoutRow,
            reference=event.reference,
            account_id=event.account_id,
            tenant_id=rows.get(PayeeRow, event.account_id).tenant_id,
            currency=event.money.currency,
            nanos=event.money.nanos,
            state=event.state,
            arrives_on=event.arrives_on,
            words=event.words,
            at=event.at,
        )
        return
    rows.change(
        BankPayoutRow,
        event.reference,
        state=event.state,
        arrives_on=event.arrives_on,
        words=event.words,
        at=event.at,
    )
