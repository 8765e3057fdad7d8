"""Rows of payees, payouts and bank files, kept with those of money: one order for both."""

from __future__ import annotations

from ledger.domain.connect_events import ConnectEvent
from ledger.domain.payout_events import (
    BankDetailsConfirmed,
    BankDetailsProposed,
    BankDetailsWithdrawn,
    BankFileWritten,
    PayeeEvent,
    PayoutApproved,
    PayoutCancelled,
    PayoutPaid,
    PayoutRequested,
    PayoutReturned,
    PayoutScheduleSet,
    PayoutSent,
)
from ledger.eventstore.port import Recorded
from ledger.following import names_of
from ledger.models import BankFileRow, PayeeRow, PayoutRow
from ledger.projections import connect
from ledger.projections.earnings import payee_of
from ledger.rows import Rows

TABLES = (PayoutRow, BankFileRow, *connect.TABLES)
ON = names_of(
    BankDetailsProposed,
    BankDetailsConfirmed,
    BankDetailsWithdrawn,
    PayoutScheduleSet,
    PayoutRequested,
    PayoutApproved,
    PayoutCancelled,
    PayoutSent,
    PayoutPaid,
    PayoutReturned,
    BankFileWritten,
    *connect.EVENTS,
)
UNPROPOSED: dict[str, object] = {
    "proposed_id": None,
    "proposed_kind": "",
    "proposed_masked": "",
    "proposed_by": None,
    "proposed_at": None,
    "usable_from": None,
}


def project_payee(event: PayeeEvent, rows: Rows) -> None:
    """Keep payees and payouts equal to their streams. An entry was posted before this."""
    match event:
        case BankDetailsProposed() | BankDetailsConfirmed() | BankDetailsWithdrawn():
            _project_details(event, rows)
        case PayoutScheduleSet():
            payee_of(rows, event.account_id, event.tenant_id, event.currency)
            rows.change(
                PayeeRow,
                event.account_id,
                schedule=event.schedule,
                minimum_nanos=event.minimum_nanos,
            )
        case PayoutRequested():
            _request(event, rows)
        case PayoutApproved():
            _approve(event, rows)
        case PayoutSent():
            rows.change(
                PayoutRow,
                event.payout_id,
                state="sent",
                channel=event.channel,
                file_id=event.batch_id if event.channel == "bank-file" else None,
                details_id=event.details_id,
                sent_at=event.at,
                changed_at=event.at,
            )
        case PayoutPaid():
            rows.change(
                PayoutRow,
                event.payout_id,
                state="paid",
                reference=event.reference,
                again_at=None,
                paid_on=event.paid_on,
                changed_at=event.at,
            )
        case PayoutCancelled() | PayoutReturned():
            state = "cancelled" if isinstance(event, PayoutCancelled) else "returned"
            rows.change(
                PayoutRow,
                event.payout_id,
                state=state,
                reason=event.reason,
                again_at=None,
                changed_at=event.at,
            )
        case event if isinstance(event, ConnectEvent):
            connect.project_connect(event, rows)


def _project_details(
    event: BankDetailsProposed | BankDetailsConfirmed | BankDetailsWithdrawn, rows: Rows
) -> None:
    changed = dict(UNPROPOSED)
    match event:
        case BankDetailsProposed():
            payee_of(rows, event.account_id, event.tenant_id, event.currency)
            changed = {
                "proposed_id": event.details_id,
                "proposed_kind": event.kind,
                "proposed_masked": event.masked,
                "proposed_by": event.by_user,
                "proposed_at": event.at,
                "usable_from": event.usable_from,
            }
        case BankDetailsConfirmed():
            payee = rows.get(PayeeRow, event.account_id)
            changed |= {
                "details_id": payee.proposed_id,
                "details_kind": payee.proposed_kind,
                "details_masked": payee.proposed_masked,
            }
        case BankDetailsWithdrawn():
            pass
    rows.change(PayeeRow, event.account_id, **changed)


def _request(event: PayoutRequested, rows: Rows) -> None:
    payee = payee_of(rows, event.account_id, event.tenant_id, event.money.currency)
    closing = payee.earned_nanos - payee.paid_nanos
    rows.make(
        PayoutRow,
        payout_id=event.payout_id,
        account_id=event.account_id,
        tenant_id=event.tenant_id,
        currency=event.money.currency,
        period=event.period,
        revision=event.revision,
        round=payee.rounds,
        state="requested",
        nanos=event.money.nanos,
        cut_off=event.cut_off,
        later_nanos=event.later_nanos,
        held_back_nanos=event.held_back_nanos,
        set_aside_nanos=event.set_aside_nanos,
        opening_nanos=payee.opening_nanos,
        closing_nanos=closing,
        approvals_needed=event.approvals_needed,
        requested_by=event.requested_by,
        requested_at=event.at,
        changed_at=event.at,
    )
    settled = event.period if event.requested_by is None else payee.settled
    rows.change(
        PayeeRow,
        event.account_id,
        rounds=payee.rounds + 1,
        opening_nanos=closing,
        settled=settled,
    )


def _approve(event: PayoutApproved, rows: Rows) -> None:
    row = rows.get(PayoutRow, event.payout_id)
    people = [*row.approved_by, event.by_user]
    rows.change(
        PayoutRow,
        event.payout_id,
        approved_by=people,
        state="approved" if len(people) >= row.approvals_needed else "requested",
        changed_at=event.at,
    )


def project_bank_file(event: BankFileWritten, recorded: Recorded, rows: Rows) -> None:
    """Keep the bank files equal to their stream."""
    rows.make(
        BankFileRow,
        file_id=event.file_id,
        number=event.number,
        message_id=event.message_id,
        format=event.format,
        currency=event.currency,
        payouts=len(event.lines),
        total_nanos=event.total_nanos,
        execute_on=event.execute_on,
        sha256=event.sha256,
        position=recorded.position,
        by_user=event.by_user,
        at=event.at,
    )
