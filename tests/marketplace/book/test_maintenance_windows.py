"""Nothing is leased into maintenance from when it is announced; beside it all is as ever."""

from __future__ import annotations

from datetime import timedelta

import pytest

from listings.domain.divisions import divide
from listings.domain.events import Division
from marketplace.domain.facts.events import (
    ExtensionDeclined,
    GpuRequest,
    LeaseGranted,
    Patience,
    RoundCleared,
)
from marketplace.domain.orderbook.calendar import Taken, united
from marketplace.replay.round import replay_round
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, Market, gpus_of

HOUR = timedelta(hours=1)
PATIENCE = pytest.mark.parametrize("patience", ["immediate", "patient"])


def window_of(market: Market, word: str) -> tuple[object, object] | None:
    granted = market.grant(word)
    return None if granted is None else (granted.window.starts_at, granted.window.ends_at)


@PATIENCE
def test_a_bid_is_granted_before_or_after_it_and_never_into_it(patience: Patience) -> None:
    market = Market()
    market.offer("a", gpus=1, windows=[(NOON, NOON + 6 * HOUR)])
    market.maintain("a", NOON + HOUR, NOON + 3 * HOUR)
    market.bid("fits", hours=1, at=5, patience=patience)
    market.bid("long", hours=2, at=5, patience=patience, deadline=NOON + 6 * HOUR)

    market.run()

    fits, long = window_of(market, "fits"), window_of(market, "long")
    assert fits is not None and fits[1] <= NOON + HOUR  # type: ignore[operator]
    assert long is not None and long[0] >= NOON + 3 * HOUR  # type: ignore[operator]


@PATIENCE
def test_only_the_gpus_that_are_named_rest(patience: Patience) -> None:
    market = Market()
    market.offer("a", gpus=2, windows=[(NOON, NOON + HOUR)])
    market.maintain("a", NOON, NOON + HOUR, 1)
    market.bid("b", hours=1, at=5, patience=patience)
    market.bid("two", gpus=2, hours=1, at=5, patience=patience)
    market.run()
    granted = market.grant("b")
    assert granted is not None and granted.shares[0].gpu_uuids == ("a:0",)
    assert market.grant("two") is None


@PATIENCE
def test_cancelled_it_is_offered_to_who_waits(patience: Patience) -> None:
    market = Market()
    market.offer("a", gpus=1, windows=[(NOON, NOON + 3 * HOUR)])
    market.maintain("a", NOON, NOON + 3 * HOUR)
    market.bid("b", hours=1, at=5, patience=patience, deadline=NOON + 3 * HOUR)
    market.run()
    assert market.grant("b") is None

    market.wait(minutes=2)
    market.maintain("a", NOON, None)
    market.run()

    assert market.grant("b") is not None


def test_an_offer_that_comes_after_the_announcement_rests_as_well() -> None:
    market = Market()
    market.offer("a", gpus=1, at=9, windows=[(NOON, NOON + HOUR)])
    market.maintain("a", NOON, NOON + HOUR)
    market.offer("late", host="a", gpus=1, windows=[(NOON, NOON + HOUR)])
    market.bid("b", hours=1, at=5)
    market.run()
    assert market.grant("b") is None


def test_all_parts_of_a_card_rest_with_it() -> None:
    market = Market()
    halves = Division("timeslice", count=2)
    market.offer("a", gpus=1, division=halves, windows=[(NOON, NOON + HOUR)])
    market.maintain("a", NOON, NOON + HOUR, 0)
    share = GpuRequest(models=(divide(gpus_of("a", 1, "H100-80GB")[0], halves)[0].model,))
    market.bid("b", hours=1, at=5, request=share)
    market.run()
    assert market.grant("b") is None


def test_no_lease_is_extended_into_it() -> None:
    market = Market()
    market.offer("a", gpus=1, windows=[(NOON, NOON + 4 * HOUR)])
    market.bid("b", hours=1, at=5)
    market.run()
    assert market.grant("b") is not None
    market.maintain("a", NOON + 2 * HOUR, NOON + 3 * HOUR)
    market.extend("b", NOON + 2 * HOUR + HOUR / 2)
    market.run()
    (declined,) = [e.event for e in market.decisions() if isinstance(e.event, ExtensionDeclined)]
    assert declined.reason == "taken"


def test_a_round_with_windows_replays_to_the_same_grants() -> None:
    market = Market()
    for host in "ab":
        market.offer(host, gpus=2, windows=[(NOON, NOON + 3 * HOUR)])
    market.maintain("a", NOON + HOUR, NOON + 2 * HOUR, 0)
    market.maintain("b", NOON, NOON + 3 * HOUR)
    for word in range(5):
        deadline = NOON + 3 * HOUR
        market.bid(f"w{word}", hours=1, at=3, patience="patient", deadline=deadline)
    market.run()
    cleared = [e.event for e in market.decisions() if isinstance(e.event, RoundCleared)]
    grants = [e.event for e in market.decisions() if isinstance(e.event, LeaseGranted)]
    assert {u for g in grants for s in g.shares for u in s.gpu_uuids} <= {"a:0", "a:1"}
    assert grants
    replayed = replay_round(market.store, market=MARKET, round_id=cleared[-1].round_id)
    assert replayed.outcome == "identical"


def test_what_is_held_stays_whole_beside_what_is_closed() -> None:
    held = (Taken(10, 20, "x"), Taken(30, 40, "y"))  # type: ignore[arg-type]
    closed = (Taken(0, 15, None), Taken(18, 35, None), Taken(50, 60, None))  # type: ignore[arg-type]
    assert [span[:2] for span in united(held, closed)] == [
        (0, 10),
        (10, 20),
        (20, 30),
        (30, 40),
        (50, 60),
    ]
