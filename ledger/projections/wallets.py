"""Rows of wallets at the payment service. They are kept with the rows of money."""

from __future__ import annotations

from typing import get_args
from uuid import UUID

from ledger.domain.ids import AccountId
from ledger.domain.return_events import FundsDisputed, ReturnEntry
from ledger.domain.wallet_events import (
    AutomaticTopUpEnded,
    AutomaticTopUpSet,
    MethodRemovalAsked,
    MethodRemoved,
    MethodSaved,
    PayerKnown,
    PaymentDisputeClosed,
    PaymentDisputed,
    PaymentFailed,
    PaymentOpened,
    PaymentRequested,
    PaymentSucceeded,
    RefundApproved,
    RefundAsked,
    RefundDeclined,
    RefundPartFailed,
    RefundPartPaid,
    WalletEvent,
)
from ledger.following import names_of
from ledger.models import (
    AccountRow,
    WalletDisputeRow,
    WalletMethodRow,
    WalletPaymentRow,
    WalletRefundPartRow,
    WalletRefundRow,
    WalletRow,
)
from ledger.rows import Rows

ON = names_of(*get_args(WalletEvent), *get_args(ReturnEntry))
TABLES = (
    WalletRow,
    WalletPaymentRow,
    WalletMethodRow,
    WalletRefundRow,
    WalletRefundPartRow,
    WalletDisputeRow,
)


def project_wallet(event: WalletEvent, rows: Rows) -> None:
    """Keep the rows of wallets equal to their streams."""
    match event:
        case PayerKnown():
            _wallet(rows, event.account_id)
            rows.change(WalletRow, event.account_id, payer=event.payer)
        case AutomaticTopUpSet():
            _wallet(rows, event.account_id)
            rows.change(
                WalletRow,
                event.account_id,
                below_nanos=event.below_nanos,
                amount_nanos=event.amount_nanos,
                most_per_day_nanos=event.most_per_day_nanos,
                method=event.method,
                ended_because="",
            )
        case AutomaticTopUpEnded():
            none: dict[str, object] = dict.fromkeys(
                ("below_nanos", "amount_nanos", "most_per_day_nanos")
            )
            rows.change(WalletRow, event.account_id, method="", ended_because=event.reason, **none)
        case PaymentRequested() | PaymentOpened() | PaymentSucceeded() | PaymentFailed():
            _project_payment(event, rows)
        case MethodSaved() | MethodRemovalAsked() | MethodRemoved():
            _project_method(event, rows)
        case PaymentDisputed() | PaymentDisputeClosed():
            _project_dispute(event, rows)
        case _:
            _project_refund(event, rows)


def _wallet(rows: Rows, account_id: AccountId) -> None:
    if rows.find(WalletRow, account_id) is None:
        tenant_id = _tenant(rows, account_id)
        rows.make(
            WalletRow,
            account_id=account_id,
            tenant_id=tenant_id,
            payer="",
            method="",
            ended_because="",
        )


def _tenant(rows: Rows, account_id: AccountId) -> UUID | None:
    return rows.get(AccountRow, account_id).tenant_id


def _project_payment(
    event: PaymentRequested | PaymentOpened | PaymentSucceeded | PaymentFailed, rows: Rows
) -> None:
    match event:
        case PaymentRequested():
            _wallet(rows, event.account_id)
            rows.make(
                WalletPaymentRow,
                payment_id=event.payment_id,
                account_id=event.account_id,
                tenant_id=_tenant(rows, event.account_id),
                state="asked",
                way=event.way,
                method=event.method,
                nanos=event.money.nanos,
                currency=event.money.currency,
                reference="",
                url="",
                intent="",
                reason="",
                asked_by=event.asked_by,
                asked_at=event.at,
            )
        case PaymentOpened():
            rows.change(
                WalletPaymentRow,
                event.payment_id,
                state="open",
                reference=event.reference,
                url=event.url,
            )
        case PaymentSucceeded():
            rows.change(
                WalletPaymentRow,
                event.payment_id,
                state="succeeded",
                intent=event.intent,
                reason="",
                url="",
                ended_at=event.at,
            )
        case PaymentFailed():
            rows.change(
                WalletPaymentRow,
                event.payment_id,
                state="failed",
                reason=event.reason,
                url="",
                ended_at=event.at,
            )


def _project_method(event: MethodSaved | MethodRemovalAsked | MethodRemoved, rows: Rows) -> None:
    match event:
        case MethodSaved():
            if rows.find(WalletMethodRow, event.method) is not None:
                rows.change(WalletMethodRow, event.method, label=event.label, state="saved")
                return
            rows.make(
                WalletMethodRow,
                method=event.method,
                account_id=event.account_id,
                tenant_id=_tenant(rows, event.account_id),
                label=event.label,
                state="saved",
                at=event.at,
            )
        case MethodRemovalAsked():
            rows.change(WalletMethodRow, event.method, state="leaving")
        case MethodRemoved():
            rows.remove(WalletMethodRow, event.method)


def _project_refund(
    event: RefundAsked | RefundApproved | RefundDeclined | RefundPartPaid | RefundPartFailed,
    rows: Rows,
) -> None:
    match event:
        case RefundAsked():
            rows.make(
                WalletRefundRow,
                refund_id=event.refund_id,
                account_id=event.account_id,
                tenant_id=_tenant(rows, event.account_id),
                nanos=event.money.nanos,
                currency=event.money.currency,
                reason=event.reason,
                state="asked",
                asked_by=event.asked_by,
                asked_at=event.at,
            )
        case RefundApproved():
            rows.change(
                WalletRefundRow,
                event.refund_id,
                state="approved",
                decided_by=event.approved_by,
                decided_at=event.at,
            )
            for part in event.parts:
                rows.make(
                    WalletRefundPartRow,
                    part_id=f"{event.refund_id}:{part.number}",
                    refund_id=event.refund_id,
                    account_id=event.account_id,
                    tenant_id=_tenant(rows, event.account_id),
                    number=part.number,
                    intent=part.intent,
                    nanos=part.money.nanos,
                    currency=part.money.currency,
                    state="approved",
                    reference="",
                    reason="",
                )
        case RefundDeclined():
            rows.change(
                WalletRefundRow,
                event.refund_id,
                state="declined",
                decided_by=event.declined_by,
                decided_at=event.at,
            )
        case RefundPartPaid():
            part_id = f"{event.refund_id}:{event.number}"
            rows.change(WalletRefundPartRow, part_id, state="paid", reference=event.reference)
            _settle(rows, event.refund_id)
        case RefundPartFailed():
            part_id = f"{event.refund_id}:{event.number}"
            rows.change(WalletRefundPartRow, part_id, state="failed", reason=event.reason)
            _settle(rows, event.refund_id)


def _settle(rows: Rows, refund_id: UUID) -> None:
    """Say that a refund is over once all of its parts are."""
    states = {each.state for each in rows.select(WalletRefundPartRow, refund_id=refund_id)}
    if "approved" not in states:
        state = "failed" if states == {"failed"} else "paid"
        rows.change(WalletRefundRow, refund_id, state=state)


def _project_dispute(event: PaymentDisputed | PaymentDisputeClosed, rows: Rows) -> None:
    match event:
        case PaymentDisputed():
            rows.make(
                WalletDisputeRow,
                dispute=event.dispute,
                account_id=event.account_id,
                tenant_id=_tenant(rows, event.account_id),
                intent=event.intent,
                nanos=event.money.nanos,
                currency=event.money.currency,
                reason=event.reason,
                state="open",
                opened_at=event.at,
            )
        case PaymentDisputeClosed():
            state = "won" if event.won else "lost"
            rows.change(WalletDisputeRow, event.dispute, state=state, closed_at=event.at)


def short(row: AccountRow, available: int) -> int:
    """Return how much further below zero an account would be than it may be."""
    return max(0, -available - (row.overdraft_nanos or 0))


def allow_short(disputed: FundsDisputed, rows: Rows) -> None:
    """Let an account fall below what it may: what a bank took back is gone, whatever is left."""
    row = rows.get(AccountRow, disputed.account_id)
    if row.overdraft_nanos is not None:
        after = short(row, row.available_nanos - disputed.money.nanos)
        rows.change(AccountRow, disputed.account_id, short_nanos=max(row.short_nanos, after))
