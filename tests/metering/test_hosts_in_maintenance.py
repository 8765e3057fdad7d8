"""Maintenance is announced: nothing is leased into it, and what would run into it ends by then."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from ledger.domain.ids import LeaseId, MaintenanceId
from ledger.domain.refusal import Refusal
from ledger.domain.span import Window
from ledger.eventstore.port import load
from listings.commands.maintenance import (
    announce_maintenance,
    cancel_maintenance,
    move_maintenance,
)
from listings.domain.hosts import GpuNotOnHost
from listings.domain.maintenance import (
    MaintenanceOver,
    MaintenanceReasonUnreadable,
    MaintenanceTermsDiffer,
    MaintenanceTooLong,
    MaintenanceUnknown,
)
from listings.models import HealthSpanRow, HostRow
from marketplace.commands.leases import advance_lease
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import ReclaimRequested
from marketplace.domain.leases.lease import Lease
from marketplace.models.leases import LeaseRow
from tests.conftest import SOMEBODY
from tests.metering.watched import Hosts, minutes, running_lease
from tests.metering.watched import hosts as hosts
from tests.metering.world import HOST, LEASE

pytestmark = pytest.mark.django_db

WINDOW = MaintenanceId(UUID(int=4_000))
REASON = "new fans"


def announce(
    hosts: Hosts, *, after: float, length: float = 60, gpus: tuple[str, ...] = ()
) -> Window:
    """Announce a window so many minutes from now, and let the watch look."""
    starts_at = hosts.now + minutes(after)
    window = Window(starts_at, starts_at + minutes(length))
    announce_maintenance(
        hosts.world.store,
        host_id=HOST,
        maintenance_id=WINDOW,
        window=window,
        gpu_uuids=gpus,
        reason=REASON,
        by=SOMEBODY,
        now=hosts.now,
    )
    hosts.follow()
    hosts.step()
    return window


def lease_of(hosts: Hosts, lease_id: LeaseId = LEASE) -> Lease:
    found = load(hosts.world.store, Lease, lease_id)
    assert found is not None
    return found


def starts_told(hosts: Hosts) -> list[datetime]:
    row = LeaseRow.objects.get(lease_id=LEASE)
    return [datetime.fromisoformat(said["starts_at"]) for said in row.maintenance.values()]


def pass_time(hosts: Hosts, until: datetime) -> None:
    while hosts.now < until:
        hosts.step(timedelta(seconds=25))
        advance_lease(
            hosts.world.store,
            lease_id=LEASE,
            start_grace=minutes(10),
            by=SOMEBODY,
            now=hosts.now,
        )
        hosts.follow()


def test_a_lease_that_would_run_into_it_is_told_at_once_and_goes_on(hosts: Hosts) -> None:
    running_lease(hosts)
    window = announce(hosts, after=120)
    assert starts_told(hosts) == [window.starts_at]
    assert lease_of(hosts).state == "active" and lease_of(hosts).stop_at is None


def test_it_ends_by_the_start_and_the_notice_counts_from_the_announcement(hosts: Hosts) -> None:
    running_lease(hosts)
    announced_at = hosts.now
    window = announce(hosts, after=120)
    pass_time(hosts, window.starts_at + minutes(2))
    lease = lease_of(hosts)
    assert lease.over or lease.state == "ending"
    assert lease.ending_reason == close_reasons.MAINTENANCE
    assert lease.right_ends_at == window.starts_at
    stream = hosts.world.store.read_stream(f"lease-{LEASE}")
    (taken,) = (each.event for each in stream if isinstance(each.event, ReclaimRequested))
    owner_id = lease.terms.shares[0].owner_id
    asked = lease.compensation(
        owner_id, asked_at=announced_at + timedelta(seconds=5), stop_at=window.starts_at
    )
    assert taken.compensation == asked and taken.at > announced_at + minutes(60)


def test_a_lease_on_other_gpus_or_that_is_over_by_then_is_told_nothing(hosts: Hosts) -> None:
    running_lease(hosts)
    announce(hosts, after=10, gpus=("GPU-0b",))
    assert starts_told(hosts) == []
    cancel_maintenance(
        hosts.world.store, host_id=HOST, maintenance_id=WINDOW, by=SOMEBODY, now=hosts.now
    )
    hosts.follow()
    announce(hosts, after=181)
    assert starts_told(hosts) == []


def test_cancelled_it_changes_nothing_for_the_lease(hosts: Hosts) -> None:
    running_lease(hosts)
    window = announce(hosts, after=120)
    cancel_maintenance(
        hosts.world.store, host_id=HOST, maintenance_id=WINDOW, by=SOMEBODY, now=hosts.now
    )
    hosts.follow()
    hosts.step()
    assert starts_told(hosts) == []
    pass_time(hosts, window.starts_at + minutes(2))
    assert lease_of(hosts).state == "active"
    assert HealthSpanRow.objects.filter(kind="maintenance").count() == 0


def test_put_off_it_keeps_the_notice_and_brought_forward_it_begins_anew(hosts: Hosts) -> None:
    running_lease(hosts)
    window = announce(hosts, after=60)
    first = lease_of(hosts).maintenance[0].announced_at

    def move(by: timedelta) -> Window:
        moved = Window(window.starts_at + by, window.ends_at + by)
        move_maintenance(
            hosts.world.store,
            host_id=HOST,
            maintenance_id=WINDOW,
            window=moved,
            by=SOMEBODY,
            now=hosts.now,
        )
        hosts.follow()
        hosts.step()
        return moved

    later = move(minutes(30))
    assert starts_told(hosts) == [later.starts_at]
    assert lease_of(hosts).maintenance[0].announced_at == first
    sooner = move(minutes(-20))
    assert starts_told(hosts) == [sooner.starts_at]
    assert lease_of(hosts).maintenance[0].announced_at == hosts.now


def test_at_short_notice_a_lease_has_what_was_agreed(hosts: Hosts) -> None:
    running_lease(hosts)
    announce(hosts, after=0)
    lease = lease_of(hosts)
    agreed = timedelta(seconds=max(share.notice_seconds for share in lease.terms.shares))
    assert lease.stop_at == hosts.now + agreed


def test_the_window_is_on_the_hosts_row_and_in_its_history(hosts: Hosts) -> None:
    window = announce(hosts, after=30, gpus=("GPU-0a", "GPU-0b"))
    (planned,) = HostRow.objects.get(host_id=HOST).maintenance.values()
    assert planned["reason"] == REASON and planned["gpu_uuids"] == ["GPU-0a", "GPU-0b"]
    spans = HealthSpanRow.objects.filter(host_id=HOST, kind="maintenance").order_by("gpu_uuid")
    assert [(each.gpu_uuid, each.since, each.until) for each in spans] == [
        ("GPU-0a", window.starts_at, window.ends_at),
        ("GPU-0b", window.starts_at, window.ends_at),
    ]


def test_faults_and_silence_are_spans_of_the_history(hosts: Hosts) -> None:
    hosts.say("gpu-lost", detail="GPU is lost")
    hosts.step()
    hosts.say("recovered")
    hosts.wait(until=minutes(11))
    hosts.say("slowed", detail="its clocks are held down: it is too hot")
    hosts.step()
    hosts.say("diagnostic-passed", detail="fine")
    hosts.step()
    spans = HealthSpanRow.objects.filter(host_id=HOST).order_by("since", "key")
    told = [(each.gpu_uuid, each.kind, each.source, each.until is None) for each in spans]
    assert told == [
        ("GPU-0a", "gpu-lost", "agent", False),
        ("GPU-0a", "slowed", "agent", True),
        ("GPU-0a", "diagnostic-passed", "agent", False),
    ]


@pytest.mark.parametrize(
    ("after", "length", "gpus", "reason", "refusal"),
    [
        (-90, 60, (), REASON, MaintenanceOver),
        (0, 31 * 24 * 60, (), REASON, MaintenanceTooLong),
        (0, 60, ("GPU-9",), REASON, GpuNotOnHost),
        (0, 60, (), " ", MaintenanceReasonUnreadable),
        (0, 60, (), "x\ny", MaintenanceReasonUnreadable),
    ],
)
def test_what_is_no_window_is_refused(
    hosts: Hosts,
    after: float,
    length: float,
    gpus: tuple[str, ...],
    reason: str,
    refusal: type[Refusal],
) -> None:
    starts_at = hosts.now + minutes(after)
    with pytest.raises(refusal):
        announce_maintenance(
            hosts.world.store,
            host_id=HOST,
            maintenance_id=WINDOW,
            window=Window(starts_at, starts_at + minutes(length)),
            gpu_uuids=gpus,
            reason=reason,
            by=SOMEBODY,
            now=hosts.now,
        )


def test_again_is_harmless_and_with_other_terms_refused(hosts: Hosts) -> None:
    window = announce(hosts, after=30)
    before = len(list(hosts.world.store.read_stream(f"host-{HOST}")))
    which = {"host_id": HOST, "maintenance_id": WINDOW, "by": SOMEBODY, "now": hosts.now}
    announce_maintenance(hosts.world.store, window=window, reason=REASON, **which)  # type: ignore[arg-type]
    assert len(list(hosts.world.store.read_stream(f"host-{HOST}"))) == before
    with pytest.raises(MaintenanceTermsDiffer):
        announce_maintenance(hosts.world.store, window=window, reason="other", **which)  # type: ignore[arg-type]
    with pytest.raises(MaintenanceUnknown):
        cancel_maintenance(
            hosts.world.store,
            host_id=HOST,
            maintenance_id=MaintenanceId(UUID(int=1)),
            by=SOMEBODY,
            now=hosts.now,
        )
