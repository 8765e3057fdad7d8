"""A process dies between each pair of steps of all that moves money: the same books by hash.

Each append of a life is made by a process that dies of it, at once before or at once after; the
next one begins the step anew. On stores that append to several streams at once, on those that do
not, on PostgreSQL and over the protocol of EventStoreDB.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from django.db import connection, transaction

from ledger.domain.refusal import Refusal
from ledger.eventstore.memory import MemoryStore
from ledger.queries.money import disagreements
from tests.conftest import clear_event_table
from tests.esdb_protocol.process import ServerProcess
from tests.ledger.all_kinds import lived
from tests.ledger.all_kinds.lived import BUDGET, CREDIT, WALLET, Step
from tests.ledger.all_kinds.mortal import (
    MortalEsdb,
    MortalMemory,
    MortalPostgres,
    Piecemeal,
    live,
)
from tests.ledger.all_kinds.world import found


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
