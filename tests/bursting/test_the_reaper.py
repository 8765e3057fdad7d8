"""After a pass of the reaper the cloud runs what is on record, and nothing else (I10)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursting.clouds.faults import Verb, When
from bursting.clouds.port import CloudTrouble, CloudUnavailable, Instance
from bursting.domain.capacity import InstancePrice, InstanceSpec
from bursting.reaper import ORPHAN_GRACE
from ledger.domain.refusal import Refusal
from tests.bursting.bids_and_offers import PLATFORM
from tests.bursting.market import Killed, Market

SPEC = InstanceSpec(instance_type="one-l4", zone="zone-a")


def orphan(market: Market, *, tags: dict[str, str] | None = None) -> Instance:
    return market.cloud.launch(
        SPEC,
        token=f"nobody-{len(market.cloud._rented)}",
        tags={"offpeak:owner": str(PLATFORM)} if tags is None else tags,
        ttl=timedelta(days=1),
        max_price=InstancePrice(10**12),
        environment={},
    )


def test_a_machine_under_our_tags_without_a_record_is_ended_after_a_grace() -> None:
    market = Market()
    found = orphan(market)

    assert market.reap().orphans_left == (found.instance_id,)
    market.later(seconds=ORPHAN_GRACE.total_seconds())
    assert market.reap().orphans_ended == (found.instance_id,)

    assert market.alive() == set()


def test_a_machine_of_another_installation_is_left_alone() -> None:
    market = Market()
    orphan(market, tags={"offpeak:owner": "somebody else"})
    market.later(days=1, seconds=-1)

    assert market.reap().orphans_ended == ()
    assert len(market.alive()) == 1


def test_a_tag_that_names_no_instance_makes_an_orphan() -> None:
    market = Market()
    orphan(market, tags={"offpeak:owner": str(PLATFORM), "offpeak:instance": "../../etc"})
    market.later(hours=1)

    market.reap()

    assert market.alive() == set()


def test_a_launch_that_was_never_taken_down_is_adopted() -> None:
    market = Market()
    instance_id = market.spill()
    market.cloud.faults.fail("launch", when="after")
    with pytest.raises(CloudUnavailable):
        market.advance(instance_id)

    done = market.reap()

    assert len(done.adopted) == 1
    assert market.instance(instance_id).state == "provisioning"
    assert market.alive() == market.on_record()


def test_what_started_after_we_gave_up_on_it_is_ended() -> None:
    market = Market()
    instance_id = market.spill()
    market.cloud.faults.fail("launch", times=2, when="after")
    with pytest.raises(CloudUnavailable):
        market.advance(instance_id)
    market.later(seconds=market.overflow.rules.boot_seconds)
    assert market.advance(instance_id).reason == "unavailable"
    assert len(market.alive()) == 1

    market.reap()

    assert market.alive() == set()


def test_a_second_machine_for_one_instance_is_ended_and_the_first_kept() -> None:
    market = Market()
    instance_id = market.listed()
    first = market.instance(instance_id).cloud_ref
    orphan(
        market,
        tags={"offpeak:owner": str(PLATFORM), "offpeak:instance": str(instance_id)},
    )
    market.later(seconds=ORPHAN_GRACE.total_seconds())

    market.reap()

    assert market.alive() == {first}


def test_an_instance_that_the_cloud_has_no_more_is_marked_lost() -> None:
    market = Market()
    instance_id = market.listed()
    market.later(minutes=30)
    for rented in market.cloud._rented.values():
        rented.is_ended = True

    assert market.reap().lost == (instance_id,)
    market.settle()

    instance = market.instance(instance_id)
    assert instance.state == "lost"
    assert instance.cost is not None
    assert market.cost() == instance.cost.nanos
    host = market.host(instance_id)
    assert host is not None and host.is_retired


def test_an_instance_not_seen_yet_is_not_lost() -> None:
    market = Market()
    market.cloud.faults.invisible_polls = 50
    instance_id = market.spill()
    market.advance(instance_id)

    assert market.reap().lost == ()
    market.later(minutes=10)
    assert market.reap().lost == (instance_id,)


def test_a_list_that_cannot_be_read_proves_nothing() -> None:
    market = Market()
    instance_id = market.listed()
    market.later(days=1)
    market.cloud.faults.fail("find")

    with pytest.raises(CloudUnavailable):
        market.reap()
    assert market.instance(instance_id).state == "running"


def test_a_cloud_that_will_not_end_an_orphan_is_asked_again() -> None:
    market = Market()
    found = orphan(market)
    market.later(hours=1)
    market.cloud.faults.fail("terminate", times=2)

    for _ in range(2):
        assert market.reap().orphans_left == (found.instance_id,)
    assert market.reap().orphans_ended == (found.instance_id,)


@dataclass(frozen=True)
class Fail:
    verb: Verb
    when: When


@dataclass(frozen=True)
class Kill:
    after_steps: int


@dataclass(frozen=True)
class Later:
    seconds: int


Move = str | Fail | Kill | Later

moves = st.lists(
    st.one_of(
        st.sampled_from(["spill", "tick", "report", "cancel", "orphan", "cloud-ends", "reap"]),
        st.builds(
            Fail,
            st.sampled_from(["launch", "terminate", "describe", "find"]),
            st.sampled_from(["before", "after"]),
        ),
        st.builds(Kill, st.integers(1, 12)),
        st.builds(Later, st.integers(1, 1_800)),
    ),
    max_size=25,
)


@settings(max_examples=60)
@given(moves=moves)
def test_whatever_happened_the_cloud_and_the_record_agree_after_reconciliation(
    moves: list[Move],
) -> None:
    market = Market()
    for move in moves:
        try:
            do(market, move)
        except (Refusal, CloudTrouble, Killed):
            continue
        running = [i for i in market.alive() if market.cloud._rented[i].instance.tags]
        assert len([i for i in running if i in market.on_record()]) <= 1, "one machine for one bid"

    market.fuse.kill_at = None
    market.cloud.faults._failures.clear()
    market.cloud.faults.invisible_polls = 0
    market.later(seconds=ORPHAN_GRACE.total_seconds())
    market.tick()
    market.reap()
    market.tick()
    market.reap()

    assert market.alive() == market.on_record()


def do(market: Market, move: Move) -> None:
    match move:
        case "spill":
            market.spill()
        case "tick":
            market.tick()
        case "report":
            for instance_id in market.intended():
                market.report_gpus(instance_id)
        case "cancel":
            market.cancel_bid()
        case "orphan":
            orphan(market)
        case "cloud-ends":
            for rented in market.cloud._rented.values():
                rented.is_ended = True
        case "reap":
            market.reap()
        case Fail(verb, when):
            market.cloud.faults.fail(verb, when=when)
        case Kill(after_steps):
            market.fuse.kill_at = market.fuse.burnt + after_steps
        case Later(seconds):
            market.later(seconds=seconds)
