"""A process dies between each pair of steps of all that moves money: the same books by hash.

Each append of a life is made by a process that dies of it, at once before or at once after; the
next one begins the step anew. On stores that append to several streams at once, on those that do
not, on PostgreSQL and over the protocol of EventStoreDB.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from django.db import connection, transaction

from ledger.domain.refusal import Refusal
from ledger.eventstore import folds
from ledger.eventstore.esdb import EsdbStore
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Appended, Write
from ledger.eventstore.postgres import PostgresStore
from ledger.queries.money import disagreements
from tests.conftest import clear_event_table
from tests.esdb_protocol.process import ServerProcess
from tests.ledger.all_kinds import lived
from tests.ledger.all_kinds.lived import BUDGET, CREDIT, WALLET, Step
from tests.ledger.all_kinds.world import found


class Killed(BaseException):
    """The process is gone: nobody catches it."""


class Mortal:
    """Kills its process before each append, or after it. when: empty while it lives on."""

    when = ""
    deaths = 0
    _is_second = False

    def _die(self, append: Callable[[], Any], *, is_write: bool) -> Any:
        if not self.when or not is_write:
            return append()
        if self.when == "before":
            self._is_second = not self._is_second
            if self._is_second:
                self.deaths += 1
                raise Killed
            return append()
        done = append()
        each = done if isinstance(done, list) else [done]
        if any(not one.deduplicated for one in each):
            self.deaths += 1
            raise Killed
        return done


class MortalMemory(Mortal, MemoryStore):
    """In memory, all or nothing."""

    _is_inside = False

    def append(self, stream: str, events: Any, **said: Any) -> Appended:
        if self._is_inside:
            return MemoryStore.append(self, stream, events, **said)
        done: Appended = self._die(
            lambda: MemoryStore.append(self, stream, events, **said), is_write=bool(events)
        )
        return done

    def append_whole(self, writes: Sequence[Write]) -> list[Appended]:
        def whole() -> list[Appended]:
            self._is_inside = True
            try:
                return MemoryStore.append_whole(self, writes)
            finally:
                self._is_inside = False

        done: list[Appended] = self._die(whole, is_write=True)
        return done


class Piecemeal(MortalMemory):
    """In memory, one stream after the other."""

    appends_whole = False

    def append_whole(self, writes: Sequence[Write]) -> list[Appended]:
        return self.append_each(writes)


class MortalPostgres(Mortal, PostgresStore):
    """The real one."""

    def append(self, stream: str, events: Any, **said: Any) -> Appended:
        done: Appended = self._die(
            lambda: PostgresStore.append(self, stream, events, **said), is_write=bool(events)
        )
        return done

    def append_whole(self, writes: Sequence[Write]) -> list[Appended]:
        done: list[Appended] = self._die(
            lambda: PostgresStore.append_whole(self, writes), is_write=True
        )
        return done


class MortalEsdb(Mortal, EsdbStore):
    """Over the protocol of EventStoreDB."""

    def append(self, stream: str, events: Any, **said: Any) -> Appended:
        done: Appended = self._die(
            lambda: EsdbStore.append(self, stream, events, **said), is_write=bool(events)
        )
        return done


def live(store: Any, steps: Sequence[Step]) -> None:
    """Take each step until a process lives to its end."""
    for name, ask in steps:
        is_new = True
        while True:
            try:
                ask(store)
            except Killed:
                is_new = False
                folds._memories.pop(store, None)
                continue
            except Refusal as refusal:
                assert not is_new, f"{name}: {refusal.code}"
            break


@pytest.fixture
def plain() -> str:
    """Return the hash of the books of a life in which nobody dies."""
    with transaction.atomic():
        store = MemoryStore()
        found(store)
        live(store, lived.life())
        lived.follow(store)
        assert disagreements() == []
        transaction.set_rollback(True)
    return lived.hash_of(store)


@pytest.fixture(
    params=[
        pytest.param(MortalMemory, marks=pytest.mark.django_db),
        pytest.param(Piecemeal, marks=pytest.mark.django_db),
        pytest.param(MortalPostgres, marks=pytest.mark.django_db(transaction=True)),
        pytest.param(MortalEsdb, marks=pytest.mark.django_db),
    ],
    ids=["whole", "piecemeal", "postgres", "esdb-protocol"],
)
def mortal(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, db: None
) -> Iterator[Any]:
    """Return an empty store of each kind that kills."""
    if request.param is MortalPostgres:
        clear_event_table()
        yield MortalPostgres()
        clear_event_table()
        connection.close()
    elif request.param is MortalEsdb:
        server = ServerProcess(tmp_path_factory.mktemp("esdb") / "journal")
        yield MortalEsdb(server.uri)
        server.kill()
    else:
        yield request.param()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_dies_of_every_append(mortal: Any, plain: str, when: str) -> None:
    found(mortal)
    mortal.when = when

    live(mortal, lived.life())

    mortal.when = ""
    lived.follow(mortal)
    assert mortal.deaths > 60
    assert lived.hash_of(mortal) == plain
    assert disagreements() == []


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(8))
def test_use_and_notices_in_any_order_and_twice_come_to_the_same(seed: int) -> None:
    """What is refused since something else has not come yet is tried again, as the loops do."""
    payers = tuple(enumerate((WALLET, BUDGET, CREDIT)))
    steps = [
        *lived.top_ups(),
        *(each for number, payer in payers for each in lived.uses(number, payer)),
        *(
            each
            for number in range(3)
            for each in (lived.takes_back(number), lived.decides(number))
        ),
        *lived.rest_of_use(),
    ]
    # Asked for once a lease is over and paid: it is a share of what was charged by then.
    promise = [each for each in steps if each[0] == "miss a promise"]
    steps = [each for each in steps if each not in promise]
    holds = [lived.placed(number, payer) for number, payer in payers]

    plain, shuffled = (_shuffled(each, holds, steps, promise) for each in (None, seed))

    assert shuffled == plain


def _shuffled(
    seed: int | None, holds: Sequence[Step], steps: Sequence[Step], last: Sequence[Step]
) -> str:
    store = MemoryStore()
    found(store)
    live(store, [*list(lived.top_ups())[:3], *holds])
    left = list(steps)
    if seed is not None:
        left += left
        random.Random(seed).shuffle(left)
    while left:
        refused = []
        for each in left:
            try:
                each[1](store)
            except Refusal:
                refused.append(each)
        if len(refused) == len(left):
            break
        left = refused
    live(store, last)
    return lived.sums_of(store)
