"""Where rounds are hours apart, one comes sooner for a bid that could not wait for the next."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from marketplace.domain.facts.events import RoundCleared
from marketplace.domain.rounds.early_round import AT_RISK_EVERY
from marketplace.replay.round import replay_round
from tests.conftest import NOON
from tests.marketplace.support.borrowed_in_rounds import NOTICE, lent
from tests.marketplace.support.early_rounds import HOUR, MINUTE, let_pass
from tests.marketplace.support.market import MARKET, Market


def rounds_of(market: Market) -> list[datetime]:
    """Return when rounds of patient bids decided anything."""
    return [
        each.event.at
        for each in market.decisions()
        if isinstance(each.event, RoundCleared) and each.event.lane == "round"
    ]


@pytest.mark.parametrize("slack", [20 * MINUTE, MINUTE / 2])
def test_a_bid_is_tried_before_its_latest_start(slack: timedelta) -> None:
    """Rounds are six hours apart; the bid comes just after one, and could start for so long."""
    market = Market()
    market.engine = market.new_engine(round_seconds=6 * 3_600)
    market.offer("a", gpus=1, at=1)
    market.bid("first", at=2, patience="patient", hours=0.1)
    market.run()
    let_pass(market, 10 * MINUTE)
    latest = market.now + slack
    market.bid("tight", at=2, patience="patient", deadline=latest + HOUR)

    let_pass(market, HOUR)

    granted = market.grant("tight")
    assert granted is not None
    assert latest - 1.5 * MINUTE <= granted.at <= latest
    assert granted.window.starts_at <= latest


def test_it_is_called_once_and_others_wait_for_their_round() -> None:
    market = Market()
    market.engine = market.new_engine(round_seconds=6 * 3_600)
    market.offer("a", gpus=1, at=1)
    market.run()
    market.bid("dear", at=9, gpus=5, patience="patient", deadline=NOON + 1.5 * HOUR)
    let_pass(market, HOUR)

    assert len(rounds_of(market)) == 1
    assert market.engine._round_at == rounds_of(market)[0]


def test_what_is_borrowed_is_taken_back_in_time_also_with_rare_rounds() -> None:
    """By the next round, six hours away, it would be too late to tell who goes."""
    market = lent()
    market.engine = market.new_engine(round_seconds=6 * 3_600)
    latest = market.now + 5 * HOUR
    let_pass(market, 5 * HOUR, step=MINUTE)

    granted = market.grant("mine")

    assert granted is not None
    [cut] = granted.cuts
    assert granted.at + NOTICE <= cut.ends_at <= granted.window.starts_at <= latest
    assert granted.at > latest - NOTICE - timedelta(minutes=41)
    assert replay_round(market.store, market=MARKET, round_id=granted.round_id).outcome == (
        "identical"
    )
    assert AT_RISK_EVERY == 10 * 60_000


def test_rounds_a_minute_apart_come_as_they_do() -> None:
    market = Market()
    market.offer("a", gpus=1, at=1)
    market.run()
    at = market.engine._round_at
    market.bid("tight", at=2, patience="patient", deadline=market.now + HOUR + MINUTE / 3)
    let_pass(market, MINUTE / 2, step=MINUTE / 12)

    assert market.engine._round_at == at
    assert market.grant("tight") is None
