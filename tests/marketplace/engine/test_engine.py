"""The engine: one writer, killed at any step, raced by another, however much it reads at once."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.ids import BidId
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import (
    Appended,
    Expect,
    Meta,
    NewEvent,
    OutcomeUnknown,
    StoreUnavailable,
)
from marketplace.domain.bids.bounds import DEADLINE_AHEAD_MAX
from marketplace.domain.book.book import READS, Book
from marketplace.domain.clearing.continuous import clear
from marketplace.domain.clearing.fills import decided
from marketplace.domain.decisions.decide import on_round
from marketplace.domain.facts.events import (
    BidExpired,
    ExtensionGranted,
    LeaseGranted,
    RoundCleared,
)
from marketplace.domain.facts.instants import from_above
from tests.conftest import NOON
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import Market, OpenStore, named


class Killed(BaseException):
    """The process died here."""


class FrailStore(MemoryStore):
    """A store on which one append to a market's stream goes wrong."""

    fails: str = ""

    def append(
        self, stream: str, events: Sequence[NewEvent], *, expected: int | Expect, by: Meta
    ) -> Appended:
        if not stream.startswith("market-") or not self.fails:
            return super().append(stream, events, expected=expected, by=by)
        fails, self.fails = self.fails, ""
        if fails == "killed before":
            raise Killed
        if fails == "unavailable":
            raise StoreUnavailable
        if fails == "reply lost, not written":
            raise OutcomeUnknown
        super().append(stream, events, expected=expected, by=by)
        raise Killed if fails == "killed after" else OutcomeUnknown


FAILURES = (
    "killed before",
    "killed after",
    "unavailable",
    "reply lost, not written",
    "reply lost, written",
)


def busy(market: Market) -> Market:
    """Let enough happen that one pass makes several decisions in both lanes."""
    market.offer("a", gpus=4, at=1)
    market.bid("x", gpus=2, hours=3, at=2)
    market.bid("y", gpus=4, hours=1, at=3)
    market.bid("z", gpus=8, hours=1, at=3)
    market.bid("p", gpus=1, hours=2, at=2, patience="patient")
    market.bid("q", gpus=1, hours=2, at=4, patience="patient")
    return market


def outcome(market: Market) -> dict[Any, Any]:
    """Return who got what, without the ids that differ from engine to engine."""
    return {
        bid_id: (granted.shares, granted.window, granted.price)
        for bid_id, granted in market.grants().items()
    }


@pytest.mark.parametrize("failure", FAILURES)
def test_an_append_that_goes_wrong_loses_nothing_and_doubles_nothing(failure: str) -> None:
    undisturbed = busy(Market())
    undisturbed.run()
    store = FrailStore()
    market = busy(Market(store))
    store.fails = failure

    with contextlib.suppress(Killed, StoreUnavailable):
        market.run()
    market.engine = market.new_engine()
    market.run()

    assert outcome(market) == outcome(undisturbed)
    assert len(market.decisions()) == len(undisturbed.decisions())
    audit(market.events())


def test_a_store_that_comes_back_finds_the_same_engine_ready() -> None:
    store = FrailStore()
    market = busy(Market(store))
    store.fails = "unavailable"
    with pytest.raises(StoreUnavailable):
        market.run()

    assert market.run() > 0
    assert market.grant("x") is not None


def test_an_engine_that_slept_is_fenced_and_then_agrees() -> None:
    market = busy(Market())
    sleeper, other = market.new_engine(), market.new_engine()
    sleeper.run_once(now=market.now)
    market.bid("late", gpus=1, hours=1, at=5)
    other.run_once(now=market.now)
    before = outcome(market)
    market.bid("later", gpus=1, hours=1, at=5)

    assert sleeper.run_once(now=market.now) == 0
    sleeper.run_once(now=market.now)

    after = outcome(market)
    assert {key: after[key] for key in before} == before
    assert market.grant("later") is not None
    audit(market.events())


def test_an_engine_overtaken_between_reading_and_appending_grants_nothing() -> None:
    """Both saw the same free GPU; the version of the market's stream lets only one grant it."""
    store = OpenStore()
    market = Market(store)
    market.offer("a", gpus=2)
    first, second = market.new_engine(), market.new_engine()
    for engine in (first, second):
        engine.run_once(now=market.now)
    market.bid("x", gpus=2, hours=1)
    store.before = lambda: second.run_once(now=market.now)

    made = first.run_once(now=market.now)

    assert made == 0
    assert [r.event.bid_id for r in market.decisions() if isinstance(r.event, LeaseGranted)] == [
        BidId(named("bid x"))
    ]
    audit(market.events())


def test_what_a_pass_decides_is_one_append() -> None:
    class Counting(MemoryStore):
        appends = 0

        def append(self, stream: str, *args: Any, **options: Any) -> Appended:
            self.appends += stream.startswith("market-")
            return super().append(stream, *args, **options)

    store = Counting()
    busy(Market(store)).run()

    assert store.appends == 1


def test_a_gang_is_granted_whole_in_one_event() -> None:
    market = Market()
    for word in "abc":
        market.offer(word, gpus=2)
    market.bid("x", gpus=6, gang=True)

    market.run()

    granted = market.grant("x")
    assert granted is not None
    assert sum(len(share.gpu_uuids) for share in granted.shares) == 6
    assert len(granted.shares) == 3


def test_an_idle_market_adds_nothing_to_the_log() -> None:
    market = busy(Market())
    market.run()
    head = market.store.head()

    for _ in range(5):
        market.wait(minutes=1)
        market.run()

    assert market.store.head() == head


def test_a_bid_that_can_no_longer_be_met_expires_also_after_a_restart() -> None:
    market = Market()
    market.bid("x", hours=1, deadline=NOON + timedelta(hours=2))
    market.run()
    market.engine = market.new_engine()
    market.now = NOON + timedelta(hours=1)
    market.run()
    still = [r for r in market.events() if isinstance(r.event, BidExpired)]

    market.wait(seconds=1)
    market.run()

    gone = [r for r in market.events() if isinstance(r.event, BidExpired)]
    assert not still
    assert len(gone) == 1


def test_a_grant_for_a_bid_that_was_cancelled_meanwhile_is_given_back() -> None:
    """The engine had not read the cancellation; the lease's closing frees the GPU."""
    market = Market()
    market.offer("a")
    market.bid("x", hours=4, deadline=NOON + timedelta(hours=4, minutes=1))
    market.run()
    market.cancel("x")
    market.close("x", reason=101)
    market.bid("y", hours=4, deadline=NOON + timedelta(hours=4, minutes=1))

    market.run()

    assert market.grant("y") is not None


def test_two_requests_to_extend_are_each_answered_once() -> None:
    market = Market()
    market.offer("a")
    market.bid("x", hours=1)
    market.run()
    market.extend("x", NOON + timedelta(hours=2))
    market.extend("x", NOON + timedelta(hours=3))
    market.run()
    market.engine = market.new_engine()
    market.run()

    answers = [r.event for r in market.decisions() if isinstance(r.event, ExtensionGranted)]
    assert [answer.ends_at for answer in answers] == [
        NOON + timedelta(hours=2),
        NOON + timedelta(hours=3),
    ]


def test_an_offer_resumed_though_it_was_listed_is_in_the_book_once() -> None:
    market = Market()
    market.offer("a")
    market.bid("x", hours=1)
    market.run()
    market.change_offer("a", "resume")
    market.change_offer("a", "pause")
    market.bid("y", deadline=NOON + timedelta(hours=9))

    market.run()

    assert market.grant("y") is None


WORDS = st.sampled_from("abcdef")
STEPS = st.one_of(
    st.tuples(st.just("offer"), WORDS, st.integers(1, 3), st.integers(1, 4)),
    st.tuples(st.just("bid"), WORDS, st.integers(1, 4), st.integers(1, 5)),
    st.tuples(st.just("gang"), WORDS, st.integers(1, 5), st.integers(1, 5)),
    st.tuples(st.just("patient"), WORDS, st.integers(1, 3), st.integers(1, 5)),
    st.tuples(st.sampled_from(["cancel", "pause", "resume", "withdraw"]), WORDS),
    st.tuples(st.sampled_from(["reprice", "amend"]), WORDS, st.integers(1, 5)),
)


def act(market: Market, step: tuple[Any, ...], seen: set[str]) -> None:
    verb, word, *numbers = step
    if verb in ("offer", "bid", "gang", "patient"):
        name = f"{word}{len(seen)}"
        seen |= {name, word + verb}
        if verb == "offer":
            market.offer(name, host=word, gpus=numbers[0], at=numbers[1])
        else:
            market.bid(
                name,
                gpus=numbers[0],
                at=numbers[1],
                hours=2,
                deadline=market.now + timedelta(hours=3),
                gang=verb == "gang",
                patience="patient" if verb == "patient" else "immediate",
            )
        return
    for name in sorted(seen):
        if name.startswith(word) and name[1:].isdigit():
            if verb == "cancel":
                market.cancel(name)
            elif verb == "amend":
                market.amend(name, at=numbers[0], deadline=market.now + timedelta(hours=3))
            else:
                market.change_offer(name, verb, *numbers)


@given(st.lists(STEPS, max_size=25), st.sets(st.integers(0, 24)))
@settings(max_examples=150, deadline=None)
def test_grants_do_not_depend_on_how_much_is_read_at_once(
    steps: list[tuple[Any, ...]], runs: set[int]
) -> None:
    """I13. Rounds fall to the clock, so only the instant lane can be compared like this."""
    steps = [step for step in steps if step[0] != "patient"]
    eager, lazy = Market(), Market()
    seen: tuple[set[str], set[str]] = (set(), set())
    for index, step in enumerate(steps):
        act(eager, step, seen[0])
        act(lazy, step, seen[1])
        eager.run()
        if index in runs:
            lazy.engine = lazy.new_engine()
            lazy.run()
    lazy.run()

    assert outcome(lazy) == outcome(eager)


@given(st.lists(STEPS, max_size=25))
@settings(max_examples=100, deadline=None)
def test_every_round_can_be_replayed_from_its_position(steps: list[tuple[Any, ...]]) -> None:
    """I13: fold what the engine had read, clear again, get the same grants at the same prices."""
    market, seen = Market(), set[str]()
    for step in steps:
        act(market, step, seen)
        market.wait(seconds=61)
        market.run()
    log = list(market.events())

    granted = [r.event for r in log if isinstance(r.event, LeaseGranted)]
    assert replay(log) == [_plain(event) for event in granted]


def replay(log: Sequence[Any]) -> list[Any]:
    """Clear each round of a log again from the facts it had read, with code of the test's own."""
    found: list[Any] = []
    rounds = [r for r in log if isinstance(r.event, RoundCleared)]
    for cleared in rounds:
        book = Book("main")
        through = cleared.event.through
        for recorded in log:
            ours = recorded.stream.startswith("market-")
            if (ours and recorded.version < cleared.version) or (
                not ours and recorded.position <= through
            ):
                book.apply(recorded.event, recorded.position)
                book.read_to = recorded.position if not ours else book.read_to
        again = _again(book, cleared.event)
        found += [_plain(event) for event in again if isinstance(event, LeaseGranted)]
    return found


def _again(book: Book, cleared: RoundCleared) -> Sequence[Any]:
    now, round_id = from_above(cleared.at), cleared.round_id
    if cleared.certificate is not None:
        steps = dict(cleared.certificate.iterations)
        return on_round(book, now=now, round_id=round_id, steps=steps)
    clearing = clear(book, list(book.resting()), now=now, round_id=round_id)
    return decided(book, clearing, now=now, lane="instant", round_id=round_id, tell=())


def _plain(granted: Any) -> tuple[Any, ...]:
    return (granted.lease_id, granted.bid_id, granted.shares, granted.window, granted.price)


def test_the_book_reads_every_fact_it_has_a_rule_for() -> None:
    assert {
        "listings.host-taking-changed",
        "listings.offer-published",
        "listings.offer-sla-set",
        "marketplace.bid-placed",
        "marketplace.lease-closed",
    } < READS
    assert len(READS) == 52


def test_every_window_a_bid_may_use_is_known_when_it_is_placed() -> None:
    """Otherwise a bid could become possible by time alone, and nobody would look at it again."""
    market = Market()
    far = NOON + DEADLINE_AHEAD_MAX
    market.offer("a", windows=[(far - timedelta(hours=1), far)])
    market.bid("x", hours=1, deadline=far)

    market.run()

    granted = market.grant("x")
    assert granted is not None
    assert granted.window.ends_at == far
