"""A mistake in a rule costs the grant, the round or the answer that it is in, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from marketplace import round_time
from marketplace.domain.book.book import Book
from marketplace.domain.clearing import continuous
from marketplace.domain.decisions import decide
from marketplace.domain.decisions.decide import RoundUnsound, on_round
from marketplace.domain.facts.events import BidPlaced, LeaseGranted, RoundCleared
from marketplace.domain.facts.faults import Fault
from marketplace.domain.rounds import batch_clearing
from marketplace.domain.rounds.vetting import UNVERIFIED
from marketplace.domain.verification.verify_round import faults
from marketplace.queries import books
from marketplace.queries.books import MarketCannotTell, book_of, explain_bid
from marketplace.replay.round import replay_round
from tests.conftest import NOON
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import MARKET, Market, named
from tests.marketplace.support.rounds import NOW, ROUND
from tests.marketplace.support.rounds import book_of as rounds_book
from tests.marketplace.support.vetting import three_bids, told


class Odd(Exception):
    """Nobody expects it."""


def breaking_at(*words: str) -> Any:
    """Return the check, which breaks off where these bids are all granted something."""
    ids = {named(f"bid {word}") for word in words}

    def check(book: Book, cleared: RoundCleared, grants: Sequence[LeaseGranted]) -> list[Fault]:
        if ids <= {granted.bid_id for granted in grants}:
            raise Odd("no idea")
        return faults(book, cleared, grants)

    return check


def test_a_grant_whose_check_breaks_off_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    market = three_bids()
    monkeypatch.setattr(decide, "faults", breaking_at("y"))

    with capture_logs() as logs:
        market.run()

    assert market.grant("x") is not None and market.grant("z") is not None
    assert market.grant("y") is None
    assert told(market, "y") == [UNVERIFIED]
    [line] = [line for line in logs if line["event"] == "round.grant-dropped"]
    assert "broke off: Odd" in line["fault"]
    audit(market.events())


def test_of_grants_that_break_a_check_together_the_last_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    market = three_bids()
    monkeypatch.setattr(decide, "faults", breaking_at("x", "z"))

    market.run()

    assert [market.grant(word) is not None for word in "xyz"] == [True, True, False]


def test_a_round_that_breaks_off_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    market = three_bids()
    market.offer("b", gpus=1, at=1)

    def clear_round(*_: Any, **__: Any) -> Any:
        raise Odd("in the search")

    monkeypatch.setattr(batch_clearing, "clear_round", clear_round)
    market.bid("now", at=2)
    with capture_logs() as logs:
        market.run()
    assert market.grant("now") is not None
    assert [market.grant(word) for word in "xyz"] == [None, None, None]
    assert "could not be cleared" in next(
        line["faults"] for line in logs if line["event"] == "round.unsound"
    )

    monkeypatch.undo()
    market.wait(seconds=61)
    market.run()
    assert all(market.grant(word) is not None for word in "xyz")


def test_a_round_that_cannot_be_written_down_is_not_appended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def decided(*_: Any, **__: Any) -> Any:
        raise Odd("in writing")

    monkeypatch.setattr(decide, "decided", decided)
    with pytest.raises(RoundUnsound, match="written down"):
        on_round(rounds_book(three_bids()), now=NOW, round_id=ROUND)


def test_a_fact_on_which_a_decision_breaks_off_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    market = Market()
    market.offer("a", gpus=2, at=1)
    market.bid("odd")
    market.bid("even")
    honest = continuous.clear

    def clear(book: Book, bids: Any, **said: Any) -> Any:
        if bids is not None and any(bid.bid_id == named("bid odd") for bid in bids):
            raise Odd("in the instant lane")
        return honest(book, bids, **said)

    monkeypatch.setattr(decide, "clear", clear)
    with capture_logs() as logs:
        market.run()

    assert market.grant("odd") is None
    assert market.grant("even") is not None
    assert [line["event"] for line in logs] == ["fact.undecided"]
    monkeypatch.undo()
    market.offer("b", gpus=1, at=0.5)
    market.run()
    assert market.grant("odd") is not None


def test_new_supply_goes_to_all_but_a_bid_at_which_it_breaks_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    market = Market()
    market.bid("odd", at=9)
    market.bid("even")
    market.bid("late", at=0.5)
    market.run()
    honest = continuous.clear

    def clear(book: Book, bids: Any, **said: Any) -> Any:
        some = book.resting(said["hosts"]) if bids is None else bids
        if any(bid.bid_id == named("bid odd") for bid in some):
            raise Odd("in the instant lane")
        return honest(book, bids, **said)

    monkeypatch.setattr(decide, "clear", clear)
    market.offer("a", gpus=2, at=1)
    with capture_logs() as logs:
        market.run()

    assert [market.grant(word) is not None for word in ("odd", "even")] == [False, True]
    [line] = logs
    assert line["event"] == "fact.bid-left-out" and line["bid"] == str(named("bid odd"))
    [cleared] = [e.event for e in market.decisions() if isinstance(e.event, RoundCleared)][-1:]
    again = replay_round(market.store, market=MARKET, round_id=cleared.round_id)
    assert again.outcome == "identical", again.differences


def test_a_replay_that_breaks_off_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    market = three_bids()
    market.run()
    [cleared] = [r.event for r in market.decisions() if isinstance(r.event, RoundCleared)]

    def check(*_: Any) -> Any:
        raise Odd("today")

    monkeypatch.setattr("marketplace.replay.round.on_round", check)
    replayed = replay_round(market.store, market=MARKET, round_id=cleared.round_id)

    assert replayed.outcome == "different"
    assert "broke off" in replayed.differences[0]


def test_an_answer_that_breaks_off_is_a_refusal_and_the_next_one_is_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    market = three_bids()
    bid_id = named("bid x")

    def explain(*_: Any, **__: Any) -> Any:
        raise AssertionError("explained wrongly")

    monkeypatch.setattr(Book, "explain", explain)
    with pytest.raises(MarketCannotTell), capture_logs() as logs:
        explain_bid(market.store, market=MARKET, bid_id=bid_id, now=NOON)
    assert [line["event"] for line in logs] == ["book.broken"]

    monkeypatch.undo()
    assert explain_bid(market.store, market=MARKET, bid_id=bid_id, now=NOON) is not None


def test_a_preview_of_a_small_round_is_what_the_round_gives() -> None:
    """Three bids want two GPUs: which two is found out in both alike, to the very price."""
    market = Market()
    market.offer("a", gpus=2, at=1, windows=[(NOON, NOON + timedelta(hours=2))])
    market.offer("b", gpus=1, at=1.5, windows=[(NOON, NOON + timedelta(hours=3))])
    end = NOON + timedelta(hours=3)
    for word, gpus, hours, at in (("x", 1, 2, 4), ("y", 2, 1, 3.5), ("z", 1, 3, 2)):
        market.bid(word, gpus=gpus, hours=hours, at=at, patience="patient", deadline=end)
    market.bid("w", gpus=1, hours=1, at=3, patience="patient", deadline=end)
    book = rounds_book(market)
    bid = book.bids.pop(named("bid w"))  # type: ignore[call-overload]  # a bid's id
    assert isinstance(bid.terms, BidPlaced)

    previewed = books._cleared_with(book, bid, NOW)

    whole = rounds_book(market)
    events = on_round(
        whole, now=NOW, round_id=ROUND, enough=lambda: False, late=lambda stage: False
    )
    granted = [each for each in events if isinstance(each, LeaseGranted)]
    assert {(fill.bid.bid_id, fill.window, fill.price) for fill in previewed.fills} == {
        (each.bid_id, each.window, each.price.nanos_per_gpu_hour) for each in granted
    }
    with book_of(market.store, MARKET) as lent:
        assert bid.bid_id in lent.bids


def test_stages_have_a_time_of_their_own_together() -> None:
    """Two seconds between stages do not count, two and a half in them do."""
    clock = iter((0.0, 1.0, 3.0, 4.0, 4.5))
    late = round_time.stopwatch(2.0, lambda: next(clock))

    asked = [late(name) for name in ("own", "own", "sweep", "sweep", "sweep")]

    assert asked == [False, False, False, False, True]
