"""The desired state that the server names becomes true on the host, and is reported."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from uuid import UUID

import pytest

from metering.agent.memory import report
from metering.agent.reconcile import Terms
from metering.agent.runtimes.levels import Level, Sandbox, short_of
from metering.agent.single import AlreadyRunning
from metering.agent.spool import Spool
from metering.agent.wire import Assignment, ReportKind
from tests.metering.agent.conftest import NOON_MS, Rig
from tests.metering.agent.market import assignment


def change(rig: Rig, lease: UUID, **fields: object) -> Assignment:
    changed = replace(rig.market.desired[lease], **fields)  # type: ignore[arg-type]  # a test's
    rig.market.desired[lease] = changed
    return changed


def told(rig: Rig, lease: UUID) -> list[tuple[str, int | None]]:
    return [(report.what, report.exit_code) for report in rig.market.told(lease)]


def running(rig: Rig) -> set[UUID]:
    return {work.lease_id for work in rig.runtime.works() if work.state == "running"}


@pytest.fixture
def uuids(simulated_rig: Rig) -> list[str]:
    return simulated_rig.uuids()


def test_the_host_registers_with_its_gpus_once(simulated_rig: Rig, uuids: list[str]) -> None:
    simulated_rig.steps(20)

    (registration,) = simulated_rig.market.registrations
    assert [gpu.uuid for gpu in registration.gpus] == uuids
    assert registration.hostname == "h1"
    assert simulated_rig.agent.courier.host_id == simulated_rig.market.host_id


def test_a_lease_is_not_started_below_the_level_that_it_was_promised(
    simulated_rig: Rig, uuids: list[str]
) -> None:
    rig = simulated_rig
    kept = rig.market.assign(assignment(uuids[0], now_ms=NOON_MS, sandbox="full"))
    fallen = rig.market.assign(assignment(uuids[1], now_ms=NOON_MS, sandbox="container"))
    rig.steps(3)

    assert running(rig) == {kept}
    [failed] = rig.market.told(fallen)
    assert failed.what == "failed"
    assert failed.detail.endswith("at level full now, and the bid asks for container")


@pytest.mark.parametrize(
    ("asked", "level", "image", "by_mps", "may"),
    [
        ("", "none", False, False, True),
        ("process", "account", False, False, False),
        ("process", "full", False, False, True),
        ("full", "process", False, False, False),
        ("container", "account", True, False, True),
        ("process", "full", False, True, False),
        ("account", "full", False, True, True),
        ("a level of later", "container", True, False, False),
    ],
)
def test_a_level_is_as_good_as_what_is_asked_for_or_it_is_not(
    asked: str, level: Level, image: bool, by_mps: bool, may: bool
) -> None:
    assert (not short_of(asked, Sandbox(level), image=image, by_mps=by_mps)) == may


def test_a_lease_in_the_future_starts_at_its_start(simulated_rig: Rig, uuids: list[str]) -> None:
    rig = simulated_rig
    lease = rig.market.assign(assignment(uuids[0], now_ms=NOON_MS + 60_000))
    rig.steps(59)
    assert running(rig) == set()

    rig.step()

    assert running(rig) == {lease}
    assert told(rig, lease) == [("started", None)]


def test_a_reclaim_warns_then_stops_in_time(simulated_rig: Rig, uuids: list[str]) -> None:
    rig = simulated_rig
    lease = rig.market.assign(assignment(uuids[0], now_ms=NOON_MS))
    rig.steps(6)
    start = rig.market.desired[lease].starts_at
    change(rig, lease, phase="warn", stop_at=start + timedelta(seconds=120))
    rig.steps(60)
    assert rig.runtime.notices == {lease: NOON_MS + 120_000}
    assert running(rig) == {lease}

    rig.steps(60)

    assert running(rig) == set()
    assert told(rig, lease) == [("started", None), ("stopped", -15)]
    assert rig.market.intervals(lease)[-1].end_ms == NOON_MS + 118_000


def test_work_that_ignores_the_request_is_killed_at_the_end(
    simulated_rig: Rig, uuids: list[str]
) -> None:
    rig = simulated_rig
    lease = rig.market.assign(assignment(uuids[0], now_ms=NOON_MS, seconds=60, grace_seconds=5))
    rig.runtime.stubborn.add(lease)
    rig.agent.run_once()

    rig.steps(70)

    assert told(rig, lease) == [("started", None), ("stopped", -9)]
    assert sum(each.granted_ms for each in rig.market.intervals(lease)) == 60_000


def test_stop_ends_the_work_at_once(simulated_rig: Rig, uuids: list[str]) -> None:
    rig = simulated_rig
    lease = rig.market.assign(assignment(uuids[0], now_ms=NOON_MS))
    rig.steps(10)
    change(rig, lease, phase="stop")

    rig.steps(6)

    assert told(rig, lease) == [("started", None), ("stopped", -15)]


def test_a_lease_not_listed_any_more_is_stopped_and_forgotten(
    simulated_rig: Rig, uuids: list[str]
) -> None:
    rig = simulated_rig
    lease = rig.market.assign(assignment(uuids[0], now_ms=NOON_MS))
    rig.steps(10)
    del rig.market.desired[lease]

    rig.steps(10)

    assert told(rig, lease) == [("started", None), ("stopped", -15)]
    assert list(rig.runtime.works()) == [] and rig.agent.state.leases == {}


def test_an_extended_lease_runs_on(simulated_rig: Rig, uuids: list[str]) -> None:
    rig = simulated_rig
    lease = rig.market.assign(assignment(uuids[0], now_ms=NOON_MS, seconds=60))
    rig.agent.run_once()
    rig.steps(20)
    ends_at = rig.market.desired[lease].ends_at + timedelta(seconds=60)
    change(rig, lease, ends_at=ends_at)

    rig.steps(130)

    assert sum(each.granted_ms for each in rig.market.intervals(lease)) == 118_000


def test_work_that_ends_by_itself_is_reported_and_not_started_again(
    simulated_rig: Rig, uuids: list[str]
) -> None:
    rig = simulated_rig
    fails = rig.market.assign(assignment(uuids[0], now_ms=NOON_MS, command=("false",)))
    absent = rig.market.assign(assignment(uuids[1], now_ms=NOON_MS, command=("/nonexistent",)))

    rig.steps(30)

    assert told(rig, fails) == [("started", None), ("exited", 1)]
    ((what, code),) = told(rig, absent)
    assert (what, code) == ("failed", None)
    assert "No such file" in rig.market.told(absent)[0].detail


def test_a_gpu_of_another_host_is_refused(simulated_rig: Rig) -> None:
    rig = simulated_rig
    rig.step()
    lease = rig.market.assign(assignment("GPU-elsewhere", now_ms=NOON_MS))

    rig.steps(10)

    assert told(rig, lease) == [("failed", None)]
    assert "no GPU GPU-elsewhere" in rig.market.told(lease)[0].detail


def test_leases_back_to_back_never_share_a_gpu(simulated_rig: Rig, uuids: list[str]) -> None:
    rig = simulated_rig
    one = rig.market.assign(assignment(uuids[0], now_ms=NOON_MS, seconds=60))
    two = rig.market.assign(assignment(uuids[0], now_ms=NOON_MS + 60_000, seconds=60))
    rig.runtime.stubborn.add(one)

    rig.steps(130)

    first, second = rig.market.intervals(one), rig.market.intervals(two)
    assert first[-1].end_ms <= second[0].start_ms
    assert second[0].start_ms == NOON_MS + 60_000


def test_a_restarted_agent_without_a_server_still_ends_a_lease_on_time(
    simulated_rig: Rig, uuids: list[str]
) -> None:
    rig = simulated_rig
    lease = rig.market.assign(assignment(uuids[0], now_ms=NOON_MS, seconds=300))
    rig.agent.run_once()
    rig.steps(20)
    rig.market.away = True
    rig.restart()
    rig.steps(300)
    assert running(rig) == set()
    rig.market.away = False

    rig.steps(100)

    intervals = rig.market.intervals(lease)
    assert sum(each.granted_ms for each in intervals) == 298_000
    assert len({boot for boot, _ in rig.market.samples}) == 2
    assert told(rig, lease) == [("started", None), ("stopped", -15)]


@pytest.mark.parametrize("away", [False, True])
def test_many_restarts_leave_no_gap_and_no_overlap(
    simulated_rig: Rig, uuids: list[str], away: bool
) -> None:
    rig = simulated_rig
    rig.spool = lambda: Spool(rig.state_dir / "spool", segment_bytes=1_500)
    rig.restart()
    lease = rig.market.assign(assignment(uuids[0], now_ms=NOON_MS, command=("sleep", "400")))
    rig.agent.run_once()
    rig.steps(5)
    rig.market.away = away
    for _ in range(12):
        rig.steps(23)
        rig.restart()
    rig.market.away = False

    rig.steps(250)

    intervals = rig.market.intervals(lease)
    assert intervals[0].start_ms == NOON_MS
    assert sum(each.granted_ms for each in intervals) == 400_000
    for earlier, later in pairwise(intervals):
        assert earlier.end_ms == later.start_ms
    assert told(rig, lease) == [("started", None), ("exited", 0)]
    assert len({boot for boot, _ in rig.market.samples}) == 13
    assert len(list((rig.state_dir / "spool").iterdir())) == 1


def test_the_hosts_of_one_lease_report_under_different_ids() -> None:
    lease = assignment("GPU-a", "GPU-b", now_ms=NOON_MS)
    here, there = (Terms.of(replace(lease, gpu_uuids=(gpu,))) for gpu in lease.gpu_uuids)

    kinds: tuple[ReportKind, ...] = ("started", "stopped", "failed")
    ids = [
        report(terms, what, NOON_MS)["body"]["report_id"]
        for terms in (here, there)
        for what in kinds
    ]

    # The two ends of a lease on one host exclude each other, so they share an id.
    assert len(set(ids)) == 4 and ids[1] == ids[2] and ids[4] == ids[5]


def test_two_agents_cannot_share_a_state_directory(simulated_rig: Rig) -> None:
    with pytest.raises(AlreadyRunning):
        simulated_rig.make()
