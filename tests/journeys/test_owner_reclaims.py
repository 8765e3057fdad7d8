"""An owner takes a GPU back: the work is told and ends in time, the tenant is compensated."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.journeys import books
from tests.journeys.hosts import Machine, register
from tests.journeys.installation import Installation, until
from tests.journeys.work import Work

REGION = "reclaim"
NOTICE_SECONDS = 8
GRACE_SECONDS = 3
FEE_PPM = 250_000
LEASE_SECONDS = 60
"""A short lease, since work is asked to end a tenth of its length before the deadline."""


@pytest.fixture
def machine(market: Installation, tmp_path: Path) -> Iterator[Machine]:
    """Bruno's host with one GPU, its agent at work."""
    machine = register(market, "bruno", REGION, tmp_path)
    machine.start_agent("--simulate", "A100:1")
    yield machine
    machine.retire()


def test_the_work_is_warned_then_stopped_and_the_tenant_compensated(
    market: Installation, machine: Machine, tmp_path: Path
) -> None:
    terms = {
        "notice_seconds": NOTICE_SECONDS,
        "grace_seconds": GRACE_SECONDS,
        "reclaim_fee_ppm": FEE_PPM,
    }
    machine.list_for(2, floor="1.777777777", gpus=machine.gpus(), **terms)
    work = Work(tmp_path / "work")
    query = f"gpu=A100 region={REGION} grace>={GRACE_SECONDS}s"
    bid_id = market.bid("grace", query, work.command, duration_seconds=LEASE_SECONDS)
    lease = market.lease_of("grace", bid_id, state="active")

    reclaiming = market.cli("bruno", "leases", "reclaim", lease["id"]).json

    assert reclaiming["state"] == "reclaiming"
    stop_at = datetime.fromisoformat(reclaiming["stop_at"])
    assert stop_at - datetime.now(UTC) <= timedelta(seconds=NOTICE_SECONDS)
    notice = until(lambda: work.told("notice"), why="the work was not warned")
    assert notice is not None
    assert notice["stop_at_ms"] == int(stop_at.timestamp() * 1000)
    ended = until(lambda: work.told("term"), why="the work was not asked to end")
    assert ended is not None
    started = work.told("started")
    assert started is not None and started["grace"] == str(GRACE_SECONDS)
    assert lease["grace_seconds"] == GRACE_SECONDS
    assert notice["at"] < ended["at"] < stop_at.timestamp()
    assert ended["at"] >= stop_at.timestamp() - GRACE_SECONDS
    closed = market.lease_of("grace", bid_id, state="closed")
    assert closed["close_reason"]["code"] == 201
    closed_at = datetime.fromisoformat(closed["closed_at"])
    assert closed_at <= stop_at + timedelta(seconds=2)

    use = books.final_use(market, "grace", lease["id"])
    charge = books.charge_of(lease, use["granted_ms"])
    # The agent stops a little sooner; what was told at the reclaim counts from its deadline.
    lost_ms = (datetime.fromisoformat(closed["ends_at"]) - stop_at) // timedelta(milliseconds=1)
    compensation = books.charge_of(lease, lost_ms).share(FEE_PPM)
    assert charge.nanos > 0
    assert compensation.nanos > 0
    period = f"{closed_at:%Y-%m}"
    with market.client("grace") as api:
        funds = books.account(api, kind="prepaid", title="Language models")
        moved = books.entries(api, funds["account_id"], lease["id"], period=period)
    assert sum(moved.values()) == compensation.nanos - charge.nanos, moved
    with market.client("bruno") as api:
        refused = market.cli("bruno", "leases", "reclaim", lease["id"])
        assert refused.code == 4, "an ended lease was reclaimed once more"
        told = {each["name"] for each in api.get(f"leases/{lease['id']}/events")["data"]}
    assert {"marketplace.reclaim-requested", "marketplace.lease-closed"} <= told, told
