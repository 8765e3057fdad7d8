"""A host that stopped work for its memory is heard, and the lease says why to both sides."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from config.site.pages.leases.timeline import steps_of
from ledger.eventstore.port import load, stream_name
from marketplace.commands.leases import advance_lease, lease_started
from marketplace.domain.facts import close_reasons
from marketplace.domain.leases.lease import Lease
from metering.agent.over_share import PATIENCE_MS, Over, said
from metering.agent.wire import Report, ReportBatch
from metering.ingest.grants import Grants
from metering.ingest.reports import take_reports
from tests.conftest import NOON, SOMEBODY
from tests.metering.world import BOOT, HOST, LEASE, OTHER_HOST, SHARES, World, minute

pytestmark = pytest.mark.django_db

WHY = said(Over(20_480, 0, PATIENCE_MS, 30_000))


def told(world: World, *, over_share: bool) -> Lease:
    """Tell twice, as an agent that lost the answer does; return the lease a while later."""
    world.fund()
    world.schedule(*SHARES)
    for host_id in (HOST, OTHER_HOST):
        lease_started(world.store, lease_id=LEASE, host_id=host_id, by=SOMEBODY, now=NOON)
    report = Report(
        report_id=UUID(int=83), lease_id=LEASE, what="stopped", at=minute(5), exit_code=None,
        detail=WHY, over_share=over_share,
    )  # fmt: skip
    batch = ReportBatch(boot_id=BOOT, reports=(Report.from_json(report.to_json()),))
    for _ in range(2):
        take_reports(world.store, Grants(), batch, host_id=HOST, by=SOMEBODY, now=minute(5))
    advance_lease(
        world.store, lease_id=LEASE, start_grace=timedelta(minutes=5), by=SOMEBODY, now=minute(6)
    )
    lease = load(world.store, Lease, LEASE)
    assert lease is not None
    return lease


def test_the_lease_ends_with_that_reason_and_the_figures_on_its_page(world: World) -> None:
    lease = told(world, over_share=True)

    assert lease.ending_reason == close_reasons.OVER_SHARE
    steps = steps_of(list(world.store.read_stream(stream_name(Lease, LEASE))))
    assert [step.detail for step in steps if step.title == "Work stopped on a host"] == [WHY]
    assert "more GPU memory than its share" in close_reasons.REASONS[close_reasons.OVER_SHARE]


def test_work_that_was_stopped_for_another_reason_has_that(world: World) -> None:
    assert told(world, over_share=False).ending_reason == close_reasons.WINDOW_OVER
