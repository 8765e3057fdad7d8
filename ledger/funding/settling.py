"""What the payment service says of a payment, refund, dispute or card, put on the books.

Each function may be called with the same state again, and with states in any order: what a state
says is recorded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from ledger.commands import refunds as refunding
from ledger.commands import wallet as commands
from ledger.domain.accounts import Account
from ledger.domain.ids import AccountId, PaymentId, RefundId
from ledger.domain.minor_units import money_of
from ledger.domain.money import Money
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.refunds import refundable
from ledger.domain.wallet import Wallet
from ledger.eventstore.port import EventStore, Meta, load
from ledger.models import (
    AccountRow,
    WalletPaymentRow,
    WalletRefundPartRow,
    WalletRow,
)
from ledger.payments.port import (
    DisputeState,
    IntentState,
    MethodState,
    PageState,
    Payments,
    RefundState,
)

ACCOUNT, PAYMENT, PART = "offpeak_account", "offpeak_payment", "offpeak_refund"
"""Our marks on what the payment service keeps."""
RAN_OUT = "The page ran out before it was paid."


def marks_of(account_id: AccountId, payment_id: PaymentId | None = None) -> dict[str, str]:
    """Return the marks by which we know again what is of a wallet."""
    marks = {ACCOUNT: str(account_id)}
    return marks if payment_id is None else marks | {PAYMENT: str(payment_id)}


def settle_intent(store: EventStore, state: IntentState, *, by: Meta, now: datetime) -> bool:
    """Put a payment on the books; tell if it is one of ours that is over."""
    account_id, payment_id = _id(state.marks, ACCOUNT), _id(state.marks, PAYMENT)
    if account_id is None or payment_id is None:
        return False
    if state.state == "succeeded":
        commands.post_top_up(
            store,
            account_id=AccountId(account_id),
            payment_id=PaymentId(payment_id),
            intent=state.intent,
            money=money_of(state.minor, state.currency),
            platform_id=PLATFORM_ID,
            by=by,
            now=now,
        )
        return True
    if state.state == "failed":
        commands.note_failed(
            store,
            account_id=AccountId(account_id),
            payment_id=PaymentId(payment_id),
            reason=state.words or "The payment was cancelled.",
            declined=False,
            by=by,
            now=now,
        )
        return True
    return False


def settle_page(
    store: EventStore, payments: Payments, state: PageState, *, by: Meta, now: datetime
) -> None:
    """Put what happened on a page on the books: paid, or run out."""
    if state.intent and settle_intent(store, payments.intent(state.intent), by=by, now=now):
        return
    account_id, payment_id = _id(state.marks, ACCOUNT), _id(state.marks, PAYMENT)
    if state.is_expired and account_id is not None and payment_id is not None:
        commands.note_failed(
            store,
            account_id=AccountId(account_id),
            payment_id=PaymentId(payment_id),
            reason=RAN_OUT,
            declined=False,
            by=by,
            now=now,
        )


def settle_refund(store: EventStore, state: RefundState, *, by: Meta, now: datetime) -> bool:
    """Put a refund on the books; tell if it is one of ours that is over."""
    part = WalletRefundPartRow.objects.filter(part_id=state.marks.get(PART, "")).first()
    if part is None or state.state == "open":
        return False
    account_id, refund_id = AccountId(part.account_id), RefundId(part.refund_id)
    if state.state == "paid":
        refunding.note_part_paid(
            store,
            account_id=account_id,
            refund_id=refund_id,
            number=part.number,
            reference=state.refund,
            platform_id=PLATFORM_ID,
            by=by,
            now=now,
        )
    else:
        refunding.note_part_failed(
            store,
            account_id=account_id,
            refund_id=refund_id,
            number=part.number,
            reason=state.words or "The bank did not take it.",
            by=by,
            now=now,
        )
    return True


def settle_dispute(
    store: EventStore, payments: Payments, state: DisputeState, *, by: Meta, now: datetime
) -> bool:
    """Put a dispute on the books; tell if it is about a payment of ours that moved money."""
    if state.state == "inquiry" or not state.intent:
        return False
    intent = payments.intent(state.intent)
    account_id = _id(intent.marks, ACCOUNT)
    # Notices come in any order: the payment is put on the books first, whatever came of it since.
    if account_id is None or not settle_intent(store, intent, by=by, now=now):
        return False
    refunding.note_dispute(
        store,
        account_id=AccountId(account_id),
        dispute=state.dispute,
        intent=state.intent,
        money=money_of(state.minor, state.currency),
        reason=state.reason,
        platform_id=PLATFORM_ID,
        by=by,
        now=now,
    )
    if state.state in ("won", "lost"):
        refunding.note_dispute_closed(
            store,
            account_id=AccountId(account_id),
            dispute=state.dispute,
            won=state.state == "won",
            by=by,
            now=now,
        )
    return True


def settle_method(store: EventStore, state: MethodState, *, by: Meta, now: datetime) -> None:
    """Note that a card is kept for one of our payers, or for nobody any more."""
    if state.payer:
        row = WalletRow.objects.filter(payer=state.payer).first()
        if row is not None:
            commands.note_method(
                store,
                account_id=AccountId(row.account_id),
                method=state.method,
                label=state.label,
                by=by,
                now=now,
            )
        return
    known = _account_with(state.method)
    if known is not None:
        commands.note_method_removed(store, account_id=known, method=state.method, by=by, now=now)


def keep_card(
    store: EventStore,
    payments: Payments,
    intent: IntentState,
    *,
    by: Meta,
    now: datetime,
) -> None:
    """Note the card that a payer let the payment service keep when paying."""
    account_id = _id(intent.marks, ACCOUNT)
    if not intent.method or account_id is None:
        return
    wallet = load(store, Wallet, AccountId(account_id))
    state = payments.method(intent.method)
    if wallet is not None and wallet.payer and state.payer == wallet.payer:
        commands.note_method(
            store,
            account_id=AccountId(account_id),
            method=state.method,
            label=state.label,
            by=by,
            now=now,
        )


def refundable_now(store: EventStore, row: AccountRow) -> Money:
    """Return how much of a wallet could go back to cards now: unused, and come in by them."""
    wallet = load(store, Wallet, AccountId(row.pk)) or Wallet()
    most = refundable(wallet, row.currency)
    account = load(store, Account, AccountId(row.pk))
    unused = row.available_nanos - (account.for_use_nanos if account else 0)
    return Money(max(0, min(most.nanos, unused)), row.currency)


def payment_of(intent: str) -> WalletPaymentRow | None:
    """Return the top-up that a payment was posted for."""
    return WalletPaymentRow.objects.filter(intent=intent).first()


def _account_with(method: str) -> AccountId | None:
    from ledger.models import WalletMethodRow

    row = WalletMethodRow.objects.filter(pk=method).first()
    return None if row is None else AccountId(row.account_id)


def _id(marks: Mapping[str, str], name: str) -> UUID | None:
    try:
        return UUID(marks.get(name, ""))
    except ValueError:
        return None
