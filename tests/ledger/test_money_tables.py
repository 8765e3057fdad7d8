"""The tables of money equal the streams, and the database refuses what cannot be."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction

from ledger import commands
from ledger.domain import account_ids
from ledger.eventstore.memory import MemoryStore
from ledger.following import follow_projections
from ledger.models import (
    AccountRow,
    Checkpoint,
    DebtRow,
    HoldRow,
    JournalEntryRow,
    PostingRow,
    UsageChargeRow,
)
from ledger.projections.money import MONEY
from ledger.rebuilding import fingerprint, rebuild
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book
from tests.ledger.ledgerbook import FUNDS, HOLD, OTHER_OWNER, OWNER, hours, usd

pytestmark = pytest.mark.django_db
MILLIS = 3_600_000


def follow(store: MemoryStore) -> None:
    while follow_projections(store, [MONEY]):
        pass
    assert Checkpoint.objects.get(name=MONEY.name).error == ""


def lived(store: MemoryStore) -> MemoryStore:
    """Let a busy day pass: two owners, three leases, late use, a reclaim, a cloud's bill."""
    book.open_everybody(store)
    book.open_funds(store)
    book.fund(store, usd(100))
    book.hold(store, usd(30))
    for hour in (0, 2, 1):
        book.capture(
            store,
            hours(hour),
            3 * MILLIS - hour,
            owners=((OWNER, MILLIS), (OTHER_OWNER, 2 * MILLIS - hour)),
        )
    book.hold(store, usd(10), hold_id=book.hold_named(2), purpose="bid:2")
    book.resize(store, usd(8), hold_id=book.hold_named(2))
    book.release(store)
    book.capture(store, hours(3), 1)
    commands.pay_compensation(
        store,
        account_id=FUNDS,
        lease_id=book.LEASE,
        owner_id=OWNER,
        money=usd(2),
        by=SOMEBODY,
        now=NOON,
    )
    commands.record_cost(
        store, platform_id=book.PLATFORM, money=usd(4), reference="i-1", by=SOMEBODY, now=NOON
    )
    return store


def test_accounts_and_holds_stand_as_their_streams_say(store: MemoryStore) -> None:
    lived(store)

    follow(store)

    state = book.account(store)
    row = AccountRow.objects.get(pk=FUNDS)
    assert row.total_nanos == state.total.nanos
    assert row.held_nanos == state.held.nanos
    assert row.available_nanos == state.available.nanos
    held = {hold.hold_id: (hold.money_nanos, hold.state) for hold in HoldRow.objects.all()}
    assert held == {
        HOLD: (usd(30).nanos, "released"),
        book.hold_named(2): (usd(8).nanos, "placed"),
    }
    captured = HoldRow.objects.get(pk=HOLD).captured_nanos
    assert captured == state.holds[HOLD].captured.nanos


def test_every_accounts_total_is_the_sum_of_its_postings(store: MemoryStore) -> None:
    lived(store)

    follow(store)

    totals = book.totals(store)
    assert {row.pk: row.total_nanos for row in AccountRow.objects.exclude(total_nanos=0)} == {
        account_id: nanos for account_id, nanos in totals.items() if nanos
    }
    assert sum(PostingRow.objects.values_list("nanos", flat=True)) == 0


def test_debts_say_who_owes_whom_for_a_month(store: MemoryStore) -> None:
    lived(store)

    follow(store)

    charged = sum(UsageChargeRow.objects.values_list("charged_nanos", flat=True))
    owed = DebtRow.objects.filter(debtor_id=book.CONSUMER)
    assert sum(row.nanos for row in owed) == charged
    assert {row.creditor_id for row in owed} == {OWNER, OTHER_OWNER, None}
    assert DebtRow.objects.get(debtor_id=OWNER).nanos == usd(2).nanos


def test_the_tables_rebuilt_are_the_same_to_the_byte(store: MemoryStore) -> None:
    for half in range(2):
        lived(store) if half == 0 else book.fund(store, usd(1), entry="more")
        follow(store)
    live = fingerprint(MONEY.tables)

    rebuild(store, MONEY)

    assert fingerprint(MONEY.tables) == live
    assert AccountRow.objects.exists()


def test_following_event_by_event_is_the_same_as_in_one_page(store: MemoryStore) -> None:
    lived(store)
    follow(store)
    at_once = fingerprint(MONEY.tables)
    for table in MONEY.tables:
        table._base_manager.all().delete()
    Checkpoint.objects.filter(name=MONEY.name).update(position=0)

    slow = MemoryStore()
    for recorded in store.read_all(limit=1000).events:
        slow._log.append(recorded)
        follow(slow)

    assert fingerprint(MONEY.tables) == at_once


def test_an_owner_is_paid_before_its_account_is_open(store: MemoryStore) -> None:
    book.open_funds(store)
    book.fund(store, usd(100))
    book.hold(store, usd(30))
    book.capture(store, hours(0), MILLIS)
    follow(store)
    earnings = account_ids.earnings_account(OWNER, "USD")
    assert AccountRow.objects.get(pk=earnings).opened_at is None

    book.open_everybody(store)
    follow(store)

    row = AccountRow.objects.get(pk=earnings)
    assert (row.tenant_id, row.kind, row.total_nanos) == (OWNER, "earnings", 1_591_600_001)
    assert PostingRow.objects.get(account_id=earnings).tenant_id == OWNER


@pytest.mark.parametrize(
    "broken",
    [
        {"nanos": [5, -4]},
        {"nanos": [5]},
        {"nanos": []},
    ],
)
@pytest.mark.parametrize("rebuilt", [False, True])
def test_the_database_refuses_an_entry_that_does_not_balance(
    store: MemoryStore, broken: dict[str, list[int]], rebuilt: bool
) -> None:
    if rebuilt:
        rebuild(store, MONEY)
    entry = JournalEntryRow(
        entry_id=uuid4(),
        position=1,
        period="2026-01",
        day=NOON.date(),
        kind="funds",
        account_id=FUNDS,
        reference="",
        currency="USD",
        account_ids=[FUNDS, uuid4()],
        nanos=[5, -5],
        at=NOON,
    )
    entry.save(force_insert=True)

    entry.entry_id, entry.position = uuid4(), 2
    entry.nanos = broken["nanos"]

    with pytest.raises(IntegrityError, match="ledger_entry_balances"), transaction.atomic():
        entry.save(force_insert=True)


def test_the_database_refuses_an_overdrawn_account(store: MemoryStore) -> None:
    lived(store)
    follow(store)

    with pytest.raises(IntegrityError, match="ledger_account_not_overdrawn"), transaction.atomic():
        AccountRow.objects.filter(pk=FUNDS).update(total_nanos=-1, held_nanos=0, available_nanos=-1)
