"""A lease that is idle by its rule is warned of, kept if its consumer wants, else given back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from marketplace.commands.leases import release_idle_lease
from marketplace.domain.facts import close_reasons
from marketplace.models.leases import LeaseRow
from marketplace.queries.idle import running
from metering import idling
from metering.domain.idle import IdleWatch
from metering.idling import IdleLeaseGone, keep_idle_lease
from metering.models import IdleRow
from metering.queries.idle import idleness_of, quiet_of_lease
from tests.conftest import SOMEBODY
from tests.metering.idle_lease import Host, look, rule, run_lease, state
from tests.metering.world import (
    CONSUMER,
    LEASE,
    World,
    minute,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def lease(world: World) -> LeaseRow:
    return run_lease(world)


@pytest.fixture
def host(world: World) -> Host:
    return Host(world)


def test_an_idle_lease_is_warned_of_and_then_given_back(
    world: World, host: Host, lease: LeaseRow
) -> None:
    rule(world, 30)
    host.tells(0, 30)
    assert look(world, 30) == 1
    assert IdleRow.objects.get(pk=LEASE).release_at == minute(35)
    assert state(world) == ("active", None)

    host.tells(30, 35)
    assert look(world, 34.9) == 0
    assert look(world, 35) == 1
    assert state(world) == ("ending", close_reasons.IDLE)
    assert IdleRow.objects.get(pk=LEASE).released_at == minute(35)


def test_without_a_rule_nothing_happens(world: World, host: Host, lease: LeaseRow) -> None:
    host.tells(0, 60)
    assert look(world, 60) == 0
    rule(world, 30)
    rule(world, None)
    assert look(world, 60) == 0
    assert not IdleRow.objects.exists()


def test_a_rule_of_the_organisation_holds_too_and_the_shorter_one_counts(
    world: World, host: Host, lease: LeaseRow
) -> None:
    rule(world, 60, of="tenant")
    rule(world, 10)
    host.tells(0, 10)
    assert look(world, 10) == 1
    found = idleness_of(running(lease), now=minute(10))
    assert found is not None and found.terms.after_seconds == 600


@pytest.mark.parametrize(
    "used",
    [
        {"busy_ms": 30_000},
        {"cpu_ms": 60_000},
        {"io_bytes": 10**9},
        {"net_bytes": 10**9},
        {"cpu_ms": None},
        {"net_bytes": None},
        {"busy_ms": None},
    ],
)
def test_use_of_any_kind_and_what_is_not_measured_keeps_a_lease(
    world: World, host: Host, lease: LeaseRow, used: dict[str, Any]
) -> None:
    rule(world, 30)
    host.tells(0, 60, **used)
    assert look(world, 60) == 0


def test_a_warning_is_lifted_by_use_and_the_time_counts_anew(
    world: World, host: Host, lease: LeaseRow
) -> None:
    rule(world, 30)
    host.tells(0, 30)
    look(world, 30)
    host.tells(30, 31, busy_ms=60_000)
    host.tells(31, 35)
    assert look(world, 35) == 1
    row = IdleRow.objects.get(pk=LEASE)
    assert (row.release_at, row.released_at) == (None, None)
    host.tells(35, 60)
    assert look(world, 60) == 0
    host.tells(60, 61)
    assert look(world, 61) == 1


def test_a_consumer_who_keeps_it_has_the_whole_time_again(
    world: World, host: Host, lease: LeaseRow
) -> None:
    rule(world, 30)
    host.tells(0, 30)
    look(world, 30)
    keep_idle_lease(world.store, lease_id=LEASE, tenant_id=CONSUMER, by=SOMEBODY, now=minute(32))
    world.follow()
    host.tells(30, 61)
    assert look(world, 61) == 0
    host.tells(61, 62)
    assert look(world, 62) == 1
    assert IdleRow.objects.get(pk=LEASE).release_at == minute(67)


def test_samples_of_a_blackout_that_come_late_end_nothing(
    world: World, host: Host, lease: LeaseRow
) -> None:
    rule(world, 30)
    host.tells(0, 20)
    host.tells(20, 80, at=minute(80.5))
    assert look(world, 80.5) == 0, "an hour that was told at once is no proof in time"
    host.tells(80, 109)
    assert look(world, 109) in (0, 1)
    row = IdleRow.objects.filter(pk=LEASE).first()
    assert row is None or row.released_at is None


def test_a_host_that_falls_silent_after_the_warning_lifts_it(
    world: World, host: Host, lease: LeaseRow
) -> None:
    rule(world, 30)
    host.tells(0, 30)
    look(world, 30)
    assert look(world, 36) == 1
    assert state(world) == ("active", None)
    assert IdleRow.objects.get(pk=LEASE).release_at is None


def test_a_lease_that_is_starting_or_taken_back_is_left_alone(
    world: World, host: Host, lease: LeaseRow
) -> None:
    rule(world, 30)
    host.tells(0, 60)
    for other in ("scheduled", "starting", "reclaiming", "ending"):
        LeaseRow.objects.update(state=other)
        assert look(world, 60) == 0
    LeaseRow.objects.update(state="active", work_began_at=minute(45))
    assert look(world, 60) == 0, "fetching inputs is no idleness"


def test_killed_between_the_two_the_next_look_ends_the_lease(
    world: World, host: Host, lease: LeaseRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule(world, 30)
    host.tells(0, 30)
    look(world, 30)
    host.tells(30, 35)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(idling, "release_idle_lease", killed)
        with pytest.raises(KeyboardInterrupt):
            look(world, 35)
    assert state(world) == ("active", None)
    world.follow()
    look(world, 35.5)
    assert state(world) == ("ending", close_reasons.IDLE)
    with pytest.raises(IdleLeaseGone):
        keep_idle_lease(
            world.store, lease_id=LEASE, tenant_id=CONSUMER, by=SOMEBODY, now=minute(36)
        )


def test_kept_while_the_clock_looks_it_is_not_released(
    world: World, host: Host, lease: LeaseRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule(world, 30)
    host.tells(0, 30)
    look(world, 30)
    host.tells(30, 35)

    def kept_meanwhile(*given: Any, **named: Any) -> Any:
        keep_idle_lease(
            world.store, lease_id=LEASE, tenant_id=CONSUMER, by=SOMEBODY, now=minute(35)
        )
        return quiet_of_lease(*given, **named)

    monkeypatch.setattr(idling, "quiet_of_lease", kept_meanwhile)
    assert look(world, 35) == 0
    assert state(world) == ("active", None)


def test_released_twice_it_ends_once(world: World, lease: LeaseRow) -> None:
    for _ in range(2):
        release_idle_lease(world.store, lease_id=LEASE, by=SOMEBODY, now=minute(5))
    endings = [
        each
        for each in world.store.read_stream(f"lease-{LEASE}")
        if type(each.event).__name__ == "LeaseEnding"
    ]
    assert len(endings) == 1


def test_the_sum_is_shown(world: World, host: Host, lease: LeaseRow) -> None:
    rule(world, 30)
    host.tells(0, 12)
    found = idleness_of(running(lease), now=minute(12))

    assert found is not None
    assert found.idle == timedelta(minutes=12)
    assert found.quiet.figures.busy_percent == 0
    assert found.quiet.figures.cpu_millicores == 1
    assert found.measured_through == minute(12)
    assert IdleWatch().warned is None and found.ends_at is None
