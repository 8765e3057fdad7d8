"""A process that takes a grant up is killed between any two writes, and asked again.

Whatever happened in between, the grant comes out whole or not at all: on stores that append to
several streams at once, and on those that append to one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from ledger.eventstore.esdb import EsdbStore
from ledger.eventstore.port import Appended, EventStore, Write
from ledger.eventstore.postgres import PostgresStore
from marketplace.domain.facts.events import (
    CutWithdrawn,
    GrantRefused,
    LeaseInterrupted,
    LeaseScheduled,
)
from marketplace.policies import OPEN_LEASE, policies
from tests.conftest import clear_event_table
from tests.esdb_protocol.process import ServerProcess
from tests.marketplace.support.interleaving import Killed, Piecemeal, Stepping, Whole
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.several_units import Several

WRITES_MAX = 12
"""More than a grant with two victims has."""


class MortalPostgres(PostgresStore):
    """Kills its process after a number of appends."""

    left: int | None = None

    def _killed(self, done: Any) -> Any:
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                self.left = None
                raise Killed
        return done

    def append(self, *args: Any, **said: Any) -> Appended:
        """Append, and die if it was the last write."""
        done: Appended = self._killed(super().append(*args, **said))
        return done

    def append_whole(self, writes: Sequence[Write]) -> list[Appended]:
        """Append, and die if it was the last write."""
        done: list[Appended] = self._killed(super().append_whole(writes))
        return done


class MortalEsdb(EsdbStore):
    """Kills its process after a number of appends."""

    left: int | None = None

    def append(self, stream: str, events: Any, **said: Any) -> Appended:
        """Append, and die if it was the last write."""
        done = super().append(stream, events, **said)
        if events and self.left is not None:
            self.left -= 1
            if self.left <= 0:
                self.left = None
                raise Killed
        return done


Make = Callable[[], EventStore]


@pytest.fixture(
    params=[
        "whole",
        "piecemeal",
        pytest.param("postgres", marks=pytest.mark.django_db(transaction=True)),
        "esdb-protocol",
    ]
)
def make(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Make]:
    """Return what makes an empty store of each kind."""
    if request.param == "postgres":

        def empty() -> EventStore:
            clear_event_table()
            return MortalPostgres()

        yield empty
        clear_event_table()
        connection.close()
    elif request.param == "esdb-protocol":
        servers: list[ServerProcess] = []

        def served() -> EventStore:
            for each in servers:
                each.kill()
            servers[:] = [ServerProcess(tmp_path_factory.mktemp("esdb") / "journal")]
            return MortalEsdb(servers[0].uri)

        yield served
        for each in servers:
            each.kill()
    else:
        kind = Whole if request.param == "whole" else Piecemeal
        yield kind


def granted(make: Make) -> tuple[Several, Stepping, int]:
    """Return a market in which a bid is granted what two others have, and who takes that up."""
    site = Several("one", "two", "taker", store=make())
    site.offer("a", gpus=2, at=1, notice=timedelta(minutes=5))
    for word in ("one", "two"):
        site.place(word, limit="1", hours=8, service_class="interruptible")
    following = Stepping(site.store, policies(fee_ppm=50_000))
    settle(site, following)
    for word in ("one", "two"):
        site.begin(word)
    following.drain()
    site.wait(minutes=31)
    site.place("taker", limit="9", hours=6, gpus=2, deadline=site.later(7))
    site.run()
    names = [each.name for each in following.policies]
    return site, following, names.index(f"marketplace.{OPEN_LEASE}")


def settle(site: Several, following: Stepping) -> None:
    for _ in range(20):
        made = site.run()
        if not following.drain() and not made:
            return
    raise AssertionError("it goes on and on")


def killed_after(site: Several, following: Stepping, opening: int, writes: int) -> bool:
    """Take the grant up and die after so many writes; tell if it came to that."""
    store: Any = site.store
    store.left = writes
    try:
        following.step(opening)
    except Killed:
        return True
    finally:
        store.left = None
    return False


def counted(site: Several, kind: type[Any]) -> int:
    return sum(isinstance(each.event, kind) for each in site.events())


@pytest.mark.parametrize("then", ["nothing", "cancel", "lower", "reclaim"])
def test_it_comes_out_whole_or_not_at_all(make: Make, then: str) -> None:
    outcomes = set()
    for writes in range(1, WRITES_MAX):
        site, following, opening = granted(make)
        if not killed_after(site, following, opening, writes):
            break
        filled = site.bid_of("taker").state == "filled"
        if not filled and then == "cancel":
            site.withdraw("taker")
        if not filled and then == "lower":
            site.change("taker", limit="1.01")
        if then == "reclaim" and site.lease_of("two").stop_at is None:
            site.take_back("two")

        settle(site, following)

        lease = site.found_lease("taker")
        outcomes.add((filled, lease is not None))
        assert lease is not None or not filled, "past the point of no return it is finished"
        for word in ("one", "two"):
            victim = site.lease_of(word)
            assert victim.rights.interrupted == (lease is not None and victim.stop_at is not None)
            if lease is None and not (then == "reclaim" and word == "two"):
                assert victim.stop_at is None and victim.cut is None
        withdrawn = counted(site, CutWithdrawn)
        assert not (site.store.appends_whole and withdrawn)
        assert counted(site, LeaseInterrupted) - withdrawn == (2 if lease else 0)
        assert counted(site, LeaseScheduled) == 2 + (lease is not None)
        for word in ("one", "two", "taker"):
            held, mine = site.account_of(word).held, site.found_lease(word)
            bid = site.bid_of(word)
            if mine is not None:
                assert held == mine.cost_at_most(ends_at=mine.ends_at)
            else:
                assert held.nanos == (bid.hold.nanos if bid.state == "open" else 0)
        audit(site.events())
    else:
        raise AssertionError("it never came to an end")
    assert (True, True) in outcomes or site.store.appends_whole
    if then == "cancel" and not site.store.appends_whole:
        assert (False, False) in outcomes


def test_a_refusal_that_was_cut_off_is_finished(make: Make) -> None:
    for writes in range(1, WRITES_MAX):
        site, following, opening = granted(make)
        if not site.store.appends_whole:
            # Two leases are told, then the bid is gone: what was told has to be withdrawn.
            assert killed_after(site, following, opening, 2)
        site.withdraw("taker")
        died = killed_after(site, following, opening, writes)

        settle(site, following)

        assert counted(site, GrantRefused) == 1
        assert site.found_lease("taker") is None
        for word in ("one", "two"):
            assert site.lease_of(word).stop_at is None
        assert site.account_of("taker").held.nanos == 0
        audit(site.events())
        if not died:
            return
    raise AssertionError("it never came to an end")
