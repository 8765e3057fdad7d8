"""A fault of a GPU ends the leases that hold it, bills nothing after it, and its host is blamed."""

from __future__ import annotations

import random
from datetime import timedelta
from uuid import UUID

import pytest

from ledger.domain.span import Window
from ledger.eventstore.port import load
from listings import commands
from marketplace.commands import leases
from marketplace.commands.losses import end_for_hardware, end_for_silence
from marketplace.domain.facts import close_reasons
from marketplace.domain.leases.lease import Lease
from marketplace.queries.leases import assignments_for
from metering.agent.wire import HOST_RESTARTED, Report, ReportBatch, ReportKind
from metering.domain.events import UsageCorrected, UsageWindowClosed
from metering.ingest.reports import take_reports
from metering.watching import Watch
from tests.conftest import SOMEBODY
from tests.listings.conftest import gpu
from tests.metering.watched import (
    NEXT_BOOT,
    POLL,
    Hosts,
    ending_reason,
    minutes,
    running_lease,
)
from tests.metering.watched import hosts as hosts
from tests.metering.world import GRACE, HOST, LEASE, MINUTE, OWNER, World, interval, minute, share

pytestmark = pytest.mark.django_db
START_GRACE = timedelta(minutes=10)


@pytest.mark.parametrize(
    ("kind", "detail", "lasts", "reason"),
    [
        ("xid", "XID 79", timedelta(), close_reasons.GPU_FAILING),
        ("gpu-lost", "GPU is lost", timedelta(seconds=35), close_reasons.GPU_LOST),
        ("driver-mismatch", "other library", minutes(11), close_reasons.DRIVER_CHANGED),
    ],
)
def test_a_fault_that_lasts_ends_the_lease(
    hosts: Hosts, kind: str, detail: str, lasts: timedelta, reason: int
) -> None:
    running_lease(hosts)
    hosts.step()
    hosts.say(kind, detail=detail)  # type: ignore[arg-type]
    hosts.step()
    assert (ending_reason(hosts) is None) == bool(lasts)

    hosts.wait(until=lasts)

    assert ending_reason(hosts) == reason
    assert {each.phase for each in assignments_for(HOST)} == {"stop"}


def test_a_fault_that_goes_by_ends_nothing(hosts: Hosts) -> None:
    running_lease(hosts)
    for _ in range(4):
        hosts.say("gpu-lost", detail="GPU is lost")
        hosts.step()
        hosts.say("recovered")
        hosts.wait(until=timedelta(seconds=40))
    assert ending_reason(hosts) is None


@pytest.mark.parametrize(
    ("kind", "uuid", "detail"),
    [
        ("xid", "GPU-0a", "XID 31"),
        ("xid", "GPU-0b", "XID 79"),
        ("card-filled", "GPU-0a", "2 GiB"),
        ("memory-fault", "GPU-0a", "a row of its memory has errors"),
        ("slowed", "GPU-0a", "it is too hot"),
    ],
)
def test_errors_of_the_work_other_cards_and_strangers_end_nothing(
    hosts: Hosts, kind: str, uuid: str, detail: str
) -> None:
    running_lease(hosts)
    hosts.say(kind, uuid, detail)  # type: ignore[arg-type]
    hosts.wait(until=minutes(12))
    assert ending_reason(hosts) is None


@pytest.mark.parametrize(
    ("kind", "detail", "lasts"),
    [
        ("xid", "XID 79", timedelta()),
        ("gpu-lost", "GPU is lost", timedelta(seconds=35)),
        ("driver-mismatch", "other library", minutes(11)),
    ],
)
def test_a_window_is_not_rated_past_a_fault_that_the_watch_has_not_acted_on(
    hosts: Hosts, kind: str, detail: str, lasts: timedelta
) -> None:
    """What was rated is not taken back, and the lease's right ends when the fault began."""
    world = hosts.world
    running_lease(hosts)
    world.report("started", 0)
    hosts.now = minute(9.9)
    world.send(*(interval(100 + n, n, n + 1, "GPU-0a") for n in range(20)), now=minute(20))
    hosts.say(kind, detail=detail)  # type: ignore[arg-type]

    world.close(minute(10.1))
    assert world.events(UsageWindowClosed) == []

    hosts.wait(until=lasts + minutes(0.2))
    assert ending_reason(hosts) is not None
    world.report("stopped", 20)
    for at in range(30, 33):
        leases.advance_lease(
            world.store, lease_id=LEASE, start_grace=START_GRACE, by=SOMEBODY, now=minute(at)
        )
        world.follow()
    world.close(minute(40))
    [rated] = world.events(UsageWindowClosed)
    assert rated.window.ends_at == minute(9.9)


def test_a_window_waits_for_a_fault_until_it_is_over_or_for_the_grace(hosts: Hosts) -> None:
    world = hosts.world
    running_lease(hosts)
    world.report("started", 0)
    hosts.now = minute(9)
    world.send(*(interval(100 + n, n, n + 1, "GPU-0a") for n in range(30)), now=minute(30))
    hosts.say("gpu-lost", detail="GPU is lost")
    world.close(minute(11))
    assert world.events(UsageWindowClosed) == []

    hosts.say("recovered")
    world.close(minute(11))
    assert [each.window.ends_at for each in world.events(UsageWindowClosed)] == [minute(10)]

    hosts.now = minute(19)
    hosts.say("gpu-lost", detail="GPU is lost")
    world.close(minute(21))
    assert len(world.events(UsageWindowClosed)) == 1
    world.close(minute(20) + GRACE)
    assert len(world.events(UsageWindowClosed)) == 2


@pytest.mark.parametrize(("uuid", "kind"), [("GPU-0b", "gpu-lost"), ("GPU-0a", "memory-fault")])
def test_faults_of_others_and_those_that_end_nothing_hold_no_window_up(
    hosts: Hosts, uuid: str, kind: str
) -> None:
    world = hosts.world
    running_lease(hosts)
    world.report("started", 0)
    hosts.now = minute(9)
    world.send(*(interval(100 + n, n, n + 1, "GPU-0a") for n in range(10)), now=minute(10))
    hosts.say(kind, uuid)  # type: ignore[arg-type]

    world.close(minute(11))

    assert len(world.events(UsageWindowClosed)) == 1


def test_memory_with_errors_withholds_a_card_until_it_has_none(hosts: Hosts) -> None:
    hosts.say("memory-fault", detail="a row of its memory has errors")
    hosts.wait(until=minutes(15))
    assert hosts.unfit == {"GPU-0a": "memory-fault"}
    hosts.say("memory-well")
    hosts.wait(until=minutes(11))
    assert hosts.unfit == {}


def test_a_fault_of_a_card_ends_the_leases_of_its_parts(hosts: Hosts) -> None:
    store = hosts.world.store
    part = "GPU-0a/mps-2of4/25pct-5758mib"
    hosts.world.schedule(share(HOST, OWNER, part), starts_at=hosts.now, minutes=180)
    leases.lease_started(store, lease_id=LEASE, host_id=HOST, by=SOMEBODY, now=hosts.now)
    hosts.follow()

    hosts.say("xid", detail="XID 48")
    hosts.step()

    assert ending_reason(hosts) == close_reasons.GPU_FAILING


def test_a_card_that_the_host_does_not_find_ends_its_lease(hosts: Hosts) -> None:
    running_lease(hosts)
    hosts.now += timedelta(seconds=1)
    commands.report_inventory(
        hosts.world.store, host_id=HOST, gpus=[gpu("GPU-0b")], by=SOMEBODY, now=hosts.now
    )
    hosts.follow()
    hosts.step()
    assert ending_reason(hosts) is None
    hosts.wait(until=timedelta(seconds=40))
    assert ending_reason(hosts) == close_reasons.GPU_LOST


def test_a_watch_that_was_killed_in_between_ends_it_once(hosts: Hosts) -> None:
    running_lease(hosts)
    hosts.say("xid", detail="XID 79")
    for _ in range(3):
        hosts.watch = Watch(poll_seconds=POLL)
        hosts.step()
    told = [each.event.name for each in hosts.world.store.read_stream(f"lease-{LEASE}")]
    assert told.count("marketplace.lease-hardware-failed") == 1
    assert told.count("marketplace.lease-ending") == 1


# --- what hosts report of work that is gone --------------------------------------------------


def told(hosts: Hosts, what: ReportKind, *, exit_code: int | None = None, detail: str = "") -> None:
    report = Report(
        report_id=UUID(int=99),
        lease_id=LEASE,
        what=what,
        at=hosts.now,
        exit_code=exit_code,
        detail=detail,
    )
    batch = ReportBatch(boot_id=NEXT_BOOT, reports=(report,))
    world, now = hosts.world, hosts.now + timedelta(seconds=1)
    for _ in range(2):  # an answer that was lost: it is sent again
        take_reports(world.store, world.grants, batch, host_id=HOST, by=SOMEBODY, now=now)


def test_work_that_dies_of_its_card_did_not_fail_by_itself(hosts: Hosts) -> None:
    """Its consumer may have asked that it goes on: an error of its own would end that."""
    running_lease(hosts)
    hosts.step()
    hosts.say("xid", detail="XID 79")
    failed_at = hosts.now
    hosts.now += timedelta(seconds=1)

    told(hosts, "exited", exit_code=1)

    lease = load(hosts.world.store, Lease, LEASE)
    assert lease is not None and lease.over
    assert (lease.ending_reason, lease.right_ends_at) == (close_reasons.GPU_FAILING, failed_at)


def test_a_card_that_killed_its_work_is_withheld_before_what_follows_is_placed(
    hosts: Hosts,
) -> None:
    """The watch comes by only seconds later, and the rest of the work is placed at once."""
    running_lease(hosts)
    hosts.step()
    hosts.say("gpu-lost", detail="GPU is lost")
    hosts.now += timedelta(seconds=1)

    told(hosts, "exited", exit_code=1)

    names = [each.event.name for each in hosts.world.store.read_all().events]
    ending = names.index("marketplace.lease-ending")
    assert names.index("listings.gpu-quarantined") < ending
    hosts.wait(until=timedelta(seconds=10))
    assert hosts.unfit == {"GPU-0a": "gpu-lost"}
    names = [each.event.name for each in hosts.world.store.read_all().events]
    assert names.count("listings.gpu-quarantined") == 1


@pytest.mark.parametrize(
    ("kind", "detail", "later"),
    [("xid", "XID 31", 0), ("xid", "XID 79", 60), ("card-filled", "2 GiB", 0)],
)
def test_work_that_failed_by_itself_stays_so(
    hosts: Hosts, kind: str, detail: str, later: int
) -> None:
    """Whatever its card has, or had only later."""
    running_lease(hosts)
    ended_at = hosts.now
    hosts.now += timedelta(seconds=later)
    hosts.say(kind, detail=detail)  # type: ignore[arg-type]
    hosts.now = ended_at
    told(hosts, "exited", exit_code=1)
    assert ending_reason(hosts) == close_reasons.WORK_FAILED


def test_a_host_that_lost_power_is_told_from_one_that_lost_the_work(hosts: Hosts) -> None:
    """The last moment of which its agent has proof is the end of what is charged."""
    running_lease(hosts)
    hosts.now += minutes(20)
    told(hosts, "failed", detail=HOST_RESTARTED)
    lease = load(hosts.world.store, Lease, LEASE)
    assert lease is not None and lease.over
    assert lease.ending_reason == close_reasons.HOST_RESTARTED
    assert lease.right_ends_at == hosts.now


# --- what is charged -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_whatever_comes_late_twice_or_in_any_order_each_proved_second_is_billed_once(
    world: World, seed: int
) -> None:
    """The host falls away at a minute, and its agent tells all that it measured, also beyond."""
    mix = random.Random(seed)
    noticed = mix.randint(10, 50)
    failed = mix.randint(5, noticed)
    world.fund()
    world.hold(Window(minute(0), minute(60)), 1)
    world.schedule(share(HOST, OWNER, "GPU-a"), minutes=60)
    world.report("started", 0)
    sent = [interval(n + 1, n, n + 1) for n in range(60) if mix.random() < 0.9]
    in_time = [each for each in sent if each.seq <= noticed and mix.random() < 0.7]
    if in_time:
        world.send(*in_time, now=minute(noticed))
    who = {"lease_id": LEASE, "host_id": HOST, "by": SOMEBODY, "now": minute(noticed)}
    if silent := seed % 2:
        end_for_silence(world.store, heard_at=minute(failed), **who)  # type: ignore[arg-type]
    else:
        why = close_reasons.GPU_LOST
        end_for_hardware(
            world.store,
            reason=why,
            detail="",
            failed_at=minute(failed),
            **who,  # type: ignore[arg-type]
        )
    for at in range(noticed, noticed + 3):
        leases.advance_lease(
            world.store, lease_id=LEASE, start_grace=START_GRACE, by=SOMEBODY, now=minute(at)
        )
        world.follow()
    late = [sent[since : since + 7] for since in range(0, len(sent), 7)]
    late += mix.sample(late, k=2)
    mix.shuffle(late)
    for batch in late:
        if mix.random() < 0.5:
            world.close(minute(200))
        world.send(*batch, now=minute(201))
    world.report("stopped", noticed + 1)
    world.close(minute(300))
    world.close(minute(400))

    rated: list[UsageWindowClosed | UsageCorrected] = [
        *world.events(UsageWindowClosed),
        *world.events(UsageCorrected),
    ]
    billed_ms = sum(each.granted_ms for window in rated for each in window.gpus)
    right = noticed if silent else failed
    assert billed_ms == MINUTE * sum(each.seq <= right for each in sent)
