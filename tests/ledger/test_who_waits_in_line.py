"""Who was overtaken on a stream takes its turn on it; whoever holds that for long is passed by."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from django.db import connection, transaction

from ledger.domain.accounts import Account
from ledger.domain.events import HoldPlaced
from ledger.domain.ids import HoldId
from ledger.domain.money import Money
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import NewEvent, load, record, stream_name
from ledger.eventstore.postgres import PostgresStore
from ledger.eventstore.together import Part, record_together
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book

pytestmark = pytest.mark.django_db(transaction=True)
STREAM = stream_name(Account, book.FUNDS)


@pytest.fixture
def store(committed_store: None) -> PostgresStore:
    made = PostgresStore()
    book.open_everybody(made)
    book.open_funds(made)
    book.fund(made, book.usd(1_000))
    return made


@pytest.fixture
def other() -> Iterator[psycopg.Connection[tuple[int]]]:
    """Another process, as the server sees it."""
    with connection.get_new_connection(connection.get_connection_params()) as opened:
        opened.autocommit = True
        yield opened


def turns(asked: psycopg.Connection[tuple[int]]) -> int:
    """Return how many turns are held at this moment, by anybody."""
    row = asked.execute(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 5122 AND granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    ).fetchone()
    assert row is not None
    return row[0]


def placed(number: int) -> HoldPlaced:
    hold_id = HoldId(book.hold_named(str(number)))
    return HoldPlaced(
        account_id=book.FUNDS, hold_id=hold_id, money=Money(number), purpose="bid", at=NOON
    )


def overtaking(
    store: PostgresStore, other: psycopg.Connection[tuple[int]], seen: list[int]
) -> Part:
    """Return a part whose rule is overtaken the first time; `seen` gets the turns at each try."""

    def decide(account: Account) -> list[HoldPlaced]:
        seen.append(turns(other))
        if len(seen) == 1:
            version = store.read_last([STREAM])[STREAM].version
            faster = NewEvent(book.hold_named("faster"), placed(7))
            store.append(STREAM, [faster], expected=version, by=SOMEBODY)
        return [placed(1)]

    return Part(Account, book.FUNDS, decide, SOMEBODY)


@pytest.mark.parametrize("together", [True, False])
def test_who_was_overtaken_has_its_turn_and_leaves_it(
    store: PostgresStore, other: psycopg.Connection[tuple[int]], together: bool
) -> None:
    seen: list[int] = []
    part = overtaking(store, other, seen)

    if together:
        record_together(store, [part])
    else:
        record(store, Account, book.FUNDS, part.decide, by=SOMEBODY)

    assert seen == [0, 1], "the first try asks for no turn"
    assert turns(other) == 0
    account = load(store, Account, book.FUNDS)
    assert account is not None and account.held == Money(8)


def test_a_turn_ends_where_what_was_done_in_it_fails(
    store: PostgresStore, other: psycopg.Connection[tuple[int]]
) -> None:
    with pytest.raises(ZeroDivisionError), store.in_line([STREAM, "account-b"]):
        assert turns(other) == 2
        raise ZeroDivisionError

    assert turns(other) == 0


def test_who_holds_a_turn_for_long_is_passed_by(
    store: PostgresStore, other: psycopg.Connection[tuple[int]]
) -> None:
    other.execute("SELECT pg_advisory_lock(5122, hashtext(%s::text))", [STREAM])

    seen: list[int] = []
    record_together(store, [overtaking(store, other, seen)])

    assert seen == [1, 1], "the other's"
    account = load(store, Account, book.FUNDS)
    assert account is not None and account.held == Money(8)


def test_neither_in_a_transaction_nor_on_another_store_is_a_turn_taken(
    store: PostgresStore, other: psycopg.Connection[tuple[int]]
) -> None:
    with transaction.atomic(), store.in_line([STREAM]):
        assert turns(other) == 0
    with MemoryStore().in_line([STREAM]):
        assert turns(other) == 0
