"""A month in which much happens, the same each time: what exports are tried on."""

from __future__ import annotations

import random
from datetime import timedelta
from uuid import uuid5

from ledger import commands
from ledger.access import Actor
from ledger.commands.storage import charge_volume
from ledger.domain.account_ids import funds_account
from ledger.domain.event import Event
from ledger.domain.events import SubscriberRegistered, TenantRegistered
from ledger.domain.ids import SubscriberId, TenantId, UserId
from ledger.domain.money import Money, Rate
from ledger.domain.periods import Period
from ledger.domain.span import Window
from ledger.domain.storage_charges import Kept
from ledger.domain.usage_items import UsageItem
from ledger.eventstore.port import EventStore, Expect, NewEvent
from ledger.following import follow_projections
from ledger.models import Checkpoint
from ledger.projections.exports import EXPORTS
from ledger.projections.invoices import INVOICES
from ledger.projections.money import MONEY
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book

JANUARY = Period(2026, 1)
FEBRUARY = Period(2026, 2)
LEASES = 24
UNITS = {
    "Astro": ("prepaid", 0, "USD", book.CONSUMER),
    'Chem "wet"\\lab, 3': ("chargeback", None, "USD", book.CONSUMER),
    "=Render": ("chargeback", None, "EUR", TenantId(uuid5(book.WORLD, "studio"))),
}
AUDITOR = Actor(
    tenant_id=book.PLATFORM,
    user_id=UserId(book.WORLD),
    roles=frozenset({"auditor"}),
    is_platform=True,
)
FINANCE = Actor(tenant_id=book.CONSUMER, user_id=UserId(book.WORLD), roles=frozenset({"finance"}))
OWNER_FINANCE = Actor(
    tenant_id=book.OWNER, user_id=UserId(book.WORLD), roles=frozenset({"finance"})
)
ITEMS = (
    book.H100,
    UsageItem(sku="A100-40G-1g.5gb", region="campus-b", service_class="interruptible"),
    UsageItem(sku="g5.xlarge", region="eu-west-1", service_class="on-demand", provider="Cloud X"),
    UsageItem(),
)


def unit_named(title: str) -> SubscriberId:
    return SubscriberId(uuid5(book.WORLD, title))


def live_through(store: EventStore, seed: int = 7) -> EventStore:
    chance = random.Random(seed)
    for currency in ("USD", "EUR"):
        book.open_everybody(store, currency)
    _register(store)
    for title, (kind, overdraft, currency, tenant) in UNITS.items():
        account = book.open_funds(
            store,
            unit=unit_named(title),
            tenant=tenant,
            kind=kind,  # type: ignore[arg-type]
            overdraft_nanos=overdraft,
            title=f"{title}: funds",
            currency=currency,
        )
        for top_up in range(2):
            money = Money(chance.randrange(10**12, 10**13), currency)
            book.fund(store, money, account=account, entry=str(top_up), reference=f"wire {top_up}")
    for number in range(LEASES):
        _lease(store, number, chance)
    for title in UNITS:
        _store(store, title, chance)
    commands.record_cost(
        store,
        platform_id=book.PLATFORM,
        money=book.usd(4.25),
        reference="Cloud X i-1",
        by=SOMEBODY,
        now=NOON,
    )
    return store


def _register(store: EventStore) -> None:
    tenants = {tenant for *_, tenant in UNITS.values()}
    events: list[Event] = [
        TenantRegistered(
            tenant_id=tenant,
            slug=f"t-{index}",
            title=f"Institute {index}",
            currency="USD",
            is_platform=False,
            at=NOON,
        )
        for index, tenant in enumerate(sorted(tenants))
    ]
    events += [
        SubscriberRegistered(
            tenant_id=tenant,
            subscriber_id=unit_named(title),
            title=title,
            cost_centre="CC",
            at=NOON,
        )
        for title, (*_, tenant) in UNITS.items()
    ]
    for index, event in enumerate(events):
        fresh = NewEvent(uuid5(book.WORLD, f"register {index}"), event)
        store.append("tenant-all", [fresh], expected=Expect.ANY, by=SOMEBODY)


def _lease(store: EventStore, number: int, chance: random.Random) -> None:
    title = chance.choice(sorted(UNITS))
    currency = UNITS[title][2]
    account = funds_account(unit_named(title), currency)
    hold_id, lease_id = book.hold_named(number), book.lease_named(number)
    price = Rate(chance.randrange(3_000_000_000), currency)
    book.hold(store, Money(150 * 10**9, currency), account=account, hold_id=hold_id)
    start = NOON + timedelta(hours=number, milliseconds=chance.randrange(3_600_000))
    if number == 0:
        start = FEBRUARY.window.starts_at - timedelta(hours=1, minutes=30)
    item = chance.choice(ITEMS)
    if item.list_price is not None:
        item = UsageItem(sku=item.sku, list_price=Rate(price.nanos_per_gpu_hour + 1, currency))
    for _ in range(chance.randrange(1, 5) if number else 3):
        end = start.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        millis = (end - start) // timedelta(milliseconds=1)
        first, second = millis, chance.randrange(millis)
        book.capture(
            store,
            Window(start, end),
            first + second,
            account=account,
            hold_id=hold_id,
            lease_id=lease_id,
            price=price,
            owners=((book.OWNER, first), (book.OTHER_OWNER, second)),
            cost_centre=chance.choice(("CC-1", "CC-2", "Ärzte \u2212 3")),
            item=item,
        )
        start = end
    if number % 3 == 0:
        book.release(store, account=account, hold_id=hold_id)
    if number % 5 == 0:
        commands.pay_compensation(
            store,
            account_id=account,
            lease_id=lease_id,
            owner_id=book.OWNER,
            money=Money(1_234_567_891, currency),
            by=SOMEBODY,
            now=NOON,
        )


def _store(store: EventStore, title: str, chance: random.Random) -> None:
    """Charge a volume for three days, in odd sizes."""
    currency = UNITS[title][2]
    pieces = [
        Kept(
            volume_id=uuid5(book.WORLD, f"volume {title}"),
            title="volume data",
            window=Window(NOON + timedelta(days=day), NOON + timedelta(days=day + 1)),
            byte_seconds=chance.randrange(10**12, 10**16),
            nanos_per_gib_month=49_999_999,
            currency=currency,
            cost_centre="CC-1",
        )
        for day in range(3)
    ]
    charge_volume(
        store,
        account_id=funds_account(unit_named(title), currency),
        pieces=pieces,
        platform_id=book.PLATFORM,
        by=SOMEBODY,
        now=NOON + timedelta(days=4),
    )


def follow(store: EventStore) -> None:
    """Bring the tables of money up to the store's head."""
    while follow_projections(store, [MONEY, INVOICES, EXPORTS]):
        pass
    assert not Checkpoint.objects.exclude(error="").exists()
