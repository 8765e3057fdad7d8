"""An engine or a keeper killed between any two steps: the next comes to what it would have done.

A step is a call of the store or of the snapshots. Nothing runs after it, as with kill -9: no
handler, no second attempt. What was appended is there whole, or nothing of it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
from typing import Any, Literal

import pytest

from marketplace.domain.decisions.decide import Guards
from marketplace.domain.facts.events import LeaseGranted, RoundCleared
from marketplace.engine import Engine
from marketplace.keeper import Keeper
from marketplace.replay.round import replay_round
from marketplace.snapshots.memory import MemorySnapshots
from tests.marketplace.support.borrowed import Lent
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import MARKET, named

HOUR = timedelta(hours=1)
When = Literal["before", "after"]


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rounds take as long as they do: how far a slow machine comes is not the matter here."""
    monkeypatch.setattr("marketplace.engine.guards_of_a_round", Guards)


class Killed(BaseException):
    """The process is gone: nothing catches it."""


class Dying:
    """Whatever it stands for, until a number of calls was made by all that share `steps`."""

    def __init__(self, real: Any, steps: Iterator[int], last: int, when: When) -> None:
        self._real, self._steps, self._last, self._when = real, steps, last, when

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._real, name)
        return self._counted(asked) if callable(asked) else asked

    def _counted(self, asked: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **said: Any) -> Any:
            number = next(self._steps)
            if number == self._last and self._when == "before":
                raise Killed
            answer = asked(*args, **said)
            if number == self._last:
                raise Killed
            return answer

        return call


def waiting() -> Lent:
    """Return a market in which a pass has a lot to decide.

    At once: a bid that fits, one that does not. In a round: two that compete, one that is
    guaranteed, and one that takes back from a borrower what is its own.
    """
    market = Lent()
    market.offer("rack", gpus=8)
    market.offer("more", gpus=2, at=2)
    market.govern(red=(4, None), blue=(4, None))
    for word in ("one", "two"):
        market.borrow(word, 4)
        market.wait(minutes=40)
    market.ask("green", "now", 1, at=3)
    market.bid("never", gpus=9)
    for unit, word, gpus, at in (
        ("red", "mine", 4, 4.0),
        ("green", "dear", 1, 9.0),
        ("green", "cheap", 1, 3.0),
    ):
        market.asking = unit
        market.bid(
            word, gpus=gpus, at=at, hours=4, patience="patient", deadline=market.now + 4.25 * HOUR
        )
    market.asking = ""
    market.wait(seconds=61)
    return market


def engine_of(market: Lent, snapshots: Any, store: Any = None) -> Engine:
    return Engine(store or market.store, MARKET, snapshots=snapshots)


def keeper_of(market: Lent, snapshots: Any, store: Any = None) -> Keeper:
    return Keeper(store or market.store, MARKET, snapshots=snapshots, snapshot_facts=1)


def granted(market: Lent) -> dict[object, object]:
    """Return who got what, told without the ids of rounds and leases."""
    bids = {each.lease_id: bid_id for bid_id, each in market.grants().items()}
    return {
        bid_id: (
            each.window,
            each.price,
            sorted(uuid for share in each.shares for uuid in share.gpu_uuids),
            [(bids[cut.lease_id], cut.ends_at) for cut in each.cuts],
        )
        for bid_id, each in market.grants().items()
    }


def finish(market: Lent, engine: Engine) -> None:
    while engine.run_once(now=market.now):
        pass


def decided_whole(market: Lent) -> None:
    """Check that each round is there with all its grants."""
    rounds: dict[object, int] = {}
    for recorded in market.decisions():
        match recorded.event:
            case RoundCleared() as cleared:
                rounds[cleared.round_id] = cleared.grants
            case LeaseGranted() as grant:
                rounds[grant.round_id] -= 1
    assert set(rounds.values()) == {0}


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_next_engine_comes_to_the_same_grants(when: When) -> None:
    whole = waiting()
    finish(whole, engine_of(whole, MemorySnapshots()))
    expected = granted(whole)
    assert {named("bid now"), named("bid mine"), named("bid dear")} < expected.keys()
    assert whole.cut("mine")

    for last in count():
        market, snapshots, steps = waiting(), MemorySnapshots(), count()
        store = Dying(market.store, steps, last, when)
        dying = Dying(snapshots, steps, last, when)
        try:
            engine_of(market, dying, store).run_once(now=market.now)
            keeper_of(market, dying, store).run_once(now=market.now)
        except Killed:
            decided_whole(market)
        else:
            break

        finish(market, engine_of(market, snapshots))

        assert granted(market) == expected, f"killed {when} step {last}"
        decided_whole(market)
        audit(market.events())
    assert last >= 7, "a pass starts, reads, appends; a keeper reads and keeps"
    assert snapshots.latest(MARKET) is not None


def test_the_rounds_of_both_engines_are_replayed() -> None:
    market, snapshots, steps = waiting(), MemorySnapshots(), count()
    probe = Dying(market.store, steps, 10**9, "after")
    with_all = engine_of(market, MemorySnapshots(), probe)
    with_all.run_once(now=market.now)
    total = next(steps)

    for last in (total // 2, total - 1):
        market, snapshots, steps = waiting(), MemorySnapshots(), count()
        store = Dying(market.store, steps, last, "after")
        with pytest.raises(Killed):
            engine_of(market, snapshots, store).run_once(now=market.now)
        market.wait(seconds=61)
        finish(market, engine_of(market, snapshots))
        for recorded in market.decisions():
            if isinstance(recorded.event, RoundCleared):
                told = replay_round(market.store, market=MARKET, round_id=recorded.event.round_id)
                assert told.outcome == "identical", told.differences
