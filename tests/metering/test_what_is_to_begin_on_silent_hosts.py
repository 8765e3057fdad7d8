"""Leases that are to begin on a host that is not heard are given up in time to go elsewhere."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from ledger.domain.ids import BidId, HoldId, LeaseId
from ledger.eventstore.port import Expect, NewEvent, load
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import BidPlaced, Workload
from marketplace.domain.leases.lease import Lease
from tests.conftest import SOMEBODY
from tests.metering.watched import Hosts, minutes
from tests.metering.watched import hosts as hosts
from tests.metering.world import CONSUMER, FUNDS, HOST, OTHER_HOST, OWNER, PRICE, UNIT, share

pytestmark = pytest.mark.django_db


def coming(hosts: Hosts, number: int, after: timedelta, *, resume: bool = True) -> LeaseId:
    """Let a lease be granted that is to begin on HOST some time from now."""
    bid_id, lease_id = BidId(UUID(int=700 + number)), LeaseId(UUID(int=800 + number))
    starts_at = hosts.now + after
    placed = BidPlaced(
        bid_id=bid_id,
        tenant_id=CONSUMER,
        subscriber_id=UNIT,
        user_id=None,
        account_id=FUNDS,
        hold_id=HoldId(bid_id),
        market="main",
        request=read_query(""),
        gpus=1,
        placement="same-host",
        duration_seconds=3_600,
        earliest_start=starts_at,
        deadline=starts_at + timedelta(hours=4),
        limit=PRICE,
        service_class="on-demand",
        patience="immediate",
        workload=Workload(kind="train", command=("true",)),
        cost_centre="CC-1",
        burst_allowed=False,
        at=hosts.now,
        resume=resume,
    )
    event = NewEvent(uuid4(), placed)
    hosts.world.store.append(f"bid-{bid_id}", [event], expected=Expect.ANY, by=SOMEBODY)
    hosts.world.schedule(
        share(HOST, OWNER, f"GPU-{number}"),
        lease_id=lease_id,
        starts_at=starts_at,
        bid_id=bid_id,
        asked=False,
    )
    hosts.follow()
    return lease_id


def state_of(hosts: Hosts, lease_id: LeaseId) -> str:
    lease = load(hosts.world.store, Lease, lease_id)
    assert lease is not None
    return lease.state


def test_it_moves_as_long_before_its_start_as_the_host_has_been_silent(hosts: Hosts) -> None:
    """What begins later may still find the host there, and so may who does not go elsewhere."""
    soon, far = coming(hosts, 1, minutes(50)), coming(hosts, 2, minutes(150))
    stays = coming(hosts, 3, minutes(50), resume=False)
    leases = soon, far, stays
    hosts.alive = {OTHER_HOST}
    hosts.wait(until=minutes(29))
    assert [state_of(hosts, each) for each in leases] == ["scheduled"] * 3

    hosts.wait(until=minutes(2))
    assert [state_of(hosts, each) for each in leases] == ["failed", "scheduled", "scheduled"]
    hosts.wait(until=minutes(46))

    assert [state_of(hosts, each) for each in leases] == ["failed", "failed", "scheduled"]
    lease = load(hosts.world.store, Lease, far)
    assert lease is not None and lease.ending_reason == close_reasons.HOST_SILENT


def test_a_host_that_is_heard_again_keeps_what_is_to_begin_there(hosts: Hosts) -> None:
    later = coming(hosts, 1, minutes(120))
    hosts.alive = {OTHER_HOST}
    hosts.wait(until=minutes(50))
    hosts.alive = {HOST, OTHER_HOST}

    hosts.wait(until=minutes(30))

    assert state_of(hosts, later) == "scheduled"


def test_silence_for_less_than_half_an_hour_moves_nothing(hosts: Hosts) -> None:
    lease_id = coming(hosts, 1, minutes(27))
    hosts.alive = {OTHER_HOST}

    hosts.wait(until=minutes(26))

    assert state_of(hosts, lease_id) == "scheduled"
