"""While a rule is asked, other threads may go on from the very fold it is asked with.

What a fold has gathered (the holds of an account) is handed on, so the rule then sees newer holds
beside an older sum. A grant out of that is stopped by the stream's version; a refusal must be too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from uuid import UUID

import pytest

from ledger.commands.money import add_funds, place_hold, release_hold, resize_hold
from ledger.domain.accounts import Account, FundsInsufficient
from ledger.domain.event import Event
from ledger.domain.ids import EntryId, HoldId
from ledger.domain.money import Money
from ledger.domain.refusal import Refusal
from ledger.eventstore import folds
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import EventStore, Meta, Position, load, record
from ledger.eventstore.together import Part, record_together
from tests.conftest import NOON
from tests.ledger.wallets import ACCOUNT, PLATFORM, open_wallet

HOLD = HoldId(UUID(int=7))
Decide = Callable[[Account | None], Sequence[Event]]
Write = Callable[[EventStore, Decide], Position]


def alone(store: EventStore, decide: Decide) -> Position:
    return record(store, Account, ACCOUNT, decide, by=Meta(actor="user:test"))


def together(store: EventStore, decide: Decide) -> Position:
    return record_together(store, [Part(Account, ACCOUNT, decide, Meta(actor="user:test"))])[0]


@pytest.fixture(params=[alone, together])
def write(request: pytest.FixtureRequest) -> Write:
    found: Write = request.param
    return found


@pytest.fixture
def store() -> MemoryStore:
    """Return a store with an account of 100, all of it held, long enough to be remembered."""
    store = MemoryStore()
    open_wallet(store)
    for number in range(folds.REMEMBERED_FROM):
        fund(store, number, 4 if number else 100 - 4 * (folds.REMEMBERED_FROM - 1))
    place_hold(
        store,
        account_id=ACCOUNT,
        hold_id=HOLD,
        money=Money(100),
        purpose="bid",
        by=Meta(actor="user:test"),
        now=NOON,
    )
    return store


def fund(store: EventStore, number: int, nanos: int) -> None:
    add_funds(
        store,
        account_id=ACCOUNT,
        entry_id=EntryId(UUID(int=100 + number)),
        money=Money(nanos),
        reference=f"top-up {number}",
        platform_id=PLATFORM,
        by=Meta(actor="user:test"),
        now=NOON,
    )


def resize(store: EventStore, nanos: int) -> None:
    resize_hold(
        store,
        account_id=ACCOUNT,
        hold_id=HOLD,
        money=Money(nanos),
        by=Meta(actor="user:test"),
        now=NOON,
    )


def account(store: EventStore) -> Account:
    found = load(store, Account, ACCOUNT)
    assert found is not None
    return found


def meanwhile(store: EventStore, act: Callable[[], None], rule: Decide) -> Decide:
    """Return a rule that is asked with a fold from which somebody else has gone on."""
    asked: list[None] = []

    def decide(state: Account | None) -> Sequence[Event]:
        if not asked:
            asked.append(None)
            act()
            account(store)  # it is folded on, and what the fold has gathered with it
        return rule(state)

    return decide


def to(nanos: int) -> Decide:
    def rule(state: Account | None) -> Sequence[Event]:
        assert state is not None
        return state.resize_hold(hold_id=HOLD, money=Money(nanos), now=NOON)

    return rule


def test_money_that_another_gave_back_meanwhile_is_there(store: MemoryStore, write: Write) -> None:
    """The hold is 20 by now, of which 80 were given back: the old sum knows nothing of them."""
    write(store, meanwhile(store, lambda: resize(store, 20), to(100)))

    assert account(store).holds[HOLD].money == Money(100)


def test_what_seems_done_already_is_told_at_the_place_where_it_was_done(
    store: MemoryStore, write: Write
) -> None:
    position = write(store, meanwhile(store, lambda: resize(store, 60), to(60)))

    assert position == store.head(), "who reads at that place sees it"


def test_what_is_right_is_refused_all_the_same(store: MemoryStore, write: Write) -> None:
    with pytest.raises(FundsInsufficient):
        write(store, meanwhile(store, lambda: resize(store, 90), to(101)))

    assert account(store).holds[HOLD].money == Money(90)


def test_a_fold_nobody_went_on_from_is_believed(store: MemoryStore, write: Write) -> None:
    times: list[None] = []

    def rule(state: Account | None) -> Sequence[Event]:
        times.append(None)
        return to(101)(state)

    with pytest.raises(FundsInsufficient):
        write(store, rule)

    assert len(times) == 1


def test_threads_that_move_one_sum_about_are_never_refused(store: MemoryStore) -> None:
    """Each takes out of the hold what it puts back: there is always enough for it."""
    resize(store, 0)
    threads, sum_of_each = 4, 25

    def move(number: int) -> list[str]:
        random, hold_id, refused = Random(number), HoldId(UUID(int=1_000 + number)), list[str]()
        by = Meta(actor=f"user:{number}")
        place_hold(
            store, account_id=ACCOUNT, hold_id=hold_id, money=Money(0), purpose="x", by=by, now=NOON
        )
        for _ in range(60):
            try:
                resize_hold(
                    store,
                    account_id=ACCOUNT,
                    hold_id=hold_id,
                    money=Money(random.randint(0, sum_of_each)),
                    by=by,
                    now=NOON,
                )
            except Refusal as refusal:
                refused.append(refusal.code)
        release_hold(store, account_id=ACCOUNT, hold_id=hold_id, by=by, now=NOON)
        return refused

    with ThreadPoolExecutor(threads) as pool:
        refused = [code for codes in pool.map(move, range(threads)) for code in codes]

    assert refused == []
    assert account(store).held == Money(0)
