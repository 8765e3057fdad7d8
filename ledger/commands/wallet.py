"""What may be asked of a wallet: to be topped up, by hand or by itself, and its saved cards.

What is asked of the payment service is recorded first; a loop carries it out (`ledger.funding`).
Money is posted when the payment service confirms that it came in, and at no other time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from ledger.domain import returns, top_ups
from ledger.domain.account_ids import cash_account
from ledger.domain.accounts import Account, AccountUnknown
from ledger.domain.event import Event
from ledger.domain.ids import AccountId, PaymentId, TenantId, UserId
from ledger.domain.minor_units import minor_of
from ledger.domain.money import Money
from ledger.domain.wallet import Wallet
from ledger.domain.wallet_events import AutomaticTopUpSet, Way
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from ledger.eventstore.together import Part, record_together


def request_top_up(
    store: EventStore,
    *,
    account_id: AccountId,
    payment_id: PaymentId,
    money: Money,
    way: Way = "checkout",
    method: str = "",
    asked_by: UserId | None,
    by: Meta,
    now: datetime,
) -> Position:
    """Ask for a top-up, once for its id; nothing is on the account before it is confirmed.

    Raises: AccountUnknown, NotAWallet, CurrencyMismatch, AmountNotPayable, MethodUnknown,
        TooManyUnfinished, PaymentRequestedOtherwise.
    """
    account = wallet_account(store, account_id)

    def decide(wallet: Wallet | None) -> Sequence[Event]:
        return top_ups.request(
            wallet,
            account_id=account_id,
            currency=account.opened.currency,
            payment_id=payment_id,
            money=money,
            way=way,
            method=method,
            asked_by=asked_by,
            now=now,
        )

    return _record(store, account_id, decide, by=by.step(f"top-up:{payment_id}:{money}:{method}"))


def request_automatic_top_up(
    store: EventStore, *, account_id: AccountId, by: Meta, now: datetime
) -> Position:
    """Ask for a top-up if the wallet's own rule says so now."""
    available = wallet_account(store, account_id).available

    def decide(wallet: Wallet | None) -> Sequence[Event]:
        return top_ups.request_automatic(
            wallet, account_id=account_id, available=available, now=now
        )

    return _record(store, account_id, decide, by=by)


def set_automatic_top_up(
    store: EventStore,
    *,
    account_id: AccountId,
    below: Money,
    amount: Money,
    most_per_day: Money,
    method: str,
    set_by: UserId | None,
    by: Meta,
    now: datetime,
) -> Position:
    """Let a wallet top itself up.

    Raises: AccountUnknown, NotAWallet, MethodUnknown, AutomaticUnclear, AmountNotPayable.
    """
    wallet_account(store, account_id)
    minor_of(amount)
    terms = AutomaticTopUpSet(
        account_id=account_id,
        below_nanos=below.nanos,
        amount_nanos=amount.nanos,
        most_per_day_nanos=most_per_day.nanos,
        method=method,
        set_by=set_by,
        at=now,
    )
    return _record(
        store,
        account_id,
        lambda wallet: top_ups.set_automatic(wallet, terms),
        by=by.step(f"automatic:{below}:{amount}:{most_per_day}:{method}"),
    )


def end_automatic_top_up(
    store: EventStore, *, account_id: AccountId, by: Meta, now: datetime
) -> Position:
    """Let a wallet top itself up no more."""
    return _record(
        store,
        account_id,
        lambda wallet: top_ups.end_automatic(wallet, account_id=account_id, reason="", now=now),
        by=by.step("automatic:end"),
    )


def remove_method(
    store: EventStore,
    *,
    account_id: AccountId,
    method: str,
    asked_by: UserId | None,
    by: Meta,
    now: datetime,
) -> Position:
    """Ask that a saved card be kept no longer. It is not used from here on.

    Raises: MethodUnknown.
    """
    return _record(
        store,
        account_id,
        lambda wallet: top_ups.ask_to_remove(
            wallet, account_id=account_id, method=method, asked_by=asked_by, now=now
        ),
        by=by.step(f"remove:{method}"),
    )


# --- what the payment service said ------------------------------------------------------------


def note_payer(
    store: EventStore, *, account_id: AccountId, payer: str, by: Meta, now: datetime
) -> Position:
    """Note who a wallet's payer is at the payment service."""
    return _record(
        store,
        account_id,
        lambda wallet: top_ups.know_payer(wallet, account_id=account_id, payer=payer, now=now),
        by=by,
    )


def note_opened(
    store: EventStore,
    *,
    account_id: AccountId,
    payment_id: PaymentId,
    reference: str,
    url: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Note that the payment service took a top-up on."""
    return _record(
        store,
        account_id,
        lambda wallet: top_ups.open_payment(
            wallet,
            account_id=account_id,
            payment_id=payment_id,
            reference=reference,
            url=url,
            now=now,
        ),
        by=by,
    )


def post_top_up(
    store: EventStore,
    *,
    account_id: AccountId,
    payment_id: PaymentId,
    intent: str,
    money: Money,
    platform_id: TenantId,
    by: Meta,
    now: datetime,
) -> Position:
    """Post a top-up that the payment service confirmed, once for its `intent`.

    Raises: AccountUnknown, PaymentUnknown, CurrencyMismatch.
    """
    cash = cash_account(platform_id, money.currency)

    def decide(wallet: Wallet | None) -> Sequence[Event]:
        return top_ups.succeed(
            wallet,
            account_id=account_id,
            payment_id=payment_id,
            intent=intent,
            money=money,
            now=now,
        )

    def add(account: Account | None) -> Sequence[Event]:
        return need(account, account_id).add_funds(
            entry_id=returns.intent_entry(account_id, intent),
            money=money,
            reference=intent,
            cash=cash,
            now=now,
        )

    parts = [Part(Wallet, account_id, decide, by), Part(Account, account_id, add, by)]
    return record_together(store, parts, whole=True)[1]


def note_failed(
    store: EventStore,
    *,
    account_id: AccountId,
    payment_id: PaymentId,
    reason: str,
    declined: bool,
    by: Meta,
    now: datetime,
) -> Position:
    """Note that a top-up did not come about."""
    return _record(
        store,
        account_id,
        lambda wallet: top_ups.fail(
            wallet,
            account_id=account_id,
            payment_id=payment_id,
            reason=reason,
            declined=declined,
            now=now,
        ),
        by=by,
    )


def note_method(
    store: EventStore,
    *,
    account_id: AccountId,
    method: str,
    label: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Note that the payment service keeps a card for a wallet."""
    return _record(
        store,
        account_id,
        lambda wallet: top_ups.save_method(
            wallet, account_id=account_id, method=method, label=label, now=now
        ),
        by=by,
    )


def note_method_removed(
    store: EventStore, *, account_id: AccountId, method: str, by: Meta, now: datetime
) -> Position:
    """Note that the payment service keeps a card no longer."""
    return _record(
        store,
        account_id,
        lambda wallet: top_ups.remove_method(wallet, account_id=account_id, method=method, now=now),
        by=by,
    )


def wallet_account(store: EventStore, account_id: AccountId) -> Account:
    """Return an account that can be topped up.

    Raises: AccountUnknown, NotAWallet.
    """
    account = need(load(store, Account, account_id), account_id)
    top_ups.need_wallet(account)
    return account


def need(account: Account | None, account_id: AccountId) -> Account:
    """Return an account that is open.

    Raises: AccountUnknown.
    """
    if account is None:
        raise AccountUnknown(account_id=account_id)
    return account


def _record(
    store: EventStore,
    account_id: AccountId,
    decide: Callable[[Wallet | None], Sequence[Event]],
    *,
    by: Meta,
) -> Position:
    return record(store, Wallet, account_id, decide, by=by)
