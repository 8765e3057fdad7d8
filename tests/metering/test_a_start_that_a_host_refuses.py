"""A start that a host refuses since it falls short of the bid, told from one that just failed."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from ledger.domain.ids import BidId
from ledger.eventstore.port import Expect, NewEvent
from listings import commands
from listings.domain.sandboxes import AgentSays
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import BidPlaced, Workload
from tests.conftest import NOON, SOMEBODY
from tests.listings.conftest import gpu
from tests.metering.watched import Hosts, ending_reason
from tests.metering.watched import hosts as hosts
from tests.metering.world import CONSUMER, FUNDS, HOLD, HOST, OWNER, PRICE, UNIT, share

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("level", "reason"),
    [("account", close_reasons.HOST_FALLS_SHORT), ("full", close_reasons.START_FAILED)],
)
def test_a_start_that_a_host_refuses_for_its_level_ends_as_that_and_no_other_does(
    hosts: Hosts, level: str, reason: int
) -> None:
    placed = BidPlaced(
        bid_id=BidId(UUID(int=53)),
        tenant_id=CONSUMER,
        subscriber_id=UNIT,
        user_id=None,
        account_id=FUNDS,
        hold_id=HOLD,
        market="main",
        request=read_query("sandbox>=full"),
        gpus=1,
        placement="same-host",
        duration_seconds=3_600,
        earliest_start=NOON,
        deadline=NOON + timedelta(hours=4),
        limit=PRICE,
        service_class="on-demand",
        patience="immediate",
        workload=Workload(kind="train", command=("true",)),
        cost_centre="CC-1",
        burst_allowed=False,
        at=NOON,
    )
    store = hosts.world.store
    event = NewEvent(uuid4(), placed)
    store.append(f"bid-{placed.bid_id}", [event], expected=Expect.ANY, by=SOMEBODY)
    commands.report_inventory(
        store,
        host_id=HOST,
        gpus=[gpu("GPU-0a"), gpu("GPU-0b")],
        says=AgentSays.so(level, (), ()),
        by=SOMEBODY,
        now=hosts.now,
    )
    hosts.world.schedule(share(HOST, OWNER, "GPU-0a"))
    hosts.follow()

    hosts.world.report("failed", 1)

    assert ending_reason(hosts) == reason
