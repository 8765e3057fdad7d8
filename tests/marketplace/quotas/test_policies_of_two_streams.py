"""Who may list is on a stream of its own: with other policies it is set at once, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from uuid import UUID, uuid4

import pytest
from django.db import connection

from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import (
    Appended,
    EventStore,
    Expect,
    Meta,
    NewEvent,
    OutcomeUnknown,
    Write,
    load,
)
from ledger.eventstore.postgres import PostgresStore
from listings.domain.permit_events import ListingAllowed
from listings.domain.permits import ListingPermits, PermitClassUnreadable
from marketplace.commands.quotas import set_policies
from marketplace.domain.facts.policy_events import CohortPlaced, LeastRunSet
from marketplace.domain.governance.authority import CohortCircular, Setter
from marketplace.domain.quotas.policies_in_force import Policies
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, OWNER, somebody

PLATFORM = Setter(OWNER, True)
COMMAND = UUID(int=39)
GOVERNANCE, PERMITS = f"governance-{MARKET}", f"listing-permits-{MARKET}"


def cohort(name: str, parent: str | None = None) -> CohortPlaced:
    return CohortPlaced(market=MARKET, cohort=name, parent=parent, tenant_id=None, at=NOON)


def least_run(seconds: int = 60) -> LeastRunSet:
    return LeastRunSet(market=MARKET, seconds=seconds, at=NOON)


def forbid(gpu_class: str = "H100") -> ListingAllowed:
    return ListingAllowed(
        market=MARKET, tenant_id=None, gpu_class=gpu_class, allowed=False, at=NOON
    )


def put(store: EventStore, event: CohortPlaced | ListingAllowed) -> None:
    """Let somebody else set a policy."""
    stream = PERMITS if isinstance(event, ListingAllowed) else GOVERNANCE
    store.append(stream, [NewEvent(uuid4(), event)], expected=Expect.ANY, by=somebody())


def ask(store: EventStore, *policies: CohortPlaced | LeastRunSet | ListingAllowed) -> None:
    set_policies(store, policies=policies, setter=PLATFORM, by=somebody(COMMAND))


def kept(store: EventStore) -> tuple[int, int]:
    """Return how many facts each of the two streams has."""
    return len(list(store.read_stream(GOVERNANCE))), len(list(store.read_stream(PERMITS)))


class Killed(Exception):
    """The process is gone."""


class Troubled(MemoryStore):
    """Something happens once at the append of several streams."""

    first: Callable[[], None] | None = None
    dies_before: str | None = None
    loses_reply = False

    def append_each(self, writes: Sequence[Write]) -> list[Appended]:
        first, self.first = self.first, None
        if first is not None:
            first()
        found = super().append_each(writes)
        lost, self.loses_reply = self.loses_reply, False
        if lost:
            raise OutcomeUnknown("the reply was lost")
        return found

    def append(
        self, stream: str, events: Sequence[NewEvent], *, expected: int | Expect, by: Meta
    ) -> Appended:
        if stream == self.dies_before:
            raise Killed
        return super().append(stream, events, expected=expected, by=by)


def test_both_are_set() -> None:
    store = MemoryStore()

    ask(store, forbid(), least_run(), forbid("A100"), cohort("lab"))

    permits = load(store, ListingPermits, MARKET)
    policies = load(store, Policies, MARKET)
    assert permits is not None and set(permits.allowed) == {(None, "H100"), (None, "A100")}
    assert policies is not None and policies.least_runs.seconds == 60
    assert kept(store) == (2, 2)


@pytest.mark.parametrize("refused", [forbid("H 100"), cohort("lab", "lab")])
def test_what_is_refused_of_either_leaves_nothing(refused: CohortPlaced | ListingAllowed) -> None:
    store = MemoryStore()
    put(store, cohort("lab"))

    with pytest.raises((PermitClassUnreadable, CohortCircular)):
        ask(store, forbid(), least_run(), refused)

    assert kept(store) == (1, 0)


@pytest.mark.parametrize("stream", [GOVERNANCE, PERMITS])
def test_killed_between_the_two_the_same_request_sets_the_rest_once(stream: str) -> None:
    """In a store that appends to one stream after the other."""
    store = Troubled()
    store.dies_before = stream
    with pytest.raises(Killed):
        ask(store, forbid(), least_run())
    assert kept(store) == ((0, 0) if stream == GOVERNANCE else (1, 0))
    store.dies_before = None

    ask(store, forbid(), least_run())
    ask(store, forbid(), least_run())

    assert kept(store) == (1, 1)


def test_a_lost_reply_writes_nothing_twice() -> None:
    store = Troubled()
    store.loses_reply = True

    ask(store, forbid(), least_run())

    assert kept(store) == (1, 1)


def test_who_is_overtaken_is_asked_again_before_anything_is_written() -> None:
    """Another operator makes what was asked for circular: then nobody is forbidden to list."""
    store = Troubled()
    put(store, cohort("a"))
    put(store, cohort("b"))
    store.first = lambda: put(store, cohort("b", "a"))

    with pytest.raises(CohortCircular):
        ask(store, forbid(), cohort("a", "b"))

    assert kept(store) == (3, 0)


def test_overtaken_on_the_permits_both_are_set_all_the_same() -> None:
    store = Troubled()
    store.first = lambda: put(store, forbid("A100"))

    ask(store, forbid(), least_run())

    assert kept(store) == (1, 2)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("committed_store")
def test_killed_in_the_append_to_the_database_nothing_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, plain = PostgresStore(), PostgresStore.append_each

    def dying(self: PostgresStore, writes: Sequence[Write]) -> list[Appended]:
        plain(self, writes)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(PostgresStore, "append_each", dying)
        with pytest.raises(Killed):
            ask(store, forbid(), least_run())
    assert kept(store) == (0, 0)

    ask(store, forbid(), least_run())

    assert kept(store) == (1, 1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("committed_store")
def test_on_the_database_others_wait_until_both_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    store, plain = PostgresStore(), PostgresStore.append_each
    asked, came = threading.Event(), list[tuple[int, int]]()

    def other() -> None:
        try:
            if asked.wait(20):
                put(PostgresStore(), forbid("A100"))
                came.append(kept(PostgresStore()))
        finally:
            connection.close()

    def slow(self: PostgresStore, writes: Sequence[Write]) -> list[Appended]:
        asked.set()
        thread.join(0.3)
        assert not came, "the other one waits"
        return plain(self, writes)

    thread = threading.Thread(target=other)
    thread.start()
    monkeypatch.setattr(PostgresStore, "append_each", slow)
    ask(store, forbid(), least_run())
    thread.join(20)

    assert came == [(1, 2)]
