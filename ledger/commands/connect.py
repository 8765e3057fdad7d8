"""What may be asked about paying owners over Stripe, and what Stripe says of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from uuid import UUID

from ledger.domain import account_ids, connecting, transfers
from ledger.domain.connect_events import BankPayoutState, Channel, ConnectedState
from ledger.domain.event import Event
from ledger.domain.ids import AccountId, TenantId, UserId
from ledger.domain.money import Money
from ledger.domain.payees import Payee, PayeeOf
from ledger.eventstore.port import EventStore, Meta, Position, record


def ask_stripe_account(
    store: EventStore, of: PayeeOf, *, country: str, user_id: UserId, by: Meta, now: datetime
) -> Position:
    """Ask for an account at Stripe for an owner; one is made. Raises: CountryUnreadable."""

    def decide(payee: Payee) -> Sequence[Event]:
        return connecting.ask(payee, of, country=country, by_user=user_id, now=now)

    return _record(store, of.account_id, decide, by.step("stripe-account"))


def note_stripe_account(
    store: EventStore, account_id: AccountId, *, made: str, by: Meta, now: datetime
) -> Position:
    """Note which account Stripe made. Raises: StripeAccountMissing."""

    def decide(payee: Payee) -> Sequence[Event]:
        return connecting.made(payee, account_id, made, now=now)

    return _record(store, account_id, decide, by.step(f"stripe-account-made:{account_id}"))


def note_account_state(
    store: EventStore,
    account_id: AccountId,
    *,
    state: ConnectedState,
    missing: Sequence[str],
    words: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Note how an account at Stripe stands. Raises: StripeAccountMissing."""

    def decide(payee: Payee) -> Sequence[Event]:
        return connecting.seen(
            payee, account_id, state=state, missing=missing, words=words, now=now
        )

    return _record(store, account_id, decide, by.step(f"stripe-state:{account_id}"))


def choose_channel(
    store: EventStore,
    of: PayeeOf,
    channel: Channel,
    *,
    wait_seconds: int,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Say how an owner's payouts go out.

    Raises: StripeAccountMissing, StripeAccountNotReady.
    """

    def decide(payee: Payee) -> Sequence[Event]:
        return connecting.choose(
            payee, of, channel, wait_seconds=wait_seconds, by_user=user_id, now=now
        )

    return _record(store, of.account_id, decide, by.step(f"channel:{channel}"))


def send_over_stripe(
    store: EventStore, account_id: AccountId, payout_id: UUID, *, by: Meta, now: datetime
) -> Position:
    """Let an approved payout go to Stripe: from now on it is asked for a transfer.

    Raises: PayoutUnknown, PayoutStateOtherwise, StripeAccountMissing, StripeAccountNotReady,
        PayoutsPaused.
    """

    def decide(payee: Payee) -> Sequence[Event]:
        return transfers.send(payee, payout_id, now=now)

    return _record(store, account_id, decide, by.step(f"send:{payout_id}"))


def note_waiting(
    store: EventStore,
    account_id: AccountId,
    payout_id: UUID,
    *,
    reason: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Note that our balance at Stripe is too low for a transfer. Raises: PayoutStateOtherwise."""

    def decide(payee: Payee) -> Sequence[Event]:
        return transfers.wait(payee, payout_id, reason=reason, now=now)

    return _record(store, account_id, decide, by)


def note_transfer(
    store: EventStore,
    account_id: AccountId,
    payout_id: UUID,
    *,
    reference: str,
    paid_on: date,
    currency: str,
    platform_id: TenantId,
    by: Meta,
    now: datetime,
) -> Position:
    """Note that a transfer was made: the payout is paid.

    Raises: PayoutUnknown, PayoutStateOtherwise, PayoutPaidOtherwise, NotPaidOverStripe.
    """
    cash = account_ids.cash_account(platform_id, currency)

    def decide(payee: Payee) -> Sequence[Event]:
        return transfers.arrive(
            payee, payout_id, reference=reference, paid_on=paid_on, cash=cash, now=now
        )

    return _record(store, account_id, decide, by.step(f"transfer:{payout_id}:{reference}"))


def note_refused(
    store: EventStore,
    account_id: AccountId,
    payout_id: UUID,
    *,
    reason: str,
    currency: str,
    platform_id: TenantId,
    by: Meta,
    now: datetime,
) -> Position:
    """Note that Stripe makes no transfer: it is earnings again. Raises: PayoutStateOtherwise."""
    cash = account_ids.cash_account(platform_id, currency)

    def decide(payee: Payee) -> Sequence[Event]:
        return transfers.refuse(payee, payout_id, reason=reason, cash=cash, now=now)

    return _record(store, account_id, decide, by.step(f"refused:{payout_id}"))


def ask_transfer_back(
    store: EventStore,
    account_id: AccountId,
    payout_id: UUID,
    *,
    number: int,
    money: Money,
    unit: int,
    reason: str,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Ask Stripe for a part of a transfer back.

    Raises: PayoutUnknown, NotPaidOverStripe, PayoutStateOtherwise, MoreThanArrived, NotWholeUnits,
        AmountNotPositive, ReasonMissing, TextUnreadable.
    """

    def decide(payee: Payee) -> Sequence[Event]:
        return transfers.ask_back(
            payee,
            payout_id,
            number=number,
            money=money,
            unit=unit,
            reason=reason,
            by_user=user_id,
            now=now,
        )

    return _record(store, account_id, decide, by.step(f"back:{payout_id}:{number}"))


def note_nothing_back(
    store: EventStore,
    account_id: AccountId,
    payout_id: UUID,
    *,
    number: int,
    reason: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Note that Stripe gives nothing back for a request. Raises: PayoutUnknown."""

    def decide(payee: Payee) -> Sequence[Event]:
        return transfers.not_back(payee, payout_id, number=number, reason=reason, now=now)

    return _record(store, account_id, decide, by.step(f"not-back:{payout_id}:{number}"))


def note_back(
    store: EventStore,
    account_id: AccountId,
    payout_id: UUID,
    *,
    number: int,
    reference: str,
    money: Money,
    platform_id: TenantId,
    by: Meta,
    now: datetime,
) -> Position:
    """Note that a part of a transfer came back: it is earnings again.

    Raises: PayoutUnknown, NotPaidOverStripe, MoreThanArrived.
    """
    cash = account_ids.cash_account(platform_id, money.currency)

    def decide(payee: Payee) -> Sequence[Event]:
        return transfers.come_back(
            payee,
            payout_id,
            number=number,
            reference=reference,
            money=money,
            cash=cash,
            now=now,
        )

    return _record(store, account_id, decide, by.step(f"back:{payout_id}:{reference}"))


def note_bank_payout(
    store: EventStore,
    account_id: AccountId,
    *,
    reference: str,
    state: BankPayoutState,
    money: Money,
    arrives_on: date,
    words: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Note what became of a payout from Stripe to the owner's bank.

    Raises: StripeAccountMissing.
    """

    def decide(payee: Payee) -> Sequence[Event]:
        return connecting.bank_payout(
            payee,
            account_id,
            reference=reference,
            state=state,
            money=money,
            arrives_on=arrives_on,
            words=words,
            now=now,
        )

    return _record(store, account_id, decide, by.step(f"bank:{reference}:{state}"))


def _record(
    store: EventStore,
    account_id: AccountId,
    decide: Callable[[Payee], Sequence[Event]],
    by: Meta,
) -> Position:
    return record(store, Payee, account_id, lambda known: decide(known or Payee()), by=by)
