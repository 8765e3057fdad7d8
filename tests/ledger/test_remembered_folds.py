"""A remembered fold saves work and never changes an answer, also when a transaction is undone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

import pytest
from django.db import transaction

from ledger.commands.money import add_funds
from ledger.domain.accounts import Account
from ledger.domain.event import Event
from ledger.domain.ids import EntryId
from ledger.domain.money import Money
from ledger.eventstore import folds
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import EventStore, Meta, Position, Recorded, load, record
from ledger.eventstore.postgres import PostgresStore
from tests.conftest import NOON, SOMEBODY
from tests.ledger.wallets import ACCOUNT, PLATFORM, open_wallet


def opened(store: EventStore, *, top_ups: int) -> None:
    open_wallet(store)
    for number in range(top_ups):
        topped_up(store, number)


def topped_up(store: EventStore, number: int) -> Position:
    return add_funds(
        store,
        account_id=ACCOUNT,
        entry_id=EntryId(UUID(int=100 + number)),
        money=Money(1),
        reference=f"top-up {number}",
        platform_id=PLATFORM,
        by=Meta(actor="user:test", command_id=UUID(int=1_000 + number)),
        now=NOON,
    )


def total(store: EventStore) -> int:
    account = load(store, Account, ACCOUNT)
    assert account is not None
    return account.total.nanos


class CountingStore(MemoryStore):
    """Counts the events that were read from streams."""

    read = 0

    def read_stream(self, stream: str, *, after_version: int = 0) -> Iterator[Recorded]:
        for recorded in super().read_stream(stream, after_version=after_version):
            self.read += 1
            yield recorded


def test_a_long_stream_is_read_from_where_it_was_left() -> None:
    store = CountingStore()
    opened(store, top_ups=folds.REMEMBERED_FROM + 10)
    store.read = 0

    topped_up(store, 500)

    assert store.read <= 2
    assert total(store) == folds.REMEMBERED_FROM + 11


def test_a_request_is_known_again_however_far_back_it_lies() -> None:
    store = MemoryStore()
    opened(store, top_ups=folds.REMEMBERED_FROM + 10)
    head = store.head()

    again = topped_up(store, 3)

    assert store.head() == head
    assert again < head


def test_what_was_rolled_back_is_not_remembered(committed_store: None) -> None:
    store = PostgresStore()
    opened(store, top_ups=folds.REMEMBERED_FROM)
    before = total(store)

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        topped_up(store, 700)
        topped_up(store, 701)
        assert total(store) == before + 2
        _ = 1 // 0

    assert total(store) == before
    topped_up(store, 702)
    assert total(store) == before + 1
    # The request that was undone was never recorded, so it is done now.
    topped_up(store, 700)
    assert total(store) == before + 2


def test_another_event_at_the_version_of_one_rolled_back_is_seen(committed_store: None) -> None:
    undone, other = PostgresStore(), PostgresStore()
    opened(undone, top_ups=folds.REMEMBERED_FROM)
    before = total(undone)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        topped_up(undone, 700)
        assert total(undone) == before + 1
        _ = 1 // 0

    topped_up(other, 800)
    topped_up(other, 801)

    assert total(undone) == before + 2


def test_a_decision_that_does_nothing_answers_the_end_of_the_stream() -> None:
    store = MemoryStore()
    opened(store, top_ups=3)

    def nothing(account: Account | None) -> Sequence[Event]:
        assert account is not None
        return []

    assert record(store, Account, ACCOUNT, nothing, by=SOMEBODY) == store.head()
