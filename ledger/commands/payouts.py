"""What may be asked about paying owners: settlements, approvals, what the bank said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from uuid import UUID

from ledger.commands.money import opening_account
from ledger.domain import account_ids, bank_files, payee_details, payee_settling, payees
from ledger.domain.bank_details import BankDetails
from ledger.domain.bank_files import BankFiles, Draft, Render
from ledger.domain.event import Event
from ledger.domain.ids import AccountId, TenantId, UserId
from ledger.domain.payees import Payee, PayeeOf, payout_named
from ledger.domain.payout_events import BankFileWritten, Schedule
from ledger.domain.settling import Due, Earned, PayoutTerms
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from ledger.eventstore.together import Part, record_together


def settle_earnings(
    store: EventStore,
    of: PayeeOf,
    due: Due,
    earned: Earned,
    *,
    terms: PayoutTerms,
    unit: int,
    platform_id: TenantId,
    user_id: UserId | None,
    by: Meta,
    now: datetime,
) -> tuple[UUID | None, Position]:
    """Request the payout of what an owner earned up to a cut-off.

    user_id: who asks; None: the schedule does. unit: nano-units of the currency's smallest unit.

    Returns: the payout's id, None where nothing is to be paid; and where that is recorded.
    Raises: NothingPayable, AmountTooLarge.
    """
    transit = account_ids.transit_account(platform_id, of.currency)
    opening = opening_account(
        account_id=transit,
        tenant_id=platform_id,
        kind="payouts",
        title="On its way to owners",
        currency=of.currency,
        by=by,
        now=now,
    )

    def decide(payee: Payee | None) -> Sequence[Event]:
        return payee_settling.settle(
            payee or Payee(),
            of,
            due,
            earned,
            terms=terms,
            transit=transit,
            unit=unit,
            by_user=user_id,
            now=now,
        )

    settling = Part(Payee, of.account_id, decide, by.step(f"settle:{due.period}"))
    position = record_together(store, [opening, settling], whole=True)[-1]
    payee = load(store, Payee, of.account_id) or Payee()
    revision = payee.revisions.get(due.period)
    made = None if revision is None else payout_named(of.account_id, due.period, revision)
    return made, position


def set_payout_schedule(
    store: EventStore,
    of: PayeeOf,
    *,
    schedule: Schedule,
    minimum_nanos: int | None,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Say how often an owner is paid, and from how much on; None: as the platform says.

    Raises: AmountTooLarge.
    """

    def decide(payee: Payee) -> Sequence[Event]:
        return payee_settling.set_schedule(
            payee, of, schedule=schedule, minimum_nanos=minimum_nanos, by_user=user_id, now=now
        )

    return _record(store, of.account_id, decide, by)


def approve_payout(
    store: EventStore,
    account_id: AccountId,
    payout_id: UUID,
    *,
    user_id: UserId,
    is_own: bool,
    by: Meta,
    now: datetime,
) -> Position:
    """Agree that a payout goes out. is_own: it goes to an organisation of the person's.

    Raises: PayoutUnknown, PayoutStateOtherwise, OwnPayout, ApprovedBySame.
    """

    def decide(payee: Payee) -> Sequence[Event]:
        return payees.approve(payee, payout_id, by_user=user_id, is_own=is_own, now=now)

    return _record(store, account_id, decide, by.step(f"approve:{payout_id}"))


def cancel_payout(
    store: EventStore,
    account_id: AccountId,
    payout_id: UUID,
    *,
    reason: str,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Let a payout that was not sent yet be earnings again.

    Raises: PayoutUnknown, PayoutStateOtherwise, ReasonMissing, TextUnreadable.
    """

    def decide(payee: Payee) -> Sequence[Event]:
        return payees.cancel(payee, payout_id, reason=reason, by_user=user_id, now=now)

    return _record(store, account_id, decide, by.step(f"cancel:{payout_id}"))


def mark_paid(
    store: EventStore,
    account_id: AccountId,
    payout_id: UUID,
    *,
    reference: str,
    paid_on: date,
    currency: str,
    platform_id: TenantId,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Note that the bank paid. reference: what the bank calls the transfer.

    Raises: PayoutUnknown, PayoutStateOtherwise, PayoutPaidOtherwise, ReasonMissing, TextUnreadable.
    """
    cash = account_ids.cash_account(platform_id, currency)

    def decide(payee: Payee) -> Sequence[Event]:
        return payees.pay(
            payee,
            payout_id,
            reference=reference,
            paid_on=paid_on,
            cash=cash,
            by_user=user_id,
            now=now,
        )

    return _record(store, account_id, decide, by.step(f"paid:{payout_id}:{reference}:{paid_on}"))


def mark_returned(
    store: EventStore,
    account_id: AccountId,
    payout_id: UUID,
    *,
    reason: str,
    currency: str,
    platform_id: TenantId,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Note that the bank did not pay, or that the money came back: it is earnings again.

    Raises: PayoutUnknown, PayoutStateOtherwise, ReasonMissing, TextUnreadable.
    """
    cash = account_ids.cash_account(platform_id, currency)

    def decide(payee: Payee) -> Sequence[Event]:
        return payees.give_back(
            payee, payout_id, reason=reason, cash=cash, by_user=user_id, now=now
        )

    return _record(store, account_id, decide, by.step(f"returned:{payout_id}"))


def write_bank_file(
    store: EventStore,
    draft: Draft,
    *,
    render: Render,
    platform_id: TenantId,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Put approved payouts into a bank file: all of them, or none where one may not go out.

    render: gives the file's bytes.

    Raises: NothingToSend, FileTooLong, DebtorUnknown, PayoutUnknown, PayoutStateOtherwise,
        PayoutsPaused, DetailsMissing.
    """

    def write(files: BankFiles | None) -> list[BankFileWritten]:
        return bank_files.write(
            files or BankFiles(), draft, render=render, by_user=user_id, now=now
        )

    def sending(payout_id: UUID, details_id: UUID) -> Callable[[Payee | None], Sequence[Event]]:
        def decide(payee: Payee | None) -> Sequence[Event]:
            return payees.send(
                payee or Payee(),
                payout_id,
                channel="bank-file",
                batch_id=draft.file_id,
                details_id=details_id,
                by_user=user_id,
                now=now,
            )

        return decide

    step = f"bank-file:{draft.file_id}"
    sent = [
        Part(
            Payee,
            line.account_id,
            sending(line.payout_id, line.details_id),
            by.step(f"{step}:{line.payout_id}"),
        )
        for line in draft.lines
    ]
    return record_together(
        store, [*sent, Part(BankFiles, platform_id, write, by.step(step))], whole=True
    )[-1]


def propose_bank_details(
    store: EventStore,
    of: PayeeOf,
    details: BankDetails,
    *,
    details_id: UUID,
    wait_seconds: int,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Propose to pay an owner to another bank account, which is sealed under `details_id`."""

    def decide(payee: Payee) -> Sequence[Event]:
        return payee_details.propose_details(
            payee,
            of,
            details,
            details_id=details_id,
            wait_seconds=wait_seconds,
            by_user=user_id,
            now=now,
        )

    return _record(store, of.account_id, decide, by.step(f"details:{details_id}"))


def confirm_bank_details(
    store: EventStore,
    account_id: AccountId,
    details_id: UUID,
    *,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Pay an owner to the bank account that was proposed. Raises: DetailsUnknown, DetailsWait."""

    def decide(payee: Payee) -> Sequence[Event]:
        return payee_details.confirm_details(payee, details_id, by_user=user_id, now=now)

    return _record(store, account_id, decide, by.step(f"confirm:{details_id}"))


def withdraw_bank_details(
    store: EventStore,
    account_id: AccountId,
    details_id: UUID,
    *,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Object to a bank account that was proposed: the one before stays. Raises: DetailsUnknown."""

    def decide(payee: Payee) -> Sequence[Event]:
        return payee_details.withdraw_details(payee, details_id, by_user=user_id, now=now)

    return _record(store, account_id, decide, by.step(f"withdraw:{details_id}"))


def _record(
    store: EventStore,
    account_id: AccountId,
    decide: Callable[[Payee], Sequence[Event]],
    by: Meta,
) -> Position:
    return record(store, Payee, account_id, lambda known: decide(known or Payee()), by=by)
