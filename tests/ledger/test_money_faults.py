"""What went wrong in systems like this one, and what is asked of ours instead.

Concurrency is real: threads, each with a connection of its own, on PostgreSQL.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID, uuid5

import pytest
from django.db import connection

from ledger import commands, queries
from ledger.domain import account_ids, accounts
from ledger.domain.events import TenantRegistered
from ledger.domain.ids import EntryId, SubscriberId, TenantId
from ledger.domain.money import Money
from ledger.domain.refusal import Refusal
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Expect, Meta, NewEvent, StreamMoved
from ledger.eventstore.postgres import PostgresStore
from ledger.following import follow_projections
from ledger.models import AccountRow
from ledger.policies import POLICIES
from ledger.projections.money import MONEY
from ledger.reacting import follow_policies
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book
from tests.ledger.busy_month import AUDITOR
from tests.ledger.ledgerbook import FUNDS, hours, usd

MILLIS = 3_600_000
JOIN_SECONDS = 60


def follow(store: MemoryStore) -> None:
    while follow_projections(store, [MONEY]):
        pass


def at_once(*asks: Callable[[], object]) -> list[BaseException | None]:
    """Run all in threads that start together; return what each raised."""
    outcomes: list[BaseException | None] = [None] * len(asks)
    ready = threading.Barrier(len(asks))

    def run(index: int, ask: Callable[[], object]) -> None:
        try:
            ready.wait(JOIN_SECONDS)
            ask()
        except (Refusal, StreamMoved) as failure:
            outcomes[index] = failure
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=each) for each in enumerate(asks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(JOIN_SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    return outcomes


@pytest.fixture
def real(committed_store: None) -> PostgresStore:
    store = PostgresStore()
    book.open_everybody(store)
    book.open_funds(store)
    book.fund(store, usd(10))
    return store


def test_holds_placed_at_once_never_use_the_same_money(real: PostgresStore) -> None:
    """I3: ten threads want four units each of ten."""
    asks = [
        lambda number=number: book.hold(real, usd(4), hold_id=book.hold_named(number))
        for number in range(10)
    ]

    outcomes = at_once(*asks)

    assert outcomes.count(None) == 2
    assert all(
        isinstance(each, accounts.FundsInsufficient | StreamMoved) for each in outcomes if each
    )
    assert book.account(real).available == usd(2)


def test_a_top_up_asked_for_at_once_and_again_is_one(real: PostgresStore) -> None:
    """akash console#3449: the same request concurrently, later, and with another amount."""
    request = Meta(actor="user:test", command_id=book.WORLD)

    def top_up(units: int) -> None:
        commands.add_funds(
            real,
            account_id=FUNDS,
            entry_id=EntryId(book.WORLD),
            money=usd(units),
            reference="wire",
            platform_id=book.PLATFORM,
            by=request,
            now=NOON,
        )

    outcomes = at_once(*[lambda: top_up(5)] * 6)

    assert outcomes == [None] * 6
    with pytest.raises(accounts.EntryRecordedOtherwise):
        top_up(6)
    assert book.account(real).total == usd(15)


def test_captures_holds_and_releases_at_once_lose_and_double_nothing(
    real: PostgresStore,
) -> None:
    """I4: the same windows by two settlers at once, while others take and give back holds."""
    book.hold(real, usd(8))
    windows = [lambda hour=hour: book.capture(real, hours(hour), 1_000_001) for hour in range(4)]
    others = [
        lambda: book.hold(real, usd(1), hold_id=book.hold_named(2)),
        lambda: book.hold(real, usd(1), hold_id=book.hold_named(3)),
    ]

    first = at_once(*windows, *windows, *others)
    while any(isinstance(each, StreamMoved) for each in first):
        first = at_once(*windows, *others)

    state = book.account(real)
    charged = book.PRICE.charge(4_000_004)
    assert state.total == usd(10) - charged
    assert state.available == usd(0)
    assert sum(book.totals(real).values()) == 0


FINAL = ("final", "late", "release", "final")


@pytest.mark.parametrize("order", sorted(set(itertools.permutations(FINAL))))
def test_final_use_late_use_and_the_end_in_every_order_cost_the_same(
    store: MemoryStore, order: tuple[str, ...]
) -> None:
    """yagna#2970, #982: the last chunk was paid twice, a hold was spent twice."""
    book.open_funds(store)
    book.fund(store, usd(100))
    book.hold(store, usd(30))
    steps = {
        "final": lambda: book.capture(store, hours(1), 1_234_567),
        "late": lambda: book.capture(store, hours(0), 2_345_679),
        "release": lambda: book.release(store),
    }

    for step in order:
        steps[step]()

    charged = book.PRICE.charge(1_234_567 + 2_345_679)
    state = book.account(store)
    assert (state.total, state.held) == (usd(100) - charged, usd(0))
    assert book.totals(store)[account_ids.fee_account(book.PLATFORM, "USD")] == (
        charged.share(book.FEE_PPM).nanos
    )


def test_an_empty_hold_stops_its_lease_and_no_other(store: MemoryStore) -> None:
    """akash support#368: an empty escrow closed everything and went below zero."""
    book.open_funds(store)
    book.fund(store, usd(10))
    book.hold(store, book.PRICE.charge(MILLIS))
    book.hold(store, usd(5), hold_id=book.hold_named(2))
    book.capture(store, hours(0), MILLIS)

    with pytest.raises(Refusal):
        book.capture(store, hours(1), MILLIS)
    book.capture(store, hours(1), MILLIS, hold_id=book.hold_named(2), lease_id=book.lease_named(2))
    book.resize(store, book.PRICE.charge(2 * MILLIS))
    book.capture(store, hours(1), MILLIS)

    assert book.account(store).available.nanos > 0


def test_one_charge_that_is_refused_leaves_the_others_alone(store: MemoryStore) -> None:
    """akash support#114, yagna#3126: one lease that cannot settle does not stop the rest."""
    book.open_funds(store)
    book.fund(store, usd(10))
    for number in range(3):
        book.hold(store, usd(2), hold_id=book.hold_named(number))

    refused = 0
    for number in range(3):
        millis = 10 * MILLIS if number == 1 else MILLIS
        try:
            book.capture(
                store,
                hours(0),
                millis,
                hold_id=book.hold_named(number),
                lease_id=book.lease_named(number),
            )
        except Refusal:
            refused += 1

    assert refused == 1
    assert book.account(store).total.nanos == usd(10).nanos - 2 * book.PRICE.charge(MILLIS).nanos


def test_nothing_is_given_back_that_was_never_taken(store: MemoryStore) -> None:
    """lago-api#3703: voiding a failed payment credited a wallet that was never debited."""
    book.open_funds(store)
    book.fund(store, usd(1))
    book.hold(store, usd(1))

    book.release(store)
    book.release(store)

    assert book.account(store).total == usd(1)
    assert len(book.entries(store)) == 1


def low_accounts(now: datetime) -> list[UUID]:
    return [row.pk for row in queries.running_low(AUDITOR, now=now)]


@pytest.mark.django_db
def test_running_low_looks_at_what_is_available(store: MemoryStore) -> None:
    """akash console#2868: the warning looked at the total, which holds had used up."""
    book.open_funds(store)
    book.fund(store, usd(100))
    book.hold(store, usd(10))
    book.capture(store, hours(0), MILLIS)
    follow(store)
    charged = book.PRICE.charge(MILLIS)
    assert low_accounts(NOON + timedelta(hours=2)) == []

    spare = AccountRow.objects.get(pk=FUNDS).available_nanos - charged.nanos
    book.hold(store, Money(spare), hold_id=book.hold_named("more"))
    follow(store)
    assert low_accounts(NOON + timedelta(hours=2)) == [], "it covers as much again"

    book.hold(store, Money(1), hold_id=book.hold_named("a nano more"))
    follow(store)
    assert low_accounts(NOON + timedelta(hours=2)) == [FUNDS]
    assert low_accounts(NOON + timedelta(days=2)) == [], "nothing was charged to it for a day"


@pytest.mark.django_db
def test_an_account_that_nothing_is_charged_to_or_has_no_limit_never_runs_low(
    store: MemoryStore,
) -> None:
    book.open_funds(store)
    follow(store)
    assert low_accounts(NOON) == []


@pytest.mark.django_db
def test_a_hold_without_its_bid_is_found_and_can_be_released(store: MemoryStore) -> None:
    book.open_funds(store)
    book.fund(store, usd(100))
    old, used, new = (book.hold_named(name) for name in ("old", "used", "new"))
    book.hold(store, usd(1), hold_id=old, purpose="bid:old")
    book.hold(store, usd(9), hold_id=used, purpose="bid:used")
    book.capture(store, hours(0), MILLIS, hold_id=used)
    book.hold(store, usd(1), hold_id=new, purpose="bid:new", now=NOON + timedelta(minutes=9))
    book.hold(store, usd(1), hold_id=book.hold_named("other"), purpose="deposit")
    follow(store)

    stray = queries.stray_holds(older_than=NOON + timedelta(minutes=5))

    assert [each.purpose for each in stray] == ["bid:old"]
    commands.release_hold(
        store,
        account_id=stray[0].account_id,
        hold_id=stray[0].hold_id,
        by=SOMEBODY,
        now=NOON,
    )
    follow(store)
    assert queries.stray_holds(older_than=NOON + timedelta(minutes=5)) == []


@pytest.mark.django_db
@pytest.mark.parametrize("is_platform", [False, True])
def test_a_new_tenant_has_its_accounts_however_often_it_is_told(
    store: MemoryStore, is_platform: bool
) -> None:
    tenant_id = TenantId(uuid5(book.WORLD, "new"))
    registered = TenantRegistered(
        tenant_id=tenant_id,
        slug="new",
        title="New",
        currency="EUR",
        is_platform=is_platform,
        at=NOON,
    )
    fresh = NewEvent(SubscriberId(book.WORLD), registered)
    store.append(f"tenant-{tenant_id}", [fresh], expected=Expect.ANY, by=SOMEBODY)

    follow_policies(store, POLICIES)
    head = store.head()
    POLICIES[0].react(store.read_all().events[0], store)

    assert store.head() == head == (5 if is_platform else 2)
    earnings = account_ids.earnings_account(tenant_id, "EUR")
    assert book.account(store, earnings).opened.kind == "earnings"
