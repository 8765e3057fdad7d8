"""Where a gang had best be: a preference between places of one price and one start."""

from __future__ import annotations

from datetime import timedelta

from marketplace.domain.facts.events import GpuRequest, LeaseGranted
from tests.conftest import NOON
from tests.marketplace.support.market import Market, named


def hosts_of(granted: LeaseGranted | None) -> set[str]:
    assert granted is not None
    return {
        word for word in "abcdefgh" if named(f"host {word}") in {s.host_id for s in granted.shares}
    }


def racks(market: Market, **hosts: tuple[str, int]) -> None:
    for word, (rack, gpus) in hosts.items():
        market.offer(word, gpus=gpus, at=1, labels=(("rack", rack),))


def test_without_a_preference_a_gang_takes_the_fewest_hosts() -> None:
    market = Market()
    racks(market, a=("r1", 4), b=("r2", 4), c=("r2", 2), d=("r2", 2))
    market.bid("x", gpus=8, gang=True)

    market.run()

    assert hosts_of(market.grant("x")) == {"a", "b"}


def test_a_gang_that_prefers_one_rack_is_in_one_where_it_can_be() -> None:
    market = Market()
    racks(market, a=("r1", 4), b=("r2", 4), c=("r2", 2), d=("r2", 2))
    market.bid("x", gpus=8, gang=True, request=GpuRequest(prefer=("label.rack",)))

    market.run()

    assert hosts_of(market.grant("x")) == {"b", "c", "d"}


def test_of_two_racks_that_would_do_it_takes_the_one_with_fewer_hosts() -> None:
    market = Market()
    racks(market, a=("r1", 2), b=("r1", 2), c=("r1", 2), d=("r2", 4))
    market.bid("x", gpus=4, gang=True, request=GpuRequest(prefer=("label.rack",)))

    market.run()

    assert hosts_of(market.grant("x")) == {"d"}


def test_what_no_rack_holds_is_in_one_region_if_that_is_preferred_next() -> None:
    market = Market()
    for word, region, rack in (("a", "eu", "r1"), ("b", "us", "r2"), ("c", "us", "r3")):
        market.offer(word, gpus=4, at=1, region=region, labels=(("rack", rack),))
    request = GpuRequest(prefer=("label.rack", "region"))
    market.bid("x", gpus=8, gang=True, request=request)

    market.run()

    assert hosts_of(market.grant("x")) == {"b", "c"}


def test_what_nothing_holds_is_in_as_few_racks_as_can_be() -> None:
    market = Market()
    racks(market, a=("r1", 3), b=("r2", 2), c=("r2", 2), d=("r3", 3))
    market.bid("x", gpus=7, gang=True, request=GpuRequest(prefer=("label.rack",)))

    market.run()

    granted = market.grant("x")
    assert granted is not None
    assert {"b", "c"} < hosts_of(granted)
    assert len(hosts_of(granted)) == 3


def test_a_preference_costs_nothing_and_waits_for_nothing() -> None:
    market = Market()
    market.offer("a", gpus=2, at=1, labels=(("rack", "r1"),))
    market.offer("b", gpus=2, at=1, labels=(("rack", "r2"),))
    market.offer("c", gpus=4, at=2, labels=(("rack", "r3"),))
    later = [(NOON + timedelta(hours=1), NOON + timedelta(days=3))]
    market.offer("d", gpus=4, at=1, labels=(("rack", "r4"),), windows=later)
    market.bid("x", gpus=4, gang=True, request=GpuRequest(prefer=("label.rack",)))

    market.run()

    granted = market.grant("x")
    assert hosts_of(granted) == {"a", "b"}
    assert granted is not None
    assert granted.window.starts_at == NOON


def test_on_one_host_linked_gpus_are_preferred_to_a_tighter_fit() -> None:
    market = Market()
    market.offer("a", gpus=4, at=1, nvlink=2)
    market.offer("b", gpus=8, at=1, nvlink=4)
    market.bid("tight", gpus=4, deadline=NOON + timedelta(hours=1))
    market.bid("linked", gpus=4, request=GpuRequest(prefer=("nvlink",)))
    market.run()
    other = Market()
    other.offer("a", gpus=4, at=1, nvlink=2)
    other.offer("b", gpus=8, at=1, nvlink=4)
    other.bid("linked", gpus=4, request=GpuRequest(prefer=("nvlink",)))
    other.run()

    assert hosts_of(market.grant("tight")) == {"a"}
    assert hosts_of(other.grant("linked")) == {"b"}


def test_in_a_round_a_gang_moves_nearer_where_that_costs_nobody_anything() -> None:
    market = Market()
    racks(market, a=("r1", 4), b=("r2", 4), c=("r2", 2), d=("r2", 2))
    request = GpuRequest(prefer=("label.rack",))
    market.bid("x", gpus=8, gang=True, patience="patient", request=request)

    market.run()

    assert hosts_of(market.grant("x")) == {"b", "c", "d"}


def test_in_a_round_a_preference_takes_nothing_from_others() -> None:
    market = Market()
    racks(market, a=("r1", 2), b=("r1", 2), c=("r2", 2))
    soon = NOON + timedelta(hours=1)
    for word in ("x", "y", "z"):
        request = GpuRequest(prefer=("label.rack",) if word == "x" else ())
        gpus = 4 if word == "x" else 1
        market.bid(word, gpus=gpus, gang=True, patience="patient", request=request, deadline=soon)

    market.run()

    assert hosts_of(market.grant("x")) == {"a", "b"}
    assert market.grant("y") is not None
    assert market.grant("z") is not None
