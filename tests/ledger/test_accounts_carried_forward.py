"""An account that was carried forward answers as one whose every event is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid5

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import carrying, commands
from ledger.domain import accounts
from ledger.domain.accounts import Account
from ledger.domain.carried import AccountCarried
from ledger.domain.ids import EntryId
from ledger.domain.money import Money
from ledger.domain.refusal import Refusal
from ledger.eventstore import folds
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import EventStore, Expect, NewEvent, stream_name
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book

STREAM = stream_name(Account, book.FUNDS)
Ask = Callable[[EventStore], object]


@pytest.fixture(autouse=True)
def short_accounts_are_carried_too(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(folds, "CARRIED_FROM", 2)
    yield


def a_store() -> MemoryStore:
    store = MemoryStore()
    book.open_everybody(store)
    book.open_funds(store)
    return store


def carry(store: EventStore, *, every: int = 3) -> int:
    """Carry the account forward and forget what was remembered of it, as another process would."""
    steps = carrying.carry_one_forward(store, book.FUNDS, now=NOON, every=every)
    folds._memories.pop(store, None)
    return steps


def carried_in(store: EventStore) -> list[AccountCarried]:
    found = [each.event for each in store.read_stream(folds.carried_stream(STREAM))]
    assert all(isinstance(each, AccountCarried) for each in found)
    return found  # type: ignore[return-value]


# Of few things, so that nearly everything is asked again, on equal terms or on others.
names = st.integers(0, 3)
amounts = st.sampled_from([0, 1, 3, 10]).map(lambda units: Money(units * 10**9))
by = st.sampled_from(
    [SOMEBODY, *(replace(SOMEBODY, command_id=uuid5(book.WORLD, str(n))) for n in range(4))]
)
references = st.sampled_from(["Invoice 7", "invoice  7", "invoice 8", "INVOICE 8"])


def _hold(name: int, money: Money, meta: Any) -> Ask:
    return lambda store: commands.place_hold(
        store,
        account_id=book.FUNDS,
        hold_id=book.hold_named(name),
        money=money,
        purpose="bid:1",
        by=meta,
        now=NOON,
    )


def _resize(name: int, money: Money, meta: Any) -> Ask:
    return lambda store: commands.resize_hold(
        store, account_id=book.FUNDS, hold_id=book.hold_named(name), money=money, by=meta, now=NOON
    )


def _release(name: int, meta: Any) -> Ask:
    return lambda store: commands.release_hold(
        store, account_id=book.FUNDS, hold_id=book.hold_named(name), by=meta, now=NOON
    )


def _fund(name: int, money: Money, reference: str) -> Ask:
    return lambda store: book.fund(store, money, entry=f"top-up {name}", reference=reference)


def _pay(money: Money, reference: str, meta: Any) -> Ask:
    return lambda store: commands.credit_payment(
        store,
        account_id=book.FUNDS,
        money=money,
        reference=reference,
        platform_id=book.PLATFORM,
        by=meta,
        now=NOON,
    )


def _capture(name: int, lease: int, hour: int, millis: int) -> Ask:
    return lambda store: book.capture(
        store,
        book.hours(hour),
        millis,
        hold_id=book.hold_named(name),
        lease_id=book.lease_named(lease),
    )


def _budget(nanos: int, meta: Any) -> Ask:
    return lambda store: commands.set_budget(
        store, account_id=book.FUNDS, overdraft_nanos=nanos, may_raise=True, by=meta, now=NOON
    )


asks = st.one_of(
    st.builds(_hold, names, amounts, by),
    st.builds(_resize, names, amounts, by),
    st.builds(_release, names, by),
    st.builds(_fund, names, amounts, references),
    st.builds(_pay, amounts, references, by),
    st.builds(_capture, names, names, st.integers(0, 2), st.sampled_from([0, 600_000, 3_600_000])),
    st.builds(_budget, st.sampled_from([0, 5 * 10**9]), by),
)


def answer(store: EventStore, ask: Ask) -> object:
    try:
        ask(store)
    except Refusal as refusal:
        return refusal.code, str(refusal.details)
    return None


def recorded_in(store: EventStore) -> list[tuple[object, bytes]]:
    return [(each.id, each.data) for each in store.read_stream(STREAM)]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(asks, st.booleans()), max_size=40), st.integers(1, 4))
def test_all_is_answered_as_if_nothing_had_been_carried(
    asked: list[tuple[Ask, bool]], every: int
) -> None:
    whole, carried = a_store(), a_store()
    for ask, and_carry in asked:
        before = len(recorded_in(whole)), len(recorded_in(carried))
        assert answer(carried, ask) == answer(whole, ask)
        grown = len(recorded_in(whole)) - before[0], len(recorded_in(carried)) - before[1]
        assert grown[0] == grown[1]
        if and_carry:
            carry(carried, every=every)
    one, other = book.account(whole), book.account(carried)
    assert (one.total, one.held, one.overdraft_nanos) == (
        other.total,
        other.held,
        other.overdraft_nanos,
    )
    assert [each.event for each in whole.read_stream(STREAM)] == [
        each.event for each in carried.read_stream(STREAM)
    ]


def long_account(store: EventStore, *, captures: int = 40) -> None:
    book.fund(store, book.usd(5_000))
    book.hold(store, book.usd(2_500))
    for hour in range(captures):
        book.capture(store, book.hours(hour), 3_600_000)


class Counted(MemoryStore):
    """Counts the events of accounts that are read."""

    read = 0

    def read_stream(self, stream: str, *, after_version: int = 0) -> Iterator[Any]:
        for each in super().read_stream(stream, after_version=after_version):
            self.read += stream == STREAM
            yield each


@pytest.mark.parametrize("captures", [40, 400])
def test_what_a_decision_reads_does_not_grow_with_the_account(captures: int) -> None:
    store = Counted()
    book.open_everybody(store)
    book.open_funds(store)
    long_account(store, captures=captures)
    carry(store, every=100)

    store.read = 0
    book.hold(store, book.usd(1), hold_id=book.hold_named("another"))

    assert store.read <= 5


def test_an_account_comes_to_its_present_in_steps_each_to_go_on_from() -> None:
    store = a_store()
    long_account(store)
    end = len(recorded_in(store))

    assert carry(store, every=10) == -(-end // 10)
    assert [each.up_to_version for each in carried_in(store)] == [*range(10, end, 10), end]
    assert carry(store, every=10) == 0


def test_what_was_carried_forward_cannot_be_walked_so_that_nothing_is_missed() -> None:
    store = a_store()
    long_account(store)
    carry(store)

    with pytest.raises(TypeError, match="asked by id"):
        list(book.account(store).entries)


def test_an_account_is_read_whole_where_its_past_is_not_what_was_carried() -> None:
    store, other = a_store(), a_store()
    long_account(store)
    long_account(other)
    book.fund(other, book.usd(1), entry="another")
    carry(other)
    [*_, last] = carried_in(other)
    store.append(
        folds.carried_stream(STREAM),
        [NewEvent(last.event_id, last)],
        expected=Expect.ANY,
        by=SOMEBODY,
    )
    folds._memories.pop(store, None)

    assert book.account(store).total == book.usd(5_000) - Money(40 * book.PRICE.nanos_per_gpu_hour)


def test_a_charge_that_comes_again_after_the_account_was_carried_is_charged_once() -> None:
    store = a_store()
    long_account(store)
    carry(store)
    end = len(recorded_in(store))

    book.capture(store, book.hours(7), 3_600_000)
    assert len(recorded_in(store)) == end
    with pytest.raises(accounts.EntryRecordedOtherwise):
        book.capture(store, book.hours(7), 3_600_000, hold_id=book.HOLD, cost_centre="CC-9")
    assert book.account(store).entries.get(EntryId(uuid5(book.WORLD, "none"))) is None
