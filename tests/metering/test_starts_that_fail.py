"""A GPU on which one start after the other fails is leased to nobody for a while."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from ledger.domain.ids import LeaseId
from marketplace.models.leases import LeaseShareRow
from metering.agent.wire import Report, ReportBatch, ReportKind
from metering.ingest.reports import take_reports
from tests.conftest import SOMEBODY
from tests.metering.watched import Hosts
from tests.metering.watched import hosts as hosts
from tests.metering.world import BOOT, HOST, OWNER, share

pytestmark = pytest.mark.django_db


def begin(hosts: Hosts, number: int, what: ReportKind, *, tenant: int, detail: str = "") -> None:
    """Let the next lease of a GPU begin, for that consumer, and its host say what came of it."""
    hosts.step()
    lease_id = LeaseId(UUID(int=700 + number))
    hosts.world.schedule(
        share(HOST, OWNER, "GPU-0a"), lease_id=lease_id, starts_at=hosts.now, minutes=60
    )
    hosts.follow()
    LeaseShareRow.objects.filter(lease_id=lease_id).update(tenant_id=UUID(int=tenant))
    report = Report(
        report_id=UUID(int=800 + number),
        lease_id=lease_id,
        what=what,
        at=hosts.now,
        exit_code=None,
        detail=detail,
    )
    world, batch = hosts.world, ReportBatch(boot_id=BOOT, reports=(report,))
    for _ in range(2):  # an answer that was lost: it is sent again
        take_reports(world.store, world.grants, batch, host_id=HOST, by=SOMEBODY, now=hosts.now)
    hosts.follow()


def test_three_in_a_row_withhold_it_for_half_an_hour_and_the_next_one_again(hosts: Hosts) -> None:
    begin(hosts, 1, "failed", tenant=1)
    begin(hosts, 2, "failed", tenant=1)
    assert hosts.unfit == {}
    begin(hosts, 3, "failed", tenant=2, detail="no such runtime")
    assert hosts.unfit == {"GPU-0a": "starts-failed"}
    assert "no such runtime" in hosts.host().unfit["GPU-0a"].detail

    hosts.wait(until=timedelta(minutes=31))
    assert hosts.unfit == {}
    begin(hosts, 4, "failed", tenant=1)

    assert hosts.unfit == {"GPU-0a": "starts-failed"}


def test_one_that_began_in_between_proves_it(hosts: Hosts) -> None:
    for number, what in enumerate(("failed", "failed", "started", "failed", "failed")):
        begin(hosts, number, what, tenant=number)  # type: ignore[arg-type]
    assert hosts.unfit == {}


def test_one_consumer_alone_takes_no_gpu_off_the_market(hosts: Hosts) -> None:
    for number in range(5):
        begin(hosts, number, "failed", tenant=1)
    assert hosts.unfit == {}
