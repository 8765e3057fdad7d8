"""Leases that wait for a silent host, or whose charge fails, hold up nobody else's bill."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from ledger.domain.ids import LeaseId
from ledger.domain.span import Window
from metering import loops
from metering.agent.wire import Report, ReportBatch
from metering.corrections import Waiting
from metering.domain.events import MeterClosed
from metering.ingest.reports import take_reports
from metering.models import MeterRow, UsageRow
from tests.conftest import NOON, SOMEBODY
from tests.metering.world import (
    BOOT,
    HOLD,
    HOST,
    LEASE,
    OTHER_HOST,
    OTHER_OWNER,
    OWNER,
    PRICE,
    World,
    interval,
    minute,
    share,
)

pytestmark = pytest.mark.django_db
PAGE = 3
"""Instead of a thousand: so many leases wait, and so many fit one pass."""


def silent(world: World, number: int) -> None:
    """A lease whose host said that it started, and nothing after."""
    lease_id = LeaseId(UUID(int=700 + number))
    world.schedule(share(OTHER_HOST, OTHER_OWNER, f"GPU-s{number}"), lease_id=lease_id, minutes=600)
    told = Report(report_id=UUID(int=9_000 + number), lease_id=lease_id, what="started",
                  at=minute(0), exit_code=None, detail="")  # fmt: skip
    batch = ReportBatch(boot_id=BOOT, reports=(told,))
    take_reports(world.store, world.grants, batch, host_id=OTHER_HOST, by=SOMEBODY, now=minute(0))


def test_a_finished_lease_is_closed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "METERS_MAX", PAGE)
    world.fund()
    for number in range(PAGE):
        silent(world, number)
    world.hold(Window(minute(1), minute(61)), 1)
    world.schedule(share(HOST, OWNER, "GPU-a"), minutes=60, starts_at=minute(1))
    world.report("started", 1)
    world.send(*(interval(n, n, n + 1) for n in range(1, 61)))
    world.report("stopped", 61)
    world.over(minute(61))
    for at in (90, 120, 300, 600, 1_200):
        world.close(minute(at), grace=timedelta(days=1))
    assert world.account().holds[HOLD].released, "20 hours after its end the hold still stands"


def finished(world: World) -> None:
    """A lease of ten minutes that is over and known in full."""
    world.schedule(share(HOST, OWNER, "GPU-a"), minutes=10)
    world.send(*(interval(n + 1, n, n + 1) for n in range(10)))
    world.report("stopped", 10)
    world.over(minute(10))


def test_a_meter_that_meets_a_bug_stops_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent(world, 1)
    finished(world)
    healthy = loops._close_of

    def close(store: Any, row: MeterRow, waiting: Waiting) -> int:
        if row.lease_id != LEASE:
            raise ZeroDivisionError("a bug that one meter meets")
        return healthy(store, row, waiting)

    monkeypatch.setattr(loops, "_close_of", close)

    world.close(minute(20))

    assert world.events(MeterClosed)


def test_accounts_that_are_empty_for_good_do_not_keep_others_from_being_charged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three leases with windows that were not charged; two of them never will be."""
    finished(world)
    world.close(minute(11))
    row = UsageRow.objects.get()
    for number in (1, 2):
        row.lease_id, row.key = UUID(int=number), f"{number}"
        UsageRow.objects.bulk_create([row])
    world.fund()
    world.hold(Window(NOON, minute(60)), 1)
    monkeypatch.setattr(loops, "CHARGES_MAX", 2)
    asked: list[UUID] = []
    healthy = loops._charge

    def charge(store: Any, lease_id: UUID, now: datetime) -> int:
        asked.append(lease_id)
        if lease_id != LEASE:
            raise RuntimeError("not an expected refusal")
        return healthy(store, lease_id, now)

    monkeypatch.setattr(loops, "_charge", charge)

    assert [loops.charge_what_is_left(world.store, now=minute(30)) for _ in range(2)] == [0, 1]
    assert asked == [UUID(int=1), UUID(int=2), LEASE]
    assert world.account().holds[HOLD].captured == PRICE.charge(600_000)
