"""For a bid that waits, the smallest single change that helps."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ledger.domain.ids import BidId
from marketplace.domain.facts.events import BidPlaced, GpuRequest
from marketplace.explain.bid_advice import Change, advise
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, Market, named, rate

HOUR = timedelta(hours=1)


def advice(market: Market, word: str = "x") -> dict[str, Change]:
    found = advise(market.store, market=MARKET, bid_id=named(f"bid {word}"), now=market.now)
    assert found is not None
    return {change.what: change for change in found}


def with_changes(market: Market, change: Change, word: str = "x") -> bool:
    """Tell if the bid is granted in a market that is the same but for the change."""
    again = Market(now=market.now)
    values: dict[str, Any] = {"limit": change.limit, "deadline": change.deadline}
    values |= {"gpus": change.gpus}
    if change.duration is not None:
        values["duration_seconds"] = int(change.duration.total_seconds())
    values = {name: value for name, value in values.items() if value is not None}
    for recorded in market.events():
        event = recorded.event
        if isinstance(event, BidPlaced) and event.bid_id == named(f"bid {word}"):
            event = replace(event, **values)
        if not recorded.stream.startswith("market-"):
            again.put(recorded.stream, event)
    again.run()
    return BidId(named(f"bid {word}")) in again.grants()


def test_a_limit_below_every_floor_is_to_be_raised_to_the_lowest() -> None:
    market = Market()
    market.offer("a", gpus=1, at=3)
    market.offer("b", gpus=1, at=4)
    market.bid("x", at=2)
    market.run()

    found = advice(market)

    assert set(found) == {"limit"}
    assert found["limit"].limit == rate(3)
    assert with_changes(market, found["limit"])


def test_each_change_alone_is_enough_and_is_the_smallest() -> None:
    market = Market()
    market.offer("a", gpus=2, at=1, windows=[(NOON, NOON + 2 * HOUR)])
    market.offer("later", gpus=4, at=1, windows=[(NOON + 10 * HOUR, NOON + 20 * HOUR)])
    market.bid("x", gpus=4, hours=2, at=2, deadline=NOON + 3 * HOUR)
    market.run()

    found = advice(market)

    assert set(found) == {"deadline", "gpus"}
    assert found["deadline"].deadline == NOON + 12 * HOUR
    assert found["gpus"].gpus == 2
    assert all(with_changes(market, change) for change in found.values())
    earlier = replace(found["deadline"], deadline=NOON + 12 * HOUR - timedelta(minutes=1))
    assert not with_changes(market, earlier)


def test_a_lease_too_long_for_any_window_is_to_be_shorter() -> None:
    market = Market()
    market.offer("a", gpus=1, at=1, windows=[(NOON, NOON + 2 * HOUR)])
    market.bid("x", hours=5, at=2)
    market.run()

    found = advice(market)

    assert found["duration"].duration == 2 * HOUR
    assert with_changes(market, found["duration"])


@pytest.mark.parametrize(
    ("what", "request_"),
    [
        ("models", GpuRequest(models=("A100",))),
        ("region", GpuRequest(region="us")),
        ("memory", GpuRequest(memory_mib_min=200_000)),
        ("nvlink", GpuRequest(nvlink=True)),
        ("labels", GpuRequest(labels=(("team", "x"),))),
        ("notice", GpuRequest(notice_seconds_min=86_400)),
        ("reclaim", GpuRequest(reclaim_fee_ppm_min=900_000)),
        ("grace", GpuRequest(grace_seconds_min=60)),
        ("compute-capability", GpuRequest(compute_capability_min="12.0")),
    ],
)
def test_what_is_asked_for_in_vain_is_to_be_left_out(what: str, request_: GpuRequest) -> None:
    market = Market()
    market.offer("a", gpus=1, at=1)
    market.bid("x", at=2, request=request_)
    market.run()

    found = advice(market)

    assert set(found) == {what}
    change = found[what]
    assert (change.gpu_models, change.region, change.floor) == (("H100-80GB",), "eu", rate(1))


def test_a_bid_too_large_for_a_host_is_to_be_spread() -> None:
    market = Market()
    market.offer("a", gpus=2, at=1)
    market.offer("b", gpus=2, at=1)
    market.bid("x", gpus=4, at=2)
    market.run()

    assert set(advice(market)) == {"placement", "gpus"}


def test_two_things_in_the_way_leave_no_single_change() -> None:
    market = Market()
    market.offer("a", gpus=1, at=3)
    market.bid("x", at=2, request=GpuRequest(region="us"))
    market.run()

    assert advice(market) == {}


def test_a_bid_that_fits_needs_none_and_one_that_is_over_has_none() -> None:
    market = Market()
    market.offer("a", gpus=1, at=1)
    market.bid("patient", at=2, patience="patient")

    assert advice(market, "patient") == {}
    market.cancel("patient")
    assert advise(market.store, market=MARKET, bid_id=named("bid patient"), now=market.now) is None
