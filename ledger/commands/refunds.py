"""What may be asked about money that goes back: refunds by two people, disputes, fees."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ledger.commands.money import open_account
from ledger.commands.wallet import need, wallet_account
from ledger.domain import refunds, returns
from ledger.domain.account_ids import cash_account, processing_account
from ledger.domain.accounts import Account
from ledger.domain.event import Event
from ledger.domain.ids import AccountId, RefundId, TenantId, UserId
from ledger.domain.money import Money
from ledger.domain.wallet import Wallet
from ledger.domain.wallet_events import RefundApproved
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from ledger.eventstore.together import Part, record_together


def ask_for_refund(
    store: EventStore,
    *,
    account_id: AccountId,
    refund_id: RefundId,
    money: Money,
    reason: str,
    asked_by: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Ask to have unused money back; it is set aside until somebody else decides.

    Raises: AccountUnknown, NotAWallet, NotUnused, and what `refunds.ask` raises.
    """
    wallet_account(store, account_id)
    by = by.step(f"refund:{refund_id}:{money}:{reason}")

    def decide(wallet: Wallet | None) -> Sequence[Event]:
        return refunds.ask(
            wallet,
            account_id=account_id,
            refund_id=refund_id,
            money=money,
            reason=reason,
            asked_by=asked_by,
            now=now,
        )

    def hold(account: Account | None) -> Sequence[Event]:
        known, hold_id = need(account, account_id), returns.refund_hold(refund_id)
        if hold_id in known.holds:
            return []
        returns.need_unused(known, money)
        purpose = f"refund:{refund_id}"
        return known.place_hold(hold_id=hold_id, money=money, purpose=purpose, now=now)

    parts = [Part(Account, account_id, hold, by), Part(Wallet, account_id, decide, by)]
    return record_together(store, parts, whole=True)[1]


def approve_refund(
    store: EventStore,
    *,
    account_id: AccountId,
    refund_id: RefundId,
    approved_by: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Let a refund go out that somebody else asked for, while the account covers it.

    Raises: RefundUnknown, OwnRefund, RefundDecided, NothingToRefundTo, WalletShort.
    """
    by = by.step(f"approve:{refund_id}")
    approved: list[RefundApproved] = []

    def decide(wallet: Wallet | None) -> Sequence[Event]:
        approved[:] = refunds.approve(
            wallet, account_id=account_id, refund_id=refund_id, approved_by=approved_by, now=now
        )
        return approved

    def cover(account: Account | None) -> Sequence[Event]:
        if approved:
            returns.need_covered(need(account, account_id))
        return []

    parts = [
        Part(Wallet, account_id, decide, by),
        Part(Account, account_id, cover, by, holds=True),
    ]
    return record_together(store, parts, whole=True)[0]


def decline_refund(
    store: EventStore,
    *,
    account_id: AccountId,
    refund_id: RefundId,
    declined_by: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Leave a refund that was asked for; its money is available again.

    Raises: RefundUnknown, RefundDecided.
    """
    by = by.step(f"decline:{refund_id}")

    def decide(wallet: Wallet | None) -> Sequence[Event]:
        return refunds.decline(
            wallet, account_id=account_id, refund_id=refund_id, declined_by=declined_by, now=now
        )

    def release(account: Account | None) -> Sequence[Event]:
        known = need(account, account_id)
        return known.release_hold(hold_id=returns.refund_hold(refund_id), now=now)

    parts = [Part(Wallet, account_id, decide, by), Part(Account, account_id, release, by)]
    return record_together(store, parts, whole=True)[0]


# --- what the payment service said ------------------------------------------------------------


def note_part_paid(
    store: EventStore,
    *,
    account_id: AccountId,
    refund_id: RefundId,
    number: int,
    reference: str,
    platform_id: TenantId,
    by: Meta,
    now: datetime,
) -> Position:
    """Post a part of a refund that went out, once; nothing where it is known to have failed."""
    refund = refunds.refund_of(load(store, Wallet, account_id), refund_id)
    part, _ = refund.parts[number]
    cash = cash_account(platform_id, part.money.currency)

    def decide(wallet: Wallet | None) -> Sequence[Event]:
        nonlocal refund
        refund = refunds.refund_of(wallet, refund_id)
        return refunds.part_paid(
            wallet,
            account_id=account_id,
            refund_id=refund_id,
            number=number,
            reference=reference,
            now=now,
        )

    def post(account: Account | None) -> Sequence[Event]:
        if refund.parts[number][1] == "failed":
            return []  # heard of in another order: the money is in the wallet
        return returns.return_funds(
            need(account, account_id),
            refund_id=refund_id,
            number=number,
            corrects=returns.intent_entry(account_id, part.intent),
            money=part.money,
            reference=reference,
            left=refunds.still_to_go(refund, without=number),
            cash=cash,
            now=now,
        )

    parts = [Part(Wallet, account_id, decide, by), Part(Account, account_id, post, by)]
    return record_together(store, parts, whole=True)[1]


def note_part_failed(
    store: EventStore,
    *,
    account_id: AccountId,
    refund_id: RefundId,
    number: int,
    reason: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Note that a part of a refund did not go out, or came back: its money is available again."""
    refund = refunds.refund_of(load(store, Wallet, account_id), refund_id)
    entry_id = returns.refund_entry(refund_id, number)

    def decide(wallet: Wallet | None) -> Sequence[Event]:
        nonlocal refund
        refund = refunds.refund_of(wallet, refund_id)
        return refunds.part_failed(
            wallet,
            account_id=account_id,
            refund_id=refund_id,
            number=number,
            reason=reason,
            now=now,
        )

    def undo(account: Account | None) -> Sequence[Event]:
        known = need(account, account_id)
        if entry_id in known.entries:
            return returns.reverse(known, entry_id, reference=f"refund:{refund_id}", now=now)
        left = refunds.still_to_go(refund, without=number)
        return returns.let_go(known, refund_id=refund_id, left=left, now=now)

    parts = [Part(Wallet, account_id, decide, by), Part(Account, account_id, undo, by)]
    return record_together(store, parts, whole=True)[1]


def note_dispute(
    store: EventStore,
    *,
    account_id: AccountId,
    dispute: str,
    intent: str,
    money: Money,
    reason: str,
    platform_id: TenantId,
    by: Meta,
    now: datetime,
) -> Position:
    """Post what a payer's bank took back, once. The account may fall below zero by it.

    Raises: PaymentNotKnown.
    """
    cash = cash_account(platform_id, money.currency)

    def decide(wallet: Wallet | None) -> Sequence[Event]:
        return refunds.dispute(
            wallet,
            account_id=account_id,
            name=dispute,
            intent=intent,
            money=money,
            reason=reason,
            now=now,
        )

    def post(account: Account | None) -> Sequence[Event]:
        return returns.take_back(
            need(account, account_id),
            dispute=dispute,
            corrects=returns.intent_entry(account_id, intent),
            money=money,
            cash=cash,
            now=now,
        )

    parts = [Part(Wallet, account_id, decide, by), Part(Account, account_id, post, by)]
    return record_together(store, parts, whole=True)[1]


def note_dispute_closed(
    store: EventStore,
    *,
    account_id: AccountId,
    dispute: str,
    won: bool,
    by: Meta,
    now: datetime,
) -> Position:
    """Note what the bank decided, the first time; where it is for us, what it took is posted back.

    Raises: PaymentNotKnown.
    """
    is_won = won

    def decide(wallet: Wallet | None) -> Sequence[Event]:
        nonlocal is_won
        closed = refunds.close_dispute(
            wallet, account_id=account_id, name=dispute, won=won, now=now
        )
        if not closed and wallet is not None:
            is_won = wallet.disputes[dispute].state == "won"  # as it was heard first
        return closed

    def undo(account: Account | None) -> Sequence[Event]:
        if not is_won:
            return []
        entry_id = returns.dispute_entry(account_id, dispute)
        return returns.reverse(need(account, account_id), entry_id, reference=dispute, now=now)

    parts = [Part(Wallet, account_id, decide, by), Part(Account, account_id, undo, by)]
    return record_together(store, parts, whole=True)[0]


def pay_processing_fee(
    store: EventStore,
    *,
    platform_id: TenantId,
    money: Money,
    reference: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Count what taking payments cost the platform, once per `reference`. Opens its account."""
    currency = money.currency
    account_id = processing_account(platform_id, currency)
    cash = cash_account(platform_id, currency)
    if load(store, Account, account_id) is None:
        open_account(
            store,
            account_id=account_id,
            tenant_id=platform_id,
            subscriber_id=None,
            kind="stripe-fees",
            title="Offpeak: stripe-fees",
            currency=currency,
            overdraft_nanos=None,
            by=by,
            now=now,
        )

    def decide(account: Account | None) -> Sequence[Event]:
        return returns.pay_fee(
            need(account, account_id), money=money, reference=reference, cash=cash, now=now
        )

    return record(store, Account, account_id, decide, by=by.step(f"fee:{reference}"))
