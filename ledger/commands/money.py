"""What may be asked about money: accounts, funds, holds, captures, costs.

Every command may be repeated: the ids name what is meant, so asking again on the same terms
succeeds and changes nothing, and asking for something else under the same id is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from ledger.domain import account_ids, accounts, cloud_costs
from ledger.domain.accounts import Account, AccountUnknown
from ledger.domain.event import Event
from ledger.domain.events import AccountKind, AccountOpened, OwnerUse
from ledger.domain.holds import Usage
from ledger.domain.ids import AccountId, EntryId, HoldId, LeaseId, SubscriberId, TenantId
from ledger.domain.journal import payment_entry
from ledger.domain.money import Money, Rate
from ledger.domain.payments import credit
from ledger.domain.span import Window
from ledger.domain.usage_items import UsageItem
from ledger.eventstore.port import EventStore, Meta, Position, record
from ledger.eventstore.together import Part, record_together

NOT_DESCRIBED = UsageItem()


def open_account(
    store: EventStore,
    *,
    account_id: AccountId,
    tenant_id: TenantId,
    subscriber_id: SubscriberId | None,
    kind: AccountKind,
    title: str,
    currency: str,
    overdraft_nanos: int | None,
    by: Meta,
    now: datetime,
) -> Position:
    """Open a place where money is counted.

    account_id: from the functions of `ledger.domain.accounts`, so that everybody finds it.
    overdraft_nanos: how far available may fall below zero. A prepaid account that must cover
    its holds has 0; a cost centre with a budget has the budget, one without has None.

    Returns: the store position at which it is open.
    Raises: AccountOpenedOtherwise, PrepaidUnlimited, OverdraftNegative, AmountTooLarge.
    """
    terms = AccountOpened(
        account_id=account_id,
        tenant_id=tenant_id,
        subscriber_id=subscriber_id,
        kind=kind,
        title=title,
        currency=currency,
        overdraft_nanos=overdraft_nanos,
        at=now,
    )

    def decide(account: Account | None) -> Sequence[Event]:
        return accounts.open_account(account, terms)

    asked = f"open:{kind}:{title}:{currency}:{overdraft_nanos}"
    return record(store, Account, account_id, decide, by=by.step(asked))


def opening_account(
    *,
    account_id: AccountId,
    tenant_id: TenantId,
    kind: AccountKind,
    title: str,
    currency: str,
    by: Meta,
    now: datetime,
) -> Part:
    """Return the opening of an account without a limit as a part of the first entry on it.

    Nothing where it is open, on whatever terms; and where the rest is refused it is not opened.
    """
    terms = AccountOpened(
        account_id=account_id,
        tenant_id=tenant_id,
        subscriber_id=None,
        kind=kind,
        title=title,
        currency=currency,
        overdraft_nanos=None,
        at=now,
    )

    def decide(account: Account | None) -> Sequence[Event]:
        return accounts.open_account(None, terms) if account is None else []

    return Part(Account, account_id, decide, by.step(f"open:{kind}:{title}:{currency}"))


def open_tenant_accounts(
    store: EventStore,
    *,
    tenant_id: TenantId,
    title: str,
    currency: str,
    is_platform: bool,
    by: Meta,
    now: datetime,
) -> Position:
    """Open what every tenant has: earnings; and for the platform fees, cash and burst as well.

    Returns: the store position of the last one.
    """
    kinds: list[tuple[AccountKind, AccountId]] = [
        ("earnings", account_ids.earnings_account(tenant_id, currency))
    ]
    if is_platform:
        kinds += [
            ("fees", account_ids.fee_account(tenant_id, currency)),
            ("cash", account_ids.cash_account(tenant_id, currency)),
            ("burst", account_ids.burst_account(tenant_id, currency)),
        ]
    position = Position(0)
    for kind, account_id in kinds:
        position = open_account(
            store,
            account_id=account_id,
            tenant_id=tenant_id,
            subscriber_id=None,
            kind=kind,
            title=f"{title}: {kind}",
            currency=currency,
            overdraft_nanos=None,
            by=by,
            now=now,
        )
    return position


def add_funds(
    store: EventStore,
    *,
    account_id: AccountId,
    entry_id: EntryId,
    money: Money,
    reference: str,
    platform_id: TenantId,
    by: Meta,
    now: datetime,
) -> Position:
    """Add money to an account, once per `entry_id`.

    reference: what a person can look it up by: a payment, a transfer, a decision.

    Returns: the store position at which it is there.
    Raises: AccountUnknown, AccountCannotPay, CurrencyMismatch, AmountNotPositive,
        AmountTooLarge, EntryRecordedOtherwise.
    """
    cash = account_ids.cash_account(platform_id, money.currency)

    def decide(account: Account) -> Sequence[Event]:
        return account.add_funds(
            entry_id=entry_id, money=money, reference=reference, cash=cash, now=now
        )

    asked = f"fund:{entry_id}:{money}:{reference}"
    return _record(store, account_id, decide, by=by.step(asked))


def set_budget(
    store: EventStore,
    *,
    account_id: AccountId,
    overdraft_nanos: int | None,
    may_raise: bool,
    by: Meta,
    now: datetime,
) -> Position:
    """Set how far an account's available may fall below zero; None: without limit.

    may_raise: whoever asks may let it go further than before.
    Raises: AccountUnknown, AccountCannotPay, PrepaidUnlimited, OverdraftNegative, AmountTooLarge,
        BudgetRaisedByPlatformOnly, BudgetBelowUse.
    """

    def decide(account: Account) -> Sequence[Event]:
        return account.set_budget(overdraft_nanos=overdraft_nanos, may_raise=may_raise, now=now)

    return _record(store, account_id, decide, by=by.step(f"budget:{overdraft_nanos}"))


def credit_payment(
    store: EventStore,
    *,
    account_id: AccountId,
    money: Money,
    reference: str,
    platform_id: TenantId,
    by: Meta,
    now: datetime,
) -> tuple[EntryId, Position]:
    """Credit a payment that came in outside the system, once for its `reference`.

    Returns: its entry, and the store position at which it is there.
    Raises: PaymentUnnamed, PaymentRecorded, and what `add_funds` raises.
    """
    cash = account_ids.cash_account(platform_id, money.currency)

    def decide(account: Account) -> Sequence[Event]:
        return credit(account, money=money, reference=reference, cash=cash, now=now)

    position = _record(store, account_id, decide, by=by.step(f"pay:{money}:{reference}"))
    return payment_entry(account_id, reference), position


def place_hold(
    store: EventStore,
    *,
    account_id: AccountId,
    hold_id: HoldId,
    money: Money,
    purpose: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Set money aside, if the account has it available.

    purpose: what for, such as `bid:<bid id>`.

    Returns: the store position at which it is held.
    Raises: AccountUnknown, AccountCannotPay, CurrencyMismatch, AmountNotPositive,
        AmountTooLarge, HoldPlacedOtherwise, FundsInsufficient.
    """
    part = placing_hold(
        account_id=account_id, hold_id=hold_id, money=money, purpose=purpose, by=by, now=now
    )
    return record_together(store, [replace(part, need=None)])[0]


def placing_hold(
    *,
    account_id: AccountId,
    hold_id: HoldId,
    money: Money,
    purpose: str,
    by: Meta,
    now: datetime,
) -> Part:
    """Return `place_hold` as a part of something that needs the money.

    So a request that comes again after its hold was released is refused: HoldClosed.
    """

    def decide(account: Account) -> Sequence[Event]:
        return account.place_hold(hold_id=hold_id, money=money, purpose=purpose, now=now)

    def need(account: Account) -> None:
        account.need_open_hold(hold_id)

    asked = f"hold:{hold_id}:{money}:{purpose}"
    return Part(Account, account_id, _if_open(account_id, decide), by.step(asked), need)


def resize_hold(
    store: EventStore,
    *,
    account_id: AccountId,
    hold_id: HoldId,
    money: Money,
    by: Meta,
    now: datetime,
) -> Position:
    """Make a hold set aside `money` in all, what was captured from it included.

    Returns: the store position at which it is so.
    Raises: AccountUnknown, HoldUnknown, HoldClosed, HoldBelowCaptured, CurrencyMismatch,
        AmountNotPositive, AmountTooLarge, FundsInsufficient (growth only).
    """

    part = resizing_hold(account_id=account_id, hold_id=hold_id, money=money, by=by, now=now)
    return record_together(store, [part])[0]


def resizing_hold(
    *, account_id: AccountId, hold_id: HoldId, money: Money, by: Meta, now: datetime
) -> Part:
    """Return `resize_hold` as a part of something larger."""

    def decide(account: Account) -> Sequence[Event]:
        return account.resize_hold(hold_id=hold_id, money=money, now=now)

    asked = f"resize:{hold_id}:{money}"
    return Part(Account, account_id, _if_open(account_id, decide), by.step(asked))


def capture_usage(
    store: EventStore,
    *,
    account_id: AccountId,
    hold_id: HoldId,
    lease_id: LeaseId,
    window: Window,
    gpu_millis: int,
    price: Rate,
    fee_ppm: int,
    owner_millis: Sequence[tuple[TenantId, int]],
    weights: Mapping[TenantId, int] | None = None,
    platform_id: TenantId,
    cost_centre: str,
    by: Meta,
    now: datetime,
    item: UsageItem = NOT_DESCRIBED,
    correction: int = 0,
    energy_mj: int | None = None,
) -> Position:
    """Charge one metered usage window of a lease to its hold, once per lease and window.

    The hold keeps the running total that is rated, so windows may come in any batching and
    order. owner_millis: each owner once; they add up to `gpu_millis`. weights: how
    the earnings are divided among them; None: by GPU-time. A window without use is
    not recorded. item: what was used, for statements and exports. correction: the number of the
    lease's correction by which more use of the window was proved; once for each number. energy_mj:
    what the cards took for it; noted, and not charged.

    Returns: the store position at which it is charged.
    Raises: AccountUnknown, HoldUnknown, UsageUnreadable, CurrencyMismatch,
        EntryRecordedOtherwise, UsageTermsChanged, UsageOverlaps, HoldExceeded, and
        FundsInsufficient where the hold was released and the account has not enough available.
    """
    usage = Usage(
        hold_id=hold_id,
        lease_id=lease_id,
        window=window,
        gpu_millis=gpu_millis,
        price=price,
        fee_ppm=fee_ppm,
        owners=tuple(
            OwnerUse(owner_id, millis, None if weights is None else weights[owner_id])
            for owner_id, millis in owner_millis
        ),
        cost_centre=cost_centre,
        item=item,
        correction=correction,
        energy_mj=energy_mj,
    )

    def decide(account: Account) -> Sequence[Event]:
        return account.capture(usage, platform_id=platform_id, now=now)

    return _record(store, account_id, decide, by=by.step(f"capture:{usage}"))


def release_hold(
    store: EventStore, *, account_id: AccountId, hold_id: HoldId, by: Meta, now: datetime
) -> Position:
    """Make what is left of a hold available again; releasing twice is releasing once.

    Returns: the store position at which it is released.
    Raises: AccountUnknown, HoldUnknown.
    """

    def decide(account: Account) -> Sequence[Event]:
        return account.release_hold(hold_id=hold_id, now=now)

    return _record(store, account_id, decide, by=by.step(f"release:{hold_id}"))


def pay_compensation(
    store: EventStore,
    *,
    account_id: AccountId,
    lease_id: LeaseId,
    owner_id: TenantId,
    money: Money,
    by: Meta,
    now: datetime,
) -> Position:
    """Pay a consumer's account what an owner owes for taking a lease's capacity back.

    Once per lease and owner. The owner's earnings may fall below zero by it.

    Returns: the store position at which it is paid.
    Raises: AccountUnknown, AccountCannotPay, CurrencyMismatch, AmountNotPositive,
        AmountTooLarge, EntryRecordedOtherwise.
    """

    def decide(account: Account) -> Sequence[Event]:
        return account.receive_compensation(
            lease_id=lease_id, owner_id=owner_id, money=money, now=now
        )

    asked = f"compensate:{lease_id}:{owner_id}:{money}"
    return _record(store, account_id, decide, by=by.step(asked))


def record_cost(
    store: EventStore,
    *,
    platform_id: TenantId,
    money: Money,
    reference: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Count what rented capacity cost the platform, once per `reference`.

    money: below zero to take back what was counted before, under another reference, and was too
    much. The platform's burst account in that currency must be open.

    Returns: the store position at which it is counted.
    Raises: AccountUnknown, AmountNotPositive, AmountTooLarge, EntryRecordedOtherwise.
    """
    cash = account_ids.cash_account(platform_id, money.currency)

    def decide(account: Account) -> Sequence[Event]:
        return cloud_costs.record_cost(
            account, money=money, reference=reference, cash=cash, now=now
        )

    burst = account_ids.burst_account(platform_id, money.currency)
    return _record(store, burst, decide, by=by.step(f"cost:{money}:{reference}"))


def _record(
    store: EventStore,
    account_id: AccountId,
    decide: Callable[[Account], Sequence[Event]],
    *,
    by: Meta,
) -> Position:
    """Record what an account that is open decides.

    `by` is narrowed to the terms asked for: one request may write to an account twice, and a
    request id used again for another amount must reach the rule that refuses it.
    """

    return record(store, Account, account_id, _if_open(account_id, decide), by=by)


def _if_open(
    account_id: AccountId, decide: Callable[[Account], Sequence[Event]]
) -> Callable[[Account | None], Sequence[Event]]:
    def on_open_account(account: Account | None) -> Sequence[Event]:
        if account is None:
            raise AccountUnknown(account_id=account_id)
        return decide(account)

    return on_open_account
