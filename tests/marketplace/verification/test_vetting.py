"""One grant that cannot be vouched for costs its bid a round, and nobody else anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from ledger.domain.ids import LeaseId
from marketplace.domain.book.book import Book
from marketplace.domain.clearing.fills import Clearing, Fill, decided
from marketplace.domain.decisions.decide import RoundUnsound, on_round
from marketplace.domain.facts.events import LeaseGranted, RoundCleared
from marketplace.domain.facts.faults import Fault
from marketplace.domain.rounds import batch_clearing
from marketplace.domain.rounds.vetting import CHECKS_MAX, UNVERIFIED, vouched
from marketplace.replay.round import replay_round
from tests.conftest import NOON
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import MARKET, Market, named
from tests.marketplace.support.rounds import NOW, ROUND, book_of
from tests.marketplace.support.vetting import three_bids, told


def overcharging(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    """Plant a fault in the search: it charges these bids more than their limit."""
    honest = batch_clearing.clear_round

    def clear_round(*args: Any, **said: Any) -> Clearing:
        clearing = honest(*args, **said)
        ids = {named(f"bid {word}") for word in words}

        def priced(fill: Fill) -> Fill:
            wrong = fill.bid.bid_id in ids
            return replace(fill, price=fill.bid.limit + 1) if wrong else fill

        return replace(clearing, fills=tuple(map(priced, clearing.fills)))

    monkeypatch.setattr(batch_clearing, "clear_round", clear_round)


def test_the_rest_of_the_round_is_appended_and_the_bid_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    market = three_bids()
    overcharging(monkeypatch, "x")

    with capture_logs() as logs:
        market.run()

    assert market.grant("x") is None
    assert market.grant("y") is not None and market.grant("z") is not None
    assert told(market, "x") == [UNVERIFIED]
    [line] = [line for line in logs if line["event"] == "round.grant-dropped"]
    assert "above limit" in line["fault"]
    [cleared] = [r.event for r in market.decisions() if isinstance(r.event, RoundCleared)]
    assert (cleared.grants, cleared.gpus) == (2, 2)
    audit(market.events())


def test_a_lasting_fault_fills_no_log_and_the_bid_is_served_once_it_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    market = three_bids()
    overcharging(monkeypatch, "x")
    market.run()
    decisions = len(market.decisions())

    for _ in range(3):
        market.wait(seconds=61)
        market.run()

    assert len(market.decisions()) == decisions
    monkeypatch.undo()
    market.wait(seconds=61)
    market.run()
    assert market.grant("x") is not None


def test_in_the_next_round_such_a_bid_comes_after_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it would keep what it cannot have from those who can, round after round."""
    market = Market()
    market.offer("a", gpus=1, at=1)
    deadline = NOON + timedelta(hours=1, minutes=9)
    market.bid("x", at=4, patience="patient", deadline=deadline)
    market.bid("y", at=3, patience="patient", deadline=deadline)
    overcharging(monkeypatch, "x")
    market.run()
    assert (market.grant("x"), market.grant("y")) == (None, None)

    market.wait(seconds=61)
    market.run()

    assert market.grant("y") is not None
    assert market.grant("x") is None


def test_a_round_with_a_dropped_grant_is_replayed_to_the_same_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    market = three_bids()
    overcharging(monkeypatch, "x")
    market.run()
    [cleared] = [r.event for r in market.decisions() if isinstance(r.event, RoundCleared)]

    replayed = replay_round(market.store, market=MARKET, round_id=cleared.round_id)

    assert replayed.outcome == "identical"


def test_a_recorded_round_that_is_found_unsound_today_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    market = three_bids()
    market.run()
    [cleared] = [r.event for r in market.decisions() if isinstance(r.event, RoundCleared)]
    monkeypatch.setattr("marketplace.domain.decisions.decide.faults", lambda *_: [Fault("made up")])

    replayed = replay_round(market.store, market=MARKET, round_id=cleared.round_id)

    assert replayed.outcome == "different"
    assert replayed.differences == ("it is unsound: made up",)


def cleared_by_hand(market: Market) -> tuple[Book, Clearing]:
    book = book_of(market)
    return book, batch_clearing.clear_round(book, book.patient(), now=NOW, round_id=ROUND)


def write_in(book: Book) -> Any:
    def write(clearing: Clearing) -> Any:
        return decided(book, clearing, now=NOW, lane="round", round_id=ROUND, tell=clearing.refused)

    return write


def test_what_rests_on_a_dropped_grant_is_dropped_after_it() -> None:
    book, clearing = cleared_by_hand(three_bids())
    first, second, third = (fill.lease_id for fill in clearing.fills)

    def check(book: Book, told: RoundCleared, grants: Sequence[LeaseGranted]) -> list[Fault]:
        """The second needs the first; the first is wrong."""
        ids = [granted.lease_id for granted in grants]
        assert told.grants == len(ids)
        if first in ids:
            return [Fault("is wrong", first)]
        return [Fault("rests on nothing", second)] if second in ids else []

    events, dropped = vouched(book, clearing, write_in(book), check)

    assert [fault.lease_id for fault in dropped] == [first, second]
    assert [each.lease_id for each in events if isinstance(each, LeaseGranted)] == [third]


def test_a_round_at_fault_as_a_whole_is_given_up() -> None:
    book, clearing = cleared_by_hand(three_bids())

    with pytest.raises(RoundUnsound, match="made up"):
        vouched(book, clearing, write_in(book), lambda *_: [Fault("made up")])


def test_a_round_that_never_comes_clean_is_given_up() -> None:
    book, clearing = cleared_by_hand(three_bids())
    asked = list[int]()

    def check(book: Book, told: RoundCleared, grants: Sequence[LeaseGranted]) -> list[Fault]:
        asked.append(len(grants))
        return [Fault("never", LeaseId(ROUND))]

    with pytest.raises(RoundUnsound, match="never"):
        vouched(book, clearing, write_in(book), check)
    assert len(asked) == CHECKS_MAX


def test_all_grants_may_be_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    market = three_bids()
    overcharging(monkeypatch, "x", "y", "z")
    book = book_of(market)
    warned = list[Fault]()

    [only] = on_round(book, now=NOW, round_id=ROUND, warn=warned.extend)

    assert isinstance(only, RoundCleared)
    assert only.grants == 0
    assert {each.reason for each in only.unmatched} == {UNVERIFIED}
    assert len(warned) == 3
