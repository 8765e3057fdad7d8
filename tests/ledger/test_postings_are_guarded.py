"""The database refuses postings that do not balance, by whatever hand they come, go or change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, connection, transaction

from ledger import queries
from ledger.eventstore.memory import MemoryStore
from ledger.following import follow_projections
from ledger.models import JournalEntryRow, PostingRow
from ledger.projections.money import MONEY
from ledger.rebuilding import rebuild
from tests.conftest import NOON
from tests.ledger import ledgerbook as book
from tests.ledger.ledgerbook import hours, usd

pytestmark = pytest.mark.django_db
INSERT = (
    "INSERT INTO ledger_postingrow (line_id, entry_id, account_id, tenant_id, position, period,"
    " kind, lease_id, cost_centre, reference, currency, nanos, at)"
    " VALUES (%s, %s, %s, NULL, 99, '2026-01', 'funds', NULL, '', '', %s, %s, %s)"
)


@pytest.fixture(params=["migrated", "rebuilt"])
def books(store: MemoryStore, request: pytest.FixtureRequest) -> MemoryStore:
    book.open_everybody(store)
    book.open_funds(store)
    book.fund(store, usd(100))
    book.hold(store, usd(30))
    book.capture(store, hours(0), 3_600_000)
    while follow_projections(store, [MONEY]):
        pass
    if request.param == "rebuilt":
        rebuild(store, MONEY)
    return store


@contextmanager
def committed() -> Iterator[None]:
    """Run as a transaction that commits: what is checked then is checked at the end."""
    with transaction.atomic():
        yield
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute("SET CONSTRAINTS ALL DEFERRED")


def post(entry_id: UUID, *lines: tuple[str, int], first: int = 0) -> None:
    with connection.cursor() as cursor:
        for index, (currency, nanos) in enumerate(lines, start=first):
            cursor.execute(
                INSERT, [f"{entry_id}:{index}", entry_id, uuid4(), currency, nanos, NOON]
            )


@pytest.mark.parametrize(
    "lines",
    [
        [("USD", 5)],
        [("USD", 5), ("USD", -4)],
        [("USD", 5), ("EUR", -5)],
        [("USD", 5), ("USD", -5), ("EUR", 1)],
        [("USD", 2**62), ("USD", 2**62), ("USD", -(2**62))],
    ],
)
def test_postings_that_do_not_balance_are_refused(
    books: MemoryStore, lines: list[tuple[str, int]]
) -> None:
    with pytest.raises(IntegrityError, match="ledger_postings_balance"), committed():
        post(uuid4(), *lines)


def test_two_entries_that_balance_together_only_are_refused(books: MemoryStore) -> None:
    with pytest.raises(IntegrityError, match="ledger_postings_balance"), committed():
        post(uuid4(), ("USD", 5))
        post(uuid4(), ("USD", -5))


def test_an_entry_may_come_in_several_statements_of_one_transaction(books: MemoryStore) -> None:
    entry_id = uuid4()
    with committed():
        post(entry_id, ("USD", 5), ("EUR", 2))
        post(entry_id, ("USD", -5), ("EUR", -2), first=2)

    assert PostingRow.objects.filter(entry_id=entry_id).count() == 4
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ledger_unbalanced")
        assert cursor.fetchone() == (0,)


def test_a_posting_that_is_added_later_is_refused(books: MemoryStore) -> None:
    entry = JournalEntryRow.objects.earliest("position")
    with pytest.raises(IntegrityError, match="ledger_postings_balance"), committed():
        post(entry.entry_id, ("USD", 1), first=9)


@pytest.mark.parametrize(
    "change",
    [
        "nanos = nanos + 1",
        "nanos = -nanos",
        "currency = 'EUR'",
        "account_id = '00000000-0000-0000-0000-000000000001'",
        "entry_id = '00000000-0000-0000-0000-000000000001'",
        "period = '2025-12'",
    ],
)
@pytest.mark.parametrize("where", ["", "WHERE line_id LIKE '%%:0'"])
def test_what_was_posted_is_never_changed(books: MemoryStore, change: str, where: str) -> None:
    with (
        pytest.raises(IntegrityError, match="a posting is never changed"),
        committed(),
        connection.cursor() as cursor,
    ):
        cursor.execute(f"UPDATE ledger_postingrow SET {change} {where}".replace("%%", "%"))


def test_whose_account_it_is_may_become_known_later(books: MemoryStore) -> None:
    with committed():
        assert PostingRow.objects.update(tenant_id=uuid4()) > 0


@pytest.mark.parametrize(
    "delete",
    [
        lambda: PostingRow.objects.filter(line_id__endswith=":0").delete(),
        lambda: PostingRow.objects.all().delete(),
        lambda: PostingRow.objects.filter(
            entry_id=JournalEntryRow.objects.earliest("position").entry_id
        ).delete(),
    ],
)
def test_postings_of_an_entry_that_stands_are_never_deleted(
    books: MemoryStore, delete: Callable[[], object]
) -> None:
    with pytest.raises(IntegrityError, match="ledger_postings_balance"), committed():
        delete()

    assert queries.disagreements() == []


def test_an_entry_may_go_whole_with_its_postings(books: MemoryStore) -> None:
    with committed():
        PostingRow.objects.all().delete()
        JournalEntryRow.objects.all().delete()

    assert PostingRow.objects.count() == 0


def test_doctor_names_an_entry_whose_postings_are_off(books: MemoryStore) -> None:
    entry = JournalEntryRow.objects.earliest("position")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ledger_postingrow DISABLE TRIGGER USER")
    PostingRow.objects.filter(line_id=f"{entry.entry_id}:0").update(nanos=1)

    assert any(str(entry.entry_id) in each for each in queries.disagreements())
