"""The demo's week is drafted in memory and copied: its decisions keep to the facts they rest on.

A store has positions of its own: consecutive from one on the draft, after whatever was there before
on PostgreSQL, commit positions with gaps on EventStoreDB.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from config.demo.seeding import copy_events
from ledger.domain.events import TokenRevoked
from ledger.domain.ids import TokenId
from ledger.eventstore.esdb import EsdbStore
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import START, EventStore, Expect, Meta, NewEvent, Recorded
from marketplace.domain.facts.events import DECISIONS, NothingDecided
from tests.conftest import NOON
from tests.esdb_protocol.process import ServerProcess

BY = Meta(actor="loop:demo")


def fact(number: int) -> NewEvent:
    return NewEvent(uuid4(), TokenRevoked(token_id=TokenId(UUID(int=number)), at=NOON))


def decided(through: int) -> NewEvent:
    return NewEvent(uuid4(), NothingDecided(market="main", through=through, at=NOON))


def draft() -> list[Recorded]:
    """Return facts written together and alone, and decisions that rest on each of them."""
    store = MemoryStore()
    store.append("token-a", [fact(n) for n in range(3)], expected=Expect.ANY, by=BY)
    store.append("market-main", [decided(0), decided(2)], expected=Expect.ANY, by=BY)
    store.append("token-b", [fact(9)], expected=Expect.ANY, by=BY)
    store.append("token-a", [fact(4), fact(5)], expected=Expect.ANY, by=BY)
    store.append(
        "market-main", [decided(n) for n in (1, 3, 5, 6, 7, 8)], expected=Expect.ANY, by=BY
    )
    return list(store.read_all(limit=100).events)


@pytest.fixture(params=["memory", "esdb"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EventStore]:
    """A store that holds something already, so that no position is that of the draft."""
    server = ServerProcess(tmp_path / "journal") if request.param == "esdb" else None
    store: EventStore = MemoryStore() if server is None else EsdbStore(server.uri)
    store.append("token-before", [fact(99), fact(98)], expected=Expect.ANY, by=BY)
    yield store
    if server is not None:
        server.kill()


def told(recorded: Recorded, ids: dict[int, UUID | None]) -> UUID | None:
    """Return the fact up to which a decision had read."""
    assert isinstance(recorded.event, DECISIONS)
    return ids[recorded.event.through]


def test_every_decision_rests_on_the_same_facts_as_in_the_draft(target: EventStore) -> None:
    drafted = draft()

    copy_events(drafted, target)

    copied = [one for one in target.read_all(limit=100).events if one.stream != "token-before"]
    assert [one.id for one in copied] == [one.id for one in drafted]
    in_draft: dict[int, UUID | None] = {START: None} | {one.position: one.id for one in drafted}
    in_copy: dict[int, UUID | None] = {START: None} | {one.position: one.id for one in copied}
    decisions = [one for one in copied if one.stream == "market-main"]
    expected = [one for one in drafted if one.stream == "market-main"]
    assert len(decisions) == 8
    assert [told(one, in_copy) for one in decisions] == [told(one, in_draft) for one in expected]
