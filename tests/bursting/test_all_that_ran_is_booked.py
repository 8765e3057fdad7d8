"""The ledger counts what the cloud charges: for machines on record, lost, strange and forgotten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursting.clouds.faults import Verb, When
from bursting.clouds.port import CloudTrouble, CloudUnavailable
from bursting.commands.renting import VISIBLE_WITHIN
from bursting.domain.capacity import InstancePrice, InstanceSpec
from bursting.domain.events import StrayEnded, StrayFound
from bursting.reaper import ORPHAN_GRACE
from ledger.domain.refusal import Refusal
from tests.bursting.bids_and_offers import PLATFORM, RULES, cloud_offer
from tests.bursting.market import BID, TENANT, Killed, Market

EIGHT = cloud_offer("eight-l4", gpus=8, nanos=8_000_000_000)


def let_all_end(market: Market) -> None:
    """Bring everything to its end, as loops that go on do."""
    market.fuse.kill_at = None
    market.cloud.faults._failures.clear()
    market.cancel_bid()
    for _ in range(12):
        market.tick()
        market.reap()
        market.later(minutes=5)
    market.later(days=1)
    for _ in range(3):
        market.tick()
        market.reap()
    market.settle()


def test_a_launch_whose_answer_was_lost_is_booked_though_its_bid_has_gone() -> None:
    market = Market()
    market.cloud.faults.invisible_polls = 2
    market.cloud.faults.fail("launch", when="after")
    instance_id = market.spill()
    market.tick()
    market.cancel_bid()
    market.tick()
    assert market.instance(instance_id).state == "refused"
    market.later(minutes=30)

    market.reap()
    assert market.reap().orphans_ended == ("fake-000001",)
    market.settle()

    stray = market.stray()
    assert (stray.found.tenant_id, stray.found.bid_id) == (TENANT, BID.bid_id)
    assert stray.found.instance_id == instance_id
    assert market.cost() == market.billed() == 804_800_000 // 2


def test_a_machine_that_shows_up_late_is_booked_to_its_end() -> None:
    market = Market()
    market.cloud.faults.invisible_polls = 3
    instance_id = market.spill()
    market.tick()
    market.later(seconds=VISIBLE_WITHIN.total_seconds())
    market.tick()
    assert market.instance(instance_id).state == "lost"
    market.later(minutes=50)

    for _ in range(3):
        market.reap()
    market.settle()

    assert market.alive() == set()
    assert market.cost() == market.billed() == 804_800_000


def test_what_was_booked_too_much_for_a_lost_machine_is_taken_back() -> None:
    market = Market()
    market.cloud.faults.invisible_polls = 3
    market.spill()
    market.tick()
    market.later(minutes=3)
    (rented,) = market.cloud._rented.values()
    rented.is_ended = True
    market.cloud.bill()
    market.later(minutes=7)
    market.tick()
    market.settle()
    assert market.cost() == 804_800_000 // 6

    for _ in range(3):
        market.reap()
    market.settle()

    assert market.cost() == market.billed() == 804_800_000 // 20
    (ended,) = market.events(StrayEnded)
    assert ended.cost.nanos < 0


def test_four_attempts_for_one_bid_book_four_machines() -> None:
    market = Market()
    market.cloud.faults.invisible_polls = 4
    for _ in range(RULES.attempts_max):
        market.tick()
        instance_id = market.spill()
        market.cloud.faults.fail("launch", times=1, when="after")
        market.tick()
        market.later(seconds=RULES.boot_seconds)
        market.cloud.faults.fail("launch", times=1)
        market.tick()
        assert market.instance(instance_id).reason == "unavailable"
        market.later(hours=1)
    assert len(market.cloud._rented) == RULES.attempts_max

    for _ in range(6):
        market.reap()
    market.settle()

    assert market.alive() == set()
    assert market.cost() == market.billed() > 0
    assert len(market.events(StrayFound)) == RULES.attempts_max
    assert market.month().committed_nanos() == market.billed()


def test_a_machine_that_ended_before_anybody_saw_it_is_booked() -> None:
    market = Market()
    market.cloud.faults.fail("launch", when="after")
    market.spill()
    market.tick()
    market.later(minutes=6)
    end_all(market)
    market.cancel_bid()
    market.later(days=1)
    market.tick()
    market.reap()
    market.settle()

    assert market.cost() == market.billed() == 804_800_000 // 10


def test_a_machine_that_nobody_is_known_for_is_booked_to_the_platform() -> None:
    market = Market()
    start_stray(
        market, {"offpeak:owner": str(PLATFORM), "offpeak:bid": "x", "offpeak:instance": "/"}
    )
    market.later(hours=1)

    done = market.reap()
    market.settle()

    stray = market.stray()
    assert done.orphans_ended == done.booked == ("fake-000001",)
    assert (stray.found.tenant_id, stray.found.bid_id, stray.found.instance_id) == (None,) * 3
    assert stray.found.owner_id == PLATFORM
    assert market.cost() == market.billed() == 804_800_000


def test_a_bid_named_by_a_tag_names_its_tenant() -> None:
    market = Market()
    start_stray(market, {"offpeak:owner": str(PLATFORM), "offpeak:bid": str(BID.bid_id)})
    market.later(hours=1)

    market.reap()

    assert market.stray().found.tenant_id == TENANT


def test_a_machine_that_the_cloud_forgot_is_booked_to_when_it_is_missed() -> None:
    market = Market()
    market.cloud.faults.terminating_polls = 99
    start_stray(market, {"offpeak:owner": str(PLATFORM)})
    market.later(hours=1)
    assert market.reap().booked == ()
    market.cloud.remembers = timedelta(minutes=20)
    market.later(minutes=30)

    assert market.reap().booked == ("fake-000001",)
    market.settle()

    assert market.stray().is_over
    assert market.cost() == 804_800_000 * 3 // 2


def test_a_machine_is_booked_to_the_end_that_the_cloud_tells_however_late_we_look() -> None:
    market = Market()
    instance_id = market.listed()
    market.later(minutes=15)
    end_all(market)
    market.later(hours=2)

    market.tick()

    assert market.instance(instance_id).state == "lost"
    assert market.cost() == market.billed() == 804_800_000 // 4


def start_stray(market: Market, tags: dict[str, str]) -> None:
    market.cloud.launch(
        InstanceSpec(instance_type="one-l4", zone="zone-a"),
        token=f"nobody-{len(market.cloud._rented)}",
        tags=tags,
        ttl=timedelta(days=1),
        max_price=InstancePrice(10**12),
        environment={},
    )


@dataclass(frozen=True)
class Fail:
    verb: Verb
    when: When


@dataclass(frozen=True)
class Delay:
    invisible: int
    pending: int
    terminating: int


@dataclass(frozen=True)
class Kill:
    after_steps: int


Move = str | int | Fail | Delay | Kill


def report(market: Market) -> None:
    for instance_id in market.intended():
        market.report_gpus(instance_id)


def end_all(market: Market) -> None:
    for rented in market.cloud._rented.values():
        rented.is_ended = True
    market.cloud.bill()


def acts() -> dict[str, Callable[[Market], object]]:
    return {
        "spill": Market.spill,
        "tick": Market.tick,
        "reap": Market.reap,
        "cancel": Market.cancel_bid,
        "report": report,
        "stray": lambda market: start_stray(market, {"offpeak:owner": str(PLATFORM)}),
        "other": lambda market: market.cloud.faults.instead.append(EIGHT),
        "cloud-ends": end_all,
    }


moves = st.lists(
    st.one_of(
        st.sampled_from(sorted(acts())),
        st.builds(
            Fail,
            st.sampled_from(["launch", "terminate", "describe", "find"]),
            st.sampled_from(["before", "after"]),
        ),
        st.builds(Delay, st.integers(0, 9), st.integers(0, 3), st.integers(0, 4)),
        st.builds(Kill, st.integers(1, 14)),
        st.integers(1, 4_000),
    ),
    max_size=30,
)


@settings(max_examples=120)
@given(moves=moves)
def test_whatever_happened_the_ledger_counts_what_the_cloud_charges(moves: list[Move]) -> None:
    market = Market()
    for move in moves:
        try:
            do(market, move)
        except (Refusal, CloudTrouble, Killed):
            continue

    let_all_end(market)

    assert market.alive() == set()
    assert market.on_record() == set()
    assert market.cost() == market.billed()
    assert market.month().committed_nanos() == market.billed()
    assert market.month().set_aside == {}


def do(market: Market, move: Move) -> None:
    faults = market.cloud.faults
    match move:
        case str():
            acts()[move](market)
        case Fail(verb, when):
            faults.fail(verb, when=when)
        case Delay(invisible, pending, terminating):
            faults.invisible_polls, faults.pending_polls = invisible, pending
            faults.terminating_polls = terminating
        case Kill(after_steps):
            market.fuse.kill_at = market.fuse.burnt + after_steps
        case int(seconds):
            market.later(seconds=seconds)


def test_a_list_that_fails_books_nothing() -> None:
    market = Market()
    start_stray(market, {"offpeak:owner": str(PLATFORM)})
    market.later(seconds=ORPHAN_GRACE.total_seconds())
    market.cloud.faults.fail("find")

    with pytest.raises(CloudUnavailable):
        market.reap()

    assert market.events(StrayFound) == []
