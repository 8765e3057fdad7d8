"""The rows of overflow, the loops that read them, and the API that shows them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client

from bursting import reaper
from bursting.domain.events import HomeMoveAsked, InstanceId
from bursting.domain.home_moves import HomeMoves, home_bid_of
from bursting.loops import Overflowing
from bursting.models import BurstInstanceRow, HomeMoveRow, WaitingBidRow
from bursting.projections import PROJECTIONS
from bursting.queries import bids_maybe_due, instances_not_over
from ledger.domain.ids import BidId, LeaseId, TenantId
from ledger.domain.money import Money, Rate
from ledger.eventstore.port import record
from ledger.following import Projection
from ledger.rebuilding import fingerprint, rebuild
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts.events import BidAmended
from tests.access.conftest import Caller, admit
from tests.bursting.bids_and_offers import NOON, PLATFORM, RULES
from tests.bursting.market import BID, TENANT, TESTER, Market, bid_like
from tests.bursting.reading import read

pytestmark = pytest.mark.django_db


def row_of(instance_id: InstanceId) -> BurstInstanceRow:
    return BurstInstanceRow.objects.get(pk=instance_id)


def test_a_row_tells_the_whole_life_of_an_instance() -> None:
    market = Market()
    instance_id = market.listed()
    read(market)
    row = row_of(instance_id)
    assert (row.state, row.reason, row.cost_nanos) == ("running", "", None)
    assert (row.cloud, row.zone, row.gpus) == ("fake", "zone-a", 1)
    assert (row.price_nanos, row.floor_nanos) == (804_800_000, 804_800_000)
    assert row.host_id == instance_id

    market.later(hours=1)
    market.cancel_bid()
    market.tick()
    read(market)

    row = row_of(instance_id)
    assert (row.state, row.reason) == ("terminated", "bid-closed")
    assert row.cost_nanos == 804_800_000
    assert instances_not_over() == []


def test_a_refused_and_a_lost_instance_say_why() -> None:
    market = Market()
    market.cloud.faults.room["zone-a"] = 0
    refused = market.spill()
    market.advance(refused)
    market.later(seconds=RULES.backoff_seconds)
    lost = market.spill()
    market.advance(lost)
    for rented in market.cloud._rented.values():
        rented.is_ended = True
    market.tick()
    read(market)

    assert (row_of(refused).state, row_of(refused).reason) == ("refused", "capacity")
    assert (row_of(lost).state, row_of(lost).reason) == ("lost", "lost")


def move_home(market: Market, instance_id: InstanceId) -> HomeMoveAsked:
    """Let the work of a machine move home, as the record tells it."""
    lease_id, place = LeaseId(UUID(int=31)), LeaseId(UUID(int=32))
    asked = HomeMoveAsked(
        lease_id=lease_id,
        bid_id=home_bid_of(lease_id, 1),
        instance_id=instance_id,
        tenant_id=TENANT,
        owner_id=PLATFORM,
        number=1,
        safe_at=NOON,
        starts_at=NOON + timedelta(minutes=3),
        seconds=36_000,
        gpus=1,
        limit=Rate(600_000_000),
        quoted=Rate(200_000_000),
        cloud=Money(7_000_000_000),
        egress=Money(0),
        again_seconds=480,
        at=NOON,
    )
    record(market.store, HomeMoves, lease_id, lambda _: [asked], by=TESTER)
    record(
        market.store,
        HomeMoves,
        lease_id,
        lambda tries: [] if tries is None else tries.end(
            "moved", home_lease_id=place, price=Rate(200_000_000), now=NOON
        ),
        by=TESTER,
    )  # fmt: skip
    return asked


@pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda each: each.name)
def test_the_rows_equal_their_rebuild_byte_for_byte(projection: Projection) -> None:
    market = Market()
    asked = move_home(market, market.listed())
    market.place(replace(BID, bid_id=BidId(UUID(int=8))))
    read(market)
    row = HomeMoveRow.objects.get(pk=asked.bid_id)
    assert (row.moved, row.reason, row.saved_nanos) == (True, "moved", 5_000_000_000)
    live = fingerprint(projection.tables)

    rebuild(market.store, projection)

    assert fingerprint(projection.tables) == live
    assert projection.tables[0]._base_manager.count() >= 1


def due(at: Any) -> list[BidId]:
    return bids_maybe_due(rules=RULES, now=at, limit=10)


def test_a_bid_is_looked_at_once_it_has_waited_and_while_it_can_be_served() -> None:
    market = Market()
    read(market)
    waited = NOON + timedelta(seconds=RULES.wait_seconds)
    last_chance = BID.deadline - timedelta(seconds=BID.duration_seconds + RULES.boot_seconds)

    assert due(waited - timedelta(seconds=1)) == []
    assert due(waited) == [BID.bid_id]
    assert due(last_chance) == [BID.bid_id]
    assert due(last_chance + timedelta(seconds=1)) == []


def test_a_bid_at_risk_is_looked_at_before_it_has_waited() -> None:
    market = Market(bid=bid_like(deadline=NOON + timedelta(hours=1, minutes=12)))
    read(market)

    assert due(NOON) == [BID.bid_id]


def test_an_amended_deadline_counts_and_a_bid_that_is_over_is_not_looked_at() -> None:
    market = Market()
    far = NOON + timedelta(days=20)
    amended = BidAmended(bid_id=BID.bid_id, limit=BID.limit, deadline=far, at=NOON)
    record(market.store, Bid, BID.bid_id, lambda _: [amended], by=TESTER)
    read(market)
    assert due(NOON + timedelta(days=19)) == [BID.bid_id]

    market.cancel_bid()
    read(market)

    assert due(NOON + timedelta(days=19)) == []


def test_a_bid_that_does_not_allow_bursting_has_no_row() -> None:
    market = Market(bid=bid_like(burst_allowed=False))
    read(market)

    assert WaitingBidRow.objects.count() == 0


def test_the_loop_takes_a_bid_from_waiting_to_the_end_of_its_machine() -> None:
    market = Market()
    loop = Overflowing(market.overflow)

    def passes() -> int:
        read(market)
        market.later(seconds=5)
        return loop.run_once(market.store, now=market.now)

    assert passes() == 1
    assert passes() == 1
    (instance_id,) = market.intended()
    assert passes() == 0, "it waits for the agent; the runner may rest"
    market.report_gpus(instance_id)
    assert passes() == 1
    assert market.instance(instance_id).state == "running"
    market.cancel_bid()
    assert passes() == 1
    assert market.instance(instance_id).state == "terminated"
    assert passes() == 0


def test_a_bid_that_no_cloud_serves_rests_before_clouds_are_asked_again() -> None:
    market = Market()
    market.cloud.catalogue = []
    loop = Overflowing(market.overflow)
    read(market)

    for _ in range(5):
        assert loop.run_once(market.store, now=market.now) == 0
    assert market.cloud.faults.calls["offers"] == 1
    market.later(seconds=61)
    loop.run_once(market.store, now=market.now)

    assert market.cloud.faults.calls["offers"] == 2


def test_one_instance_that_is_stuck_does_not_hold_up_another() -> None:
    market = Market()
    stuck = market.spill()
    other = replace(BID, bid_id=BidId(UUID(int=8)))
    market.place(other)
    market.cloud.faults.fail("launch", times=1)
    loop = Overflowing(market.overflow)
    read(market)
    loop.run_once(market.store, now=market.now)
    read(market)

    loop.run_once(market.store, now=market.now)
    market.later(minutes=1)
    loop.run_once(market.store, now=market.now)

    states = [market.instance(instance_id).state for instance_id in market.intended()]
    assert states == ["provisioning", "provisioning"]
    assert stuck in market.intended()


def test_an_instance_whose_cloud_fails_is_asked_about_less_and_less_often() -> None:
    market = Market()
    market.spill()
    market.cloud.faults.fail("launch", times=1_000)
    loop = Overflowing(market.overflow)
    read(market)

    for _second in range(300):
        loop.run_once(market.store, now=market.now)
        market.later(seconds=1)

    assert 5 <= market.cloud.faults.calls["launch"] <= 9


def test_the_reapers_pass_over_every_cloud_survives_one_that_does_not_answer() -> None:
    market = Market()
    market.listed()
    read(market)
    market.cloud.faults.fail("find")

    assert reaper.run_once(market.store, overflow=market.overflow, now=market.now) == 0
    for rented in market.cloud._rented.values():
        rented.is_ended = True
    assert reaper.run_once(market.store, overflow=market.overflow, now=market.now) == 1


# --- over HTTP ------------------------------------------------------------------------------------


def ask(caller: Caller, path: str) -> Any:
    return Client(raise_request_exception=False).get(
        f"/api/v1/burst/instances{path}", headers={"Authorization": f"Bearer {caller.token}"}
    )


@pytest.mark.urls("tests.bursting.routes")
def test_a_tenant_sees_what_was_rented_for_its_bids_and_nobody_elses() -> None:
    mine, other = admit("ada-labs", "finance"), admit("eve-works", "finance")
    market = Market(bid=bid_like(tenant_id=mine.tenant_id))
    instance_id = market.listed()
    read(market)

    seen = ask(mine, "").json()["data"]
    assert [(row["id"], row["state"], row["price"]) for row in seen] == [
        (str(instance_id), "running", "0.8048")
    ]
    assert ask(mine, f"/{instance_id}").json()["gpu_model"] == "L4"
    assert ask(other, "").json()["data"] == []
    assert ask(other, f"/{instance_id}").status_code == 404


@pytest.mark.urls("tests.bursting.routes")
def test_the_platforms_finance_sees_all_that_is_rented() -> None:
    finance = admit("the-platform", "finance")
    market = Market()
    market.overflow = replace(market.overflow, owner_id=TenantId(finance.tenant_id))
    market.listed()
    read(market)

    assert len(ask(finance, "").json()["data"]) == 1


@pytest.mark.urls("tests.bursting.routes")
def test_filters_are_checked() -> None:
    finance = admit("the-platform", "finance")
    market = Market()
    market.overflow = replace(market.overflow, owner_id=TenantId(finance.tenant_id))
    market.listed()
    read(market)

    assert len(ask(finance, "?state=running&state=lost").json()["data"]) == 1
    assert ask(finance, "?state=terminated").json()["data"] == []
    assert len(ask(finance, f"?bid_id={BID.bid_id}").json()["data"]) == 1
    assert ask(finance, f"?bid_id={uuid4()}").json()["data"] == []
    assert ask(finance, "?state=asleep").json()["code"] == "state-unknown"
    assert ask(finance, "?bid_id=7").json()["code"] == "bid-id-unreadable"
