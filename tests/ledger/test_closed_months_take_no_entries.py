"""What is recorded of a closed month counts in the next one, as a correction; all else stays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, connection, transaction

from ledger import closing, exports
from ledger.commands import closing as commands
from ledger.domain.closing import Check
from ledger.domain.ids import UserId
from ledger.domain.periods import Period
from ledger.domain.span import Window
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Position
from ledger.following import follow_projections
from ledger.models import Checkpoint, DebtRow, JournalEntryRow, PeriodRow, PostingRow
from ledger.projections.exports import EXPORTS
from ledger.projections.invoices import INVOICES
from ledger.projections.money import MONEY
from ledger.rebuilding import fingerprint, rebuild
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book
from tests.ledger.busy_month import AUDITOR
from tests.ledger.exported import rows_of
from tests.ledger.ledgerbook import hours, usd

pytestmark = pytest.mark.django_db
JOAN, OSCAR = UserId(uuid4()), UserId(uuid4())
MONTH = Period.of(NOON)
LATER = MONTH.window.ends_at + timedelta(days=3)
MET = Check(name="trial-balance", title="Trial balance", passed=True, words="")
MILLIS = 3_600_000


def follow(store: MemoryStore) -> None:
    while follow_projections(store, [MONEY, INVOICES, EXPORTS]):
        pass
    assert Checkpoint.objects.get(name=MONEY.name).error == ""


def close(store: MemoryStore, period: Period = MONTH, now: datetime = LATER) -> Position:
    commands.soft_close_period(store, period, user_id=JOAN, by=SOMEBODY, now=now)
    return commands.close_period(store, period, checks=[MET], user_id=JOAN, by=SOMEBODY, now=now)


def reopen(store: MemoryStore, period: Period = MONTH) -> None:
    commands.ask_to_reopen_period(
        store, period, reason="wrong rate", user_id=JOAN, by=SOMEBODY, now=LATER
    )
    commands.approve_reopening(store, period, user_id=OSCAR, by=SOMEBODY, now=LATER)


@pytest.fixture
def books(store: MemoryStore) -> MemoryStore:
    """Return a month in which an hour was charged."""
    book.open_everybody(store)
    book.open_funds(store)
    book.fund(store, usd(100))
    book.hold(store, usd(30))
    book.capture(store, hours(0), MILLIS)
    return store


def late(store: MemoryStore, hour: int = 1) -> None:
    book.capture(store, hours(hour), MILLIS)


def periods_of_use() -> list[str]:
    rows = JournalEntryRow.objects.filter(kind="usage").order_by("position")
    return list(rows.values_list("period", flat=True))


@pytest.mark.parametrize("together", [True, False])
def test_late_use_of_a_closed_month_counts_in_the_next(
    books: MemoryStore, *, together: bool
) -> None:
    """Whether its rows are written with those of what closed the month, or later."""
    if not together:
        follow(books)
    close(books)
    if not together:
        follow(books)
    late(books)
    follow(books)

    assert periods_of_use() == [str(MONTH), str(MONTH.next)]
    [entry] = JournalEntryRow.objects.filter(kind="usage", period=str(MONTH.next))
    assert entry.day == MONTH.next.window.starts_at.date()
    assert set(PostingRow.objects.filter(entry_id=entry.entry_id).values_list("period")) == {
        (str(MONTH.next),)
    }
    assert DebtRow.objects.filter(period=str(MONTH.next)).count() == 2


def test_a_month_opened_again_takes_entries_until_it_is_closed_anew(books: MemoryStore) -> None:
    close(books)
    late(books, 1)
    reopen(books)
    late(books, 2)
    close(books)
    late(books, 3)
    follow(books)

    following = str(MONTH.next)
    assert periods_of_use() == [str(MONTH), following, str(MONTH), following]
    before = fingerprint(MONEY.tables)
    rebuild(books, MONEY)
    assert fingerprint(MONEY.tables) == before


def test_an_entry_is_read_together_with_what_opened_its_month_again(books: MemoryStore) -> None:
    """The rows of both are written at once; the guard of the table must not see a closed month."""
    close(books)
    follow(books)
    reopen(books)
    late(books)
    follow(books)
    close(books)
    late(books, 2)
    follow(books)

    assert periods_of_use() == [str(MONTH), str(MONTH), str(MONTH.next)]


def test_a_month_closed_with_a_later_one_stays_closed_until_two_people_open_it(
    books: MemoryStore,
) -> None:
    """It had no row of its own; asking to open it made one that said it was open."""
    follow(books)
    close(books, MONTH.next, MONTH.next.window.ends_at)
    commands.ask_to_reopen_period(
        books, MONTH, reason="wrong rate", user_id=JOAN, by=SOMEBODY, now=LATER
    )
    follow(books)
    assert PeriodRow.objects.get(period=str(MONTH)).state == "closed"
    late(books)
    follow(books)

    commands.approve_reopening(books, MONTH, user_id=OSCAR, by=SOMEBODY, now=LATER)
    late(books, 2)
    follow(books)

    assert periods_of_use() == [str(MONTH), str(MONTH.next.next), str(MONTH)]
    before = fingerprint(MONEY.tables)
    rebuild(books, MONEY)
    assert fingerprint(MONEY.tables) == before


def test_what_belongs_to_a_month_long_before_counts_after_all_closed_ones(
    books: MemoryStore,
) -> None:
    follow(books)
    close(books, MONTH.next, MONTH.next.window.ends_at)
    late(books)
    follow(books)

    assert periods_of_use() == [str(MONTH), str(MONTH.next.next)]


def test_a_closed_month_is_exported_as_it_was(books: MemoryStore) -> None:
    position = close(books)
    follow(books)
    before = {name: _written(name, MONTH, position) for name in exports.FORMATS}
    assert closing.freeze_closed(books, now=LATER) == 1
    late(books)
    follow(books)

    head = books.head()
    assert {name: _written(name, MONTH, head) for name in ("focus", "beancount")} == {
        name: before[name] for name in ("focus", "beancount")
    }
    assert closing.freeze_closed(books, now=LATER) == 0
    row = PeriodRow.objects.get(period=str(MONTH))
    assert [each["format"] for each in row.exports] == list(exports.FORMATS)
    assert {each["position"] for each in row.exports} == {position}
    assert closing.exports_that_differ() == []


def test_exports_are_frozen_only_when_the_rows_are_there(books: MemoryStore) -> None:
    follow(books)
    close(books)

    assert closing.freeze_closed(books, now=LATER) == 0
    follow(books)
    assert closing.freeze_closed(books, now=LATER) == 1


def test_a_change_in_a_closed_month_is_found(books: MemoryStore) -> None:
    close(books)
    follow(books)
    closing.freeze_closed(books, now=LATER)
    follow(books)

    JournalEntryRow.objects.filter(kind="usage").update(reference="A100-80G")

    assert set(closing.exports_that_differ()) == {
        f"{MONTH}: {name} is not what it was" for name in ("beancount", "hledger", "xlsx")
    }


def test_late_use_is_a_correction_in_focus_and_others_are_none(books: MemoryStore) -> None:
    close(books)
    late(books)
    next_month = Window(MONTH.next.window.starts_at, MONTH.next.window.starts_at + book.HOUR)
    book.capture(books, next_month, MILLIS)
    follow(books)

    rows = rows_of(_written("focus", MONTH.next, books.head()).decode())
    used = [row for row in rows if row["ChargeCategory"] == "Usage"]
    assert [row["ChargeClass"] for row in used] == ["Correction", ""]
    assert used[0]["ChargePeriodStart"] < used[0]["BillingPeriodStart"]


INSERT = (
    "INSERT INTO ledger_journalentryrow (entry_id, position, period, day, kind, account_id,"
    " lease_id, cost_centre, reference, currency, account_ids, nanos, at)"
    " VALUES (%s, %s, %s, '2026-01-01', 'cost', %s, NULL, '', '', 'USD', '{}', '{}', %s)"
)


@pytest.mark.parametrize("rebuilt", [False, True])
@pytest.mark.parametrize(
    ("period", "after", "refused"),
    [
        (MONTH, 1, True),
        (MONTH, -1, False),
        (MONTH.next, 1, False),
        (Period(2020, 1), 1, True),
    ],
)
def test_the_database_refuses_an_entry_of_a_closed_month(
    books: MemoryStore, period: Period, after: int, *, refused: bool, rebuilt: bool
) -> None:
    position = close(books)
    follow(books)
    if rebuilt:
        rebuild(books, MONEY)

    def insert() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            account: UUID = uuid4()
            at = datetime(2026, 1, 1, tzinfo=UTC)
            # What was recorded before another event has its place before it, too.
            place = position * 1000 if after > 0 else -1
            cursor.execute(INSERT, [uuid4(), place, str(period), account, at])

    if refused:
        with pytest.raises(IntegrityError, match="which is closed"):
            insert()
    else:
        insert()


def _written(name: str, period: Period, position: Position) -> bytes:
    return b"".join(exports.export(AUDITOR, name, period=period, position=position))
