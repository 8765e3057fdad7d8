"""A small world with money in it: a platform, two owners, a business unit that pays."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from uuid import UUID, uuid5

from ledger import commands
from ledger.domain import account_ids
from ledger.domain.accounts import Account
from ledger.domain.events import AccountKind
from ledger.domain.ids import AccountId, EntryId, HoldId, LeaseId, SubscriberId, TenantId
from ledger.domain.journal import ENTRY_KINDS, EntryEvent
from ledger.domain.money import NANOS_PER_UNIT, Money, Rate
from ledger.domain.span import Window
from ledger.domain.usage_items import UsageItem
from ledger.eventstore.port import EventStore, Position, load
from tests.conftest import NOON, SOMEBODY

WORLD = UUID("6f66667065616b2d6c65646765722d31")
PLATFORM = TenantId(uuid5(WORLD, "platform"))
OWNER = TenantId(uuid5(WORLD, "owner"))
OTHER_OWNER = TenantId(uuid5(WORLD, "other owner"))
CONSUMER = TenantId(uuid5(WORLD, "consumer"))
UNIT = SubscriberId(uuid5(WORLD, "unit"))
FUNDS = account_ids.funds_account(UNIT, "USD")
HOLD = HoldId(uuid5(WORLD, "hold"))
LEASE = LeaseId(uuid5(WORLD, "lease"))
PRICE = Rate(1_730_000_001)
HOUR = timedelta(hours=1)
FEE_PPM = 80_000
H100 = UsageItem(
    sku="H100-80G", region="campus-b", service_class="on-demand", list_price=Rate(2_100_000_000)
)


def usd(units: float | int) -> Money:
    return Money(int(units * NANOS_PER_UNIT))


def hours(first: int, last: int | None = None) -> Window:
    """Return the hour `first` after noon, or up to the end of hour `last`."""
    return Window(NOON + first * HOUR, NOON + ((first if last is None else last) + 1) * HOUR)


def hold_named(name: object) -> HoldId:
    return HoldId(uuid5(WORLD, f"hold {name}"))


def lease_named(name: object) -> LeaseId:
    return LeaseId(uuid5(WORLD, f"lease {name}"))


def open_funds(
    store: EventStore,
    *,
    kind: AccountKind = "prepaid",
    overdraft_nanos: int | None = 0,
    title: str = "Astro",
    unit: SubscriberId = UNIT,
    tenant: TenantId = CONSUMER,
    currency: str = "USD",
) -> AccountId:
    account_id = account_ids.funds_account(unit, currency)
    commands.open_account(
        store,
        account_id=account_id,
        tenant_id=tenant,
        subscriber_id=unit,
        kind=kind,
        title=title,
        currency=currency,
        overdraft_nanos=overdraft_nanos,
        by=SOMEBODY,
        now=NOON,
    )
    return account_id


def open_everybody(store: EventStore, currency: str = "USD") -> None:
    """Open the accounts of the platform and both owners."""
    for tenant, title in ((PLATFORM, "Offpeak"), (OWNER, "Lab"), (OTHER_OWNER, "Render farm")):
        commands.open_tenant_accounts(
            store,
            tenant_id=tenant,
            title=title,
            currency=currency,
            is_platform=tenant == PLATFORM,
            by=SOMEBODY,
            now=NOON,
        )


def fund(
    store: EventStore,
    money: Money,
    *,
    account: AccountId = FUNDS,
    entry: str = "top-up",
    reference: str = "invoice 7",
    now: datetime = NOON,
) -> Position:
    return commands.add_funds(
        store,
        account_id=account,
        entry_id=EntryId(uuid5(account, entry)),
        money=money,
        reference=reference,
        platform_id=PLATFORM,
        by=SOMEBODY,
        now=now,
    )


def hold(
    store: EventStore,
    money: Money,
    *,
    account: AccountId = FUNDS,
    hold_id: HoldId = HOLD,
    purpose: str = "bid:1",
    now: datetime = NOON,
) -> Position:
    return commands.place_hold(
        store,
        account_id=account,
        hold_id=hold_id,
        money=money,
        purpose=purpose,
        by=SOMEBODY,
        now=now,
    )


def resize(
    store: EventStore, money: Money, *, account: AccountId = FUNDS, hold_id: HoldId = HOLD
) -> Position:
    return commands.resize_hold(
        store, account_id=account, hold_id=hold_id, money=money, by=SOMEBODY, now=NOON
    )


def release(store: EventStore, *, account: AccountId = FUNDS, hold_id: HoldId = HOLD) -> Position:
    return commands.release_hold(store, account_id=account, hold_id=hold_id, by=SOMEBODY, now=NOON)


def capture(
    store: EventStore,
    window: Window,
    gpu_millis: int,
    *,
    account: AccountId = FUNDS,
    hold_id: HoldId = HOLD,
    lease_id: LeaseId = LEASE,
    price: Rate = PRICE,
    fee_ppm: int = FEE_PPM,
    owners: tuple[tuple[TenantId, int], ...] | None = None,
    cost_centre: str = "CC-1001",
    item: UsageItem = H100,
) -> Position:
    return commands.capture_usage(
        store,
        account_id=account,
        hold_id=hold_id,
        lease_id=lease_id,
        window=window,
        gpu_millis=gpu_millis,
        price=price,
        fee_ppm=fee_ppm,
        owner_millis=owners if owners is not None else ((OWNER, gpu_millis),),
        platform_id=PLATFORM,
        cost_centre=cost_centre,
        item=item,
        by=SOMEBODY,
        now=window.ends_at,
    )


def account(store: EventStore, account_id: AccountId = FUNDS) -> Account:
    state = load(store, Account, account_id)
    assert state is not None
    return state


def entries(store: EventStore) -> list[EntryEvent]:
    """Return every journal entry of the store, oldest first."""
    found = store.read_all(limit=1_000_000).events
    return [recorded.event for recorded in found if isinstance(recorded.event, ENTRY_KINDS)]


def totals(store: EventStore) -> Counter[AccountId]:
    """Return each account's total, from nothing but the postings of all entries."""
    summed: Counter[AccountId] = Counter()
    for entry in entries(store):
        for posting in entry.postings:
            summed[posting.account_id] += posting.nanos
    return summed
