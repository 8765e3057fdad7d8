"""I13: a round cleared again from the log gives what was recorded, however much came after."""

from __future__ import annotations

from datetime import time, timedelta
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.eventstore.port import Recorded
from listings.domain.events import WeeklyRule
from marketplace.domain.facts.events import GpuRequest, LeaseGranted, Patience
from marketplace.queries.market import Level, RoundUnknown
from marketplace.replay import round as replay
from marketplace.replay.round import book_at, replay_round
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, Market, OpenStore, named, rate
from tests.marketplace.support.past_rounds import busy, rounds


def test_every_round_of_both_lanes_replays_to_the_same_events() -> None:
    market = busy(Market())

    outcomes = {
        (each.lane, replay_round(market.store, market=MARKET, round_id=each.round_id).outcome)
        for each in rounds(market)
    }

    assert outcomes == {("instant", "identical"), ("round", "identical")}


def test_what_came_later_changes_nothing() -> None:
    market = busy(Market())
    before = rounds(market)
    for day in range(3):
        market.wait(days=1)
        market.offer(f"late {day}", gpus=2, at=1)
        market.bid(f"late {day}", gpus=2, at=3, patience="patient")
        market.run()
    market.change_offer("a", "withdraw")
    market.close("x")
    market.run()

    again = [replay_round(market.store, market=MARKET, round_id=each.round_id) for each in before]

    assert {each.outcome for each in again} == {"identical"}


def test_what_the_engine_has_forgotten_changes_nothing() -> None:
    market = Market()
    market.offer("a", gpus=2)
    market.bid("x", hours=1)
    market.bid("y", hours=2)  # has the other GPU for longer
    market.run()
    market.wait(hours=36)
    market.run()  # forgets both leases
    market.bid("z", hours=1)
    market.run()

    again = [replay_round(market.store, market=MARKET, round_id=e.round_id) for e in rounds(market)]

    assert [each.outcome for each in again] == ["identical"] * 3


def test_how_far_weekly_windows_were_worked_out_changes_nothing() -> None:
    market = Market()
    market.offer("a", gpus=2, weekly=nights(24))
    later = NOON + timedelta(days=12)
    for word in ("x", "y"):  # one GPU each
        market.bid(word, hours=1, start=later, deadline=later + timedelta(hours=1))
    market.run()
    market.close("x")
    market.bid("far", hours=1, start=NOON + timedelta(days=60))
    market.run()
    market.bid("z", hours=1)
    market.run()

    again = [replay_round(market.store, market=MARKET, round_id=e.round_id) for e in rounds(market)]

    assert [each.outcome for each in again] == ["identical"] * len(again)


def test_facts_that_came_while_the_engine_decided_are_not_in_its_book() -> None:
    store = OpenStore()
    market = Market(store)
    market.offer("a", gpus=1, at=1)
    market.bid("x", gpus=1, at=2)
    store.before = lambda: market.offer("cheaper", gpus=1, at="0.50")
    market.run()
    first = rounds(market)[0]

    found = book_at(store, MARKET, first.round_id)

    assert [listed.floor for listed in found.book.offers.values()] == [rate(1).nanos_per_gpu_hour]
    assert replay_round(store, market=MARKET, round_id=first.round_id).outcome == "identical"


def test_a_round_that_was_recorded_otherwise_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    market = busy(Market())
    granted = next(each for each in rounds(market) if each.grants)
    monkeypatch.setattr(replay, "on_fact", lambda book, trigger, **rest: [])

    again = replay_round(market.store, market=MARKET, round_id=granted.round_id)

    assert again.outcome == "different"
    assert again.differences == (f"{1 + granted.grants} events were recorded, 0 came out",)


def test_a_round_that_never_was_is_unknown() -> None:
    with pytest.raises(RoundUnknown):
        replay_round(busy(Market()).store, market=MARKET, round_id=uuid4())


def test_a_log_that_is_too_long_is_not_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    market = busy(Market())
    monkeypatch.setattr(replay, "FACTS_MAX", 1)

    again = replay_round(market.store, market=MARKET, round_id=rounds(market)[-1].round_id)

    assert again.outcome == "too-long"


def test_the_curves_show_the_book_just_before_the_round() -> None:
    market = Market()
    market.offer("dear", gpus=2, at=3)
    market.offer("cheap", gpus=1, at=1)
    market.offer("other", gpus=4, at=1, model="T4")
    wanted = GpuRequest(models=("H100",))
    market.bid("low", gpus=1, at="0.50", patience="patient", request=wanted)
    market.bid("high", gpus=1, at=2, patience="patient", request=wanted)
    market.run()
    cleared = rounds(market)[0]

    (curve,) = replay_round(market.store, market=MARKET, round_id=cleared.round_id).curves

    assert curve.gpu_model == "H100-80GB"
    assert curve.supply == [
        Level(rate(1).nanos_per_gpu_hour, 1),
        Level(rate(3).nanos_per_gpu_hour, 2),
    ]
    assert [(level.price_nanos, level.gpus) for level in curve.demand] == [
        (rate(2).nanos_per_gpu_hour, 1),
        (rate("0.50").nanos_per_gpu_hour, 1),
    ]
    granted = market.grant("high")
    assert granted is not None
    assert curve.granted_gpus == 1
    assert curve.low_nanos == curve.mean_nanos == granted.price.nanos_per_gpu_hour


steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["offer", "nights", "always", "bid", "later", "patient", "close", "wait", "days", "run"]
        ),
        st.integers(1, 4),
        st.integers(1, 4),
    ),
    min_size=4,
    max_size=25,
)


def nights(hours: int) -> WeeklyRule:
    """Return some hours of each evening; 24: all of every day."""
    until = time(20 - hours % 24)
    return WeeklyRule("Europe/Berlin", tuple(range(7)), time(20), until, NOON.date())


@given(steps)
@settings(max_examples=50, deadline=None)
def test_any_history_replays(history: list[tuple[str, int, int]]) -> None:
    market = Market()
    for number, (what, gpus, price) in enumerate(history):
        match what:
            case "offer":
                market.offer(str(number), gpus=gpus, at=price)
            case "nights" | "always":
                weekly = nights(24 if what == "always" else 24 - 4 * price)
                market.offer(str(number), gpus=gpus, at=price, weekly=weekly)
            case "later":
                start = market.now + timedelta(days=3 * gpus)
                market.bid(str(number), hours=price, start=start)
            case "bid" | "patient":
                patience: Patience = "immediate" if what == "bid" else "patient"
                market.bid(str(number), gpus=gpus, hours=price, at=price + 1, patience=patience)
            case "close":
                leases = [granted_bid(each) for each in market.decisions()]
                open_words = [
                    word for word in map(str, range(number)) if named(f"bid {word}") in leases
                ]
                for word in open_words[:1]:
                    market.close(word)
            case "wait":
                market.wait(minutes=gpus * price)
            case "days":
                market.wait(hours=13 * gpus)
                market.run()
                market.engine = market.new_engine() if price == 1 else market.engine
            case _:
                market.run()
    market.wait(minutes=5)
    market.run()

    for cleared in rounds(market):
        again = replay_round(market.store, market=MARKET, round_id=cleared.round_id)
        assert again.outcome == "identical", again.differences


def granted_bid(recorded: Recorded) -> object:
    return recorded.event.bid_id if isinstance(recorded.event, LeaseGranted) else None
