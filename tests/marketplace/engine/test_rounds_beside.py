"""A round that is out while the market goes on: who comes meanwhile waits for nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from marketplace.domain.decisions.decide import Guards, RoundUnsound
from marketplace.domain.decisions.meanwhile import OVERTAKEN
from marketplace.engine import Engine
from tests.conftest import NOON
from tests.marketplace.support.beside import Hold, replayed, rounds_of
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import MARKET, Market, named

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rounds take as long as they do: how far a slow machine comes is not the matter here."""
    monkeypatch.setattr("marketplace.round_beside.guards_of_a_round", Guards)


@pytest.fixture
def hold() -> Hold:
    return Hold()


@pytest.fixture
def market(hold: Hold) -> Market:
    """Return a market with two GPUs, whose engine works rounds out beside itself."""
    market = Market()
    market.engine = Engine(market.store, MARKET, beside=hold)
    market.offer("a", gpus=2, at=1, windows=[(NOON, NOON + 4 * HOUR)])
    return market


def patient(market: Market, word: str, *, gpus: int = 1, at: float = 3, hours: float = 4) -> None:
    """Let a bid for rounds wait. All that is listed is four hours, from now on."""
    market.bid(word, gpus=gpus, hours=hours, at=at, deadline=NOON + 4 * HOUR, patience="patient")


def test_an_immediate_bid_is_decided_on_while_a_round_is_out(market: Market, hold: Hold) -> None:
    patient(market, "p")
    market.run()
    assert len(hold.out) == 1 and market.grant("p") is None

    market.bid("now", gpus=1, hours=1, at=2)
    market.run()

    assert market.grant("now") is not None
    assert market.grant("p") is None
    hold.let_go()
    market.run()
    assert market.grant("p") is not None
    [cleared] = rounds_of(market)
    assert cleared.posed is not None and cleared.posed.through < cleared.through
    audit(market.events())
    replayed(market)


def test_what_somebody_took_meanwhile_is_not_granted_again(market: Market, hold: Hold) -> None:
    patient(market, "p", gpus=2)
    market.run()
    market.bid("now", gpus=1, hours=4, at=2)
    market.run()
    hold.let_go()

    market.run()

    assert market.grant("now") is not None and market.grant("p") is None
    [cleared] = rounds_of(market)
    assert [each.reason for each in cleared.unmatched] == [OVERTAKEN]
    assert cleared.grants == 0 and cleared.certificate is not None
    assert cleared.certificate.welfare_nanos == 0
    replayed(market)


def test_who_is_overtaken_is_placed_anew_where_there_is_room(market: Market, hold: Hold) -> None:
    patient(market, "p")
    patient(market, "q")
    market.run()
    market.bid("now", gpus=1, hours=4, at=2)
    market.offer("b", gpus=1, at=2, windows=[(NOON, NOON + 4 * HOUR)])
    market.run()
    hold.let_go()

    market.run()

    assert all(market.grant(each) for each in ("now", "p", "q"))
    [cleared] = rounds_of(market)
    assert cleared.grants == 2 and not cleared.unmatched
    audit(market.events())
    replayed(market)


CHANGES: dict[str, Callable[[Market], object]] = {
    "bid cancelled": lambda market: market.cancel("p"),
    "bid amended": lambda market: market.amend("p", at=2, deadline=NOON + 4 * HOUR),
    "offer withdrawn": lambda market: market.change_offer("a", "withdraw", 1),
    "offer paused": lambda market: market.change_offer("a", "pause", 1),
    "offer dearer": lambda market: market.change_offer("a", "reprice", 9),
    "offer cheaper": lambda market: market.change_offer("a", "reprice", 0.5),
    "terms changed": lambda market: market.change_terms("a", notice_seconds=60),
    "host silent": lambda market: market.health("a", "silent"),
    "nothing": lambda market: None,
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_meanwhile_the_round_is_sound(
    market: Market, hold: Hold, change: str
) -> None:
    patient(market, "p")
    patient(market, "q", at=2.5)
    market.run()
    CHANGES[change](market)
    market.run()
    hold.let_go()
    market.run()
    market.wait(minutes=1)
    market.run()
    hold.let_go()
    market.run()

    audit(market.events())
    replayed(market)


def test_there_is_one_round_at_a_time(market: Market, hold: Hold) -> None:
    patient(market, "p", hours=1)
    patient(market, "q", hours=1, at=0.5)
    market.run()
    market.wait(minutes=5)

    market.run()
    assert len(hold.out) == 1

    hold.let_go()
    market.run()
    assert len(hold.out) == 2, "the next was overdue"


def test_a_bid_whose_last_chance_is_the_round_that_is_out_is_not_ended(
    market: Market, hold: Hold
) -> None:
    patient(market, "p")
    market.run()
    market.wait(seconds=3)
    market.run()
    hold.let_go()

    market.run()

    assert market.grant("p") is not None


def test_a_round_that_cannot_be_vouched_for_is_told_as_lost(
    market: Market, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsound(*_: object, **__: object) -> None:
        raise RoundUnsound("a GPU is held twice")

    patient(market, "p")
    market.run()
    hold.let_go()
    with monkeypatch.context() as broken:
        broken.setattr("marketplace.round_beside.on_return", unsound)
        market.run()

    assert market.grant("p") is None
    assert market.engine.round_words == "lost: it was found unsound"


def test_a_round_that_is_lost_is_told_and_the_next_one_serves_all(
    market: Market, hold: Hold
) -> None:
    patient(market, "p", hours=1)
    market.run()
    hold.out[-1].lose()

    market.run()

    assert market.engine.round_words == "lost: it was ended by signal 9"
    assert not rounds_of(market)
    market.wait(minutes=1)
    market.run()
    hold.let_go()
    market.run()
    assert market.grant("p") is not None
    assert market.engine.round_words.startswith("back after ")
    replayed(market)


def test_a_fenced_engine_ends_its_round_and_grants_nothing_of_it(
    market: Market, hold: Hold
) -> None:
    patient(market, "p")
    market.run()
    other = market.new_engine()
    market.bid("now", gpus=1, hours=1, at=2)
    other.run_once(now=market.now)
    hold.let_go()

    assert market.run() == 0
    assert hold.out[0].stopped

    market.run()
    assert len(market.grants()) == 2
    audit(market.events())


def test_a_bid_that_is_granted_at_once_is_not_granted_by_the_round(
    market: Market, hold: Hold
) -> None:
    patient(market, "p", at=0.5)
    patient(market, "q")
    market.run()
    market.cancel("q")
    market.bid("both", gpus=2, hours=4, at=2)
    market.run()
    hold.let_go()
    market.run()

    assert set(market.grants()) == {named("bid both")}
    audit(market.events())
    replayed(market)


def test_without_patient_bids_nothing_is_forked(market: Market, hold: Hold) -> None:
    market.bid("now", gpus=1, hours=1, at=2)
    market.run()

    assert not hold.out
