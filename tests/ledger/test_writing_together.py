"""Several rules asked and written as one; and many threads that set money aside at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar
from uuid import UUID, uuid4

import pytest
from django.db import connection

from ledger.commands.money import add_funds, place_hold, placing_hold, release_hold
from ledger.domain.accounts import Account, FundsInsufficient
from ledger.domain.event import Event
from ledger.domain.events import TenantRegistered
from ledger.domain.holds import HoldClosed
from ledger.domain.ids import EntryId, HoldId
from ledger.domain.money import Money
from ledger.domain.refusal import Refusal
from ledger.eventstore import folds
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Appended, EventStore, Meta, StreamMoved, Write, load
from ledger.eventstore.postgres import PostgresStore
from ledger.eventstore.together import Part, record_each, record_together
from tests.conftest import NOON, SOMEBODY
from tests.ledger.wallets import ACCOUNT, PLATFORM, open_wallet


@dataclass(frozen=True)
class Kept:
    """Counts what happened to it."""

    STREAM: ClassVar[str] = "kept"
    events: int = 0

    @classmethod
    def evolve(cls, state: Kept | None, event: Event, /) -> Kept:
        return Kept((state or cls()).events + 1)


class Overtaken(MemoryStore):
    """Another writer comes first, once, on the stream named."""

    stream = ""

    def append_each(self, writes: Sequence[Write]) -> list[Appended]:
        stream, self.stream = self.stream, ""
        for write in writes:
            if write.stream == stream:
                fresh = [replace(new, id=uuid4()) for new in write.events]
                self.append(stream, fresh, expected=write.expected, by=SOMEBODY)
        return super().append_each(writes)


def happened() -> TenantRegistered:
    return TenantRegistered(
        tenant_id=PLATFORM, slug="a", title="A", currency="USD", is_platform=False, at=NOON
    )


def funded(store: EventStore, money: int) -> None:
    open_wallet(store)
    add_funds(
        store,
        account_id=ACCOUNT,
        entry_id=EntryId(uuid4()),
        money=Money(money),
        reference="top-up",
        platform_id=PLATFORM,
        by=SOMEBODY,
        now=NOON,
    )


@pytest.mark.parametrize("overtaken", ["kept-1", "kept-2", "kept-3"])
def test_who_is_overtaken_asks_again_and_writes_once(overtaken: str) -> None:
    store, asked = Overtaken(), list[tuple[str, int]]()
    store.stream = overtaken

    def part(key: str) -> Part:
        def decide(state: Kept | None) -> list[Event]:
            asked.append((key, state.events if state else 0))
            return [happened()]

        return Part(Kept, key, decide, Meta(actor="user:a", command_id=UUID(int=9)))

    positions = record_together(store, [part(key) for key in "123"])

    sizes = {key: len(list(store.read_stream(f"kept-{key}"))) for key in "123"}
    assert sizes == {key: 2 if overtaken == f"kept-{key}" else 1 for key in "123"}
    assert len(set(positions)) == 3
    assert (overtaken[-1], 1) in asked


def test_a_refusal_of_one_leaves_nothing_of_the_others() -> None:
    store = MemoryStore()
    funded(store, 5)
    head = store.head()
    too_much = placing_hold(
        account_id=ACCOUNT,
        hold_id=HoldId(uuid4()),
        money=Money(6),
        purpose="bid",
        by=SOMEBODY,
        now=NOON,
    )

    with pytest.raises(FundsInsufficient):
        record_together(store, [Part(Kept, 1, lambda _: [happened()], SOMEBODY), too_much])

    assert store.head() == head


def test_what_needs_a_hold_is_not_written_for_one_that_was_released() -> None:
    store, hold_id = MemoryStore(), HoldId(uuid4())
    funded(store, 5)
    by = Meta(actor="user:a", command_id=uuid4())
    hold = placing_hold(
        account_id=ACCOUNT, hold_id=hold_id, money=Money(2), purpose="bid", by=by, now=NOON
    )
    record_together(store, [hold])
    release_hold(store, account_id=ACCOUNT, hold_id=hold_id, by=SOMEBODY, now=NOON)

    with pytest.raises(HoldClosed):
        record_together(store, [hold, Part(Kept, 1, lambda _: [happened()], by)])

    assert load(store, Kept, 1) is None


def holding(money: int, hold_id: HoldId | None = None, by: Meta = SOMEBODY) -> Part:
    return placing_hold(
        account_id=ACCOUNT,
        hold_id=hold_id or HoldId(uuid4()),
        money=Money(money),
        purpose="bid",
        by=by,
        now=NOON,
    )


@pytest.mark.parametrize("remembered", [False, True])
def test_of_many_asked_at_once_only_those_that_cannot_be_are_refused(remembered: bool) -> None:
    store = MemoryStore()
    funded(store, 5)
    for _ in range(folds.REMEMBERED_FROM if remembered else 0):
        hold(store, Money(0))
    kept = [Part(Kept, key, lambda _: [happened()], SOMEBODY) for key in range(4)]

    outcomes = record_each(
        store, [[holding(money), kept[key]] for key, money in enumerate((3, 3, 2, 1))]
    )

    assert [isinstance(each, FundsInsufficient) for each in outcomes] == [False, True, False, True]
    assert [load(store, Kept, key) for key in range(4)] == [Kept(1), None, Kept(1), None]
    account = load(store, Account, ACCOUNT)
    assert account is not None
    assert account.available == Money(0)
    positions = [each for each in outcomes if not isinstance(each, Refusal)]
    assert [pair[0] + 1 for pair in positions] == [pair[1] for pair in positions]
    assert positions[0] < positions[1]


def test_what_is_asked_twice_at_once_is_written_once() -> None:
    store, hold_id = MemoryStore(), HoldId(uuid4())
    funded(store, 5)
    first, other = (Meta(actor="user:a", command_id=uuid4()) for _ in range(2))

    outcomes = record_each(
        store,
        [[holding(2, hold_id, first)], [holding(2, hold_id, first)], [holding(2, hold_id, other)]],
    )

    assert outcomes[0] == outcomes[1] == outcomes[2] == [store.head()]


def test_what_was_decided_on_and_not_written_is_not_remembered() -> None:
    store = Overtaken()
    funded(store, 5)
    for _ in range(folds.REMEMBERED_FROM):
        hold(store, Money(0))
    store.stream = "kept-2"

    outcomes = record_each(
        store,
        [
            [holding(2), Part(Kept, 1, lambda _: [happened()], SOMEBODY)],
            [Part(Kept, 2, lambda state: [happened()], SOMEBODY), holding(3)],
        ],
    )

    assert not any(isinstance(each, Refusal) for each in outcomes)
    account, fresh = load(store, Account, ACCOUNT), Account.evolve
    again: Account | None = None
    for recorded in store.read_stream(f"account-{ACCOUNT}"):
        again = fresh(again, recorded.event)  # type: ignore[arg-type]
    assert account == again
    assert account is not None
    assert account.available == Money(0)


def test_threads_that_share_a_remembered_account_never_spend_the_same_money(
    committed_store: None,
) -> None:
    store, each, threads = PostgresStore(), 40, 4
    funded(store, each * threads - 1)
    for _ in range(folds.REMEMBERED_FROM):
        hold(store, Money(0))
    refused: list[FundsInsufficient] = []

    def spend() -> None:
        done = 0
        while done < each:
            try:
                hold(store, Money(1))
            except StreamMoved:
                continue  # the others were faster each time
            except FundsInsufficient as refusal:
                refused.append(refusal)
            done += 1
        connection.close()

    working = [threading.Thread(target=spend) for _ in range(threads)]
    for thread in working:
        thread.start()
    for thread in working:
        thread.join()

    account, fresh = load(store, Account, ACCOUNT), load(PostgresStore(), Account, ACCOUNT)
    assert account is not None
    assert fresh is not None
    assert len(refused) == 1
    assert account.available == fresh.available == Money(0)


def hold(store: EventStore, money: Money) -> None:
    place_hold(
        store,
        account_id=ACCOUNT,
        hold_id=HoldId(uuid4()),
        money=money,
        purpose="bid",
        by=SOMEBODY,
        now=NOON,
    )
