"""What agents say, and that they say nothing, becomes facts by which the market leases."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from ledger.access import Actor
from ledger.domain.ids import HostId, LeaseId
from ledger.domain.span import Window
from ledger.domain.uptime import Uptime
from listings import commands
from listings.domain.sandboxes import AgentSays
from listings.models import HostRow
from marketplace.commands.leases import advance_lease
from marketplace.domain.facts import close_reasons
from marketplace.queries.leases import assignments_for
from metering.agent.wire import Health
from metering.models import HealthEvent
from metering.queries.usage import agents
from metering.watching import Watch
from tests.conftest import SOMEBODY
from tests.listings.conftest import gpu
from tests.metering.watched import (
    NEXT_BOOT,
    POLL,
    STEP,
    STRIDE,
    Hosts,
    ending_reason,
    minutes,
    running_lease,
)
from tests.metering.watched import hosts as hosts
from tests.metering.world import BOOT, HOST, OTHER_HOST, OWNER, OWNING

pytestmark = pytest.mark.django_db


def test_a_host_that_is_not_heard_falls_silent_alone_and_is_told_once(hosts: Hosts) -> None:
    hosts.alive = {OTHER_HOST}
    hosts.wait(until=timedelta(seconds=90))
    assert hosts.silent == [False, False]

    hosts.wait(until=minutes(20))

    assert hosts.silent == [True, False]
    told = [each.event.name for each in hosts.world.store.read_stream(f"host-{HOST}")]
    assert told.count("listings.host-fell-silent") == 1


def test_it_comes_back_only_after_it_was_heard_for_a_minute_without_a_pause(hosts: Hosts) -> None:
    hosts.alive = {OTHER_HOST}
    hosts.wait(until=minutes(3))
    for _ in range(4):  # a line that comes and goes
        hosts.alive = {HOST, OTHER_HOST}
        hosts.wait(until=timedelta(seconds=40))
        hosts.alive = {OTHER_HOST}
        hosts.wait(until=timedelta(seconds=40))
    assert hosts.silent == [True, False]

    hosts.alive = {HOST, OTHER_HOST}
    hosts.wait(until=timedelta(seconds=70))

    assert hosts.silent == [False, False]


def test_a_restart_of_an_agent_is_no_news(hosts: Hosts) -> None:
    hosts.alive = {OTHER_HOST}
    hosts.wait(until=timedelta(seconds=60))
    hosts.alive = {HOST, OTHER_HOST}
    hosts.wait(until=minutes(5))

    assert hosts.silent == [False, False]
    assert hosts.host().unfit == {}


def test_an_outage_of_the_platform_makes_nobody_silent(hosts: Hosts) -> None:
    """Nobody watched for two days, and nobody could be heard: agents come back within a minute."""
    hosts.now += timedelta(days=2)
    hosts.alive = set()
    hosts.wait(until=timedelta(seconds=60))
    assert hosts.silent == [False, False]
    hosts.alive = {HOST, OTHER_HOST}
    hosts.wait(until=minutes(5))
    assert hosts.silent == [False, False]


def test_what_is_known_of_outages_counts_for_nobody(hosts: Hosts) -> None:
    """The watch itself went on: only the web was away."""
    hosts.alive = set()
    away = Window(hosts.now, hosts.now + minutes(10))
    hosts.uptime = Uptime((away,))
    hosts.wait(until=minutes(11))
    assert hosts.silent == [False, False]

    hosts.wait(until=minutes(1))

    assert hosts.silent == [True, True]


def test_a_watch_that_begins_anew_has_listened_to_nobody_yet(hosts: Hosts) -> None:
    hosts.alive = set()
    hosts.wait(until=timedelta(seconds=80))
    hosts.watch = hosts.new_watch()
    hosts.wait(until=timedelta(seconds=80))
    assert hosts.silent == [False, False]

    hosts.wait(until=timedelta(seconds=20))

    assert hosts.silent == [True, True]


def test_a_clock_that_steps_back_and_forth_makes_nobody_silent(hosts: Hosts) -> None:
    watch, store = hosts.watch, hosts.world.store
    for shift in (timedelta(hours=1), -timedelta(hours=1), timedelta()):
        watch.run_once(store, now=hosts.now + shift)
    hosts.step()

    assert hosts.silent == [False, False]


def test_a_retired_host_may_be_silent(hosts: Hosts) -> None:
    commands.retire_host(hosts.world.store, host_id=HOST, by=SOMEBODY, now=hosts.now)
    hosts.follow()
    hosts.alive = {OTHER_HOST}

    hosts.wait(until=minutes(5))

    assert hosts.silent == [False, False]


def test_a_lost_gpu_is_withheld_and_comes_back_ten_minutes_after_it_recovered(
    hosts: Hosts,
) -> None:
    hosts.say("gpu-lost", detail="GPU is lost")
    hosts.step()
    assert hosts.unfit == {"GPU-0a": "gpu-lost"}
    hosts.wait(until=minutes(30))
    assert hosts.unfit == {"GPU-0a": "gpu-lost"}

    hosts.say("recovered")
    hosts.wait(until=minutes(9))
    assert hosts.unfit == {"GPU-0a": "gpu-lost"}
    hosts.wait(until=minutes(2))

    assert hosts.unfit == {}


def test_a_fault_during_the_proof_has_it_begin_anew(hosts: Hosts) -> None:
    hosts.say("gpu-lost")
    hosts.step()
    for _ in range(4):
        hosts.say("recovered")
        hosts.wait(until=minutes(6))
        hosts.say("gpu-lost")
        hosts.wait(until=minutes(6))
    assert hosts.unfit == {"GPU-0a": "gpu-lost"}


def test_a_silent_host_proves_nothing_of_its_gpus(hosts: Hosts) -> None:
    hosts.say("gpu-lost")
    hosts.step()
    hosts.say("recovered")
    hosts.alive = {OTHER_HOST}

    hosts.wait(until=minutes(30))

    assert hosts.unfit == {"GPU-0a": "gpu-lost"}


def test_no_number_of_newer_events_makes_a_lost_gpu_well(hosts: Hosts) -> None:
    hosts.say("gpu-lost")
    hosts.step()
    HealthEvent.objects.bulk_create(
        HealthEvent(
            host_id=HOST,
            boot_id=BOOT,
            seq=1_000 + number,
            tenant_id=OWNER,
            gpu_uuid="GPU-0b",
            kind="xid",
            at=hosts.now,
            detail="XID 13",
            received_at=hosts.now,
        )
        for number in range(3_000)
    )
    hosts.watch = hosts.new_watch()

    hosts.wait(until=minutes(12))

    assert hosts.unfit == {"GPU-0a": "gpu-lost"}


@pytest.mark.parametrize(
    ("detail", "unfit"),
    [
        ("XID 79", True),
        ("XID 48", True),
        ("XID 95", True),
        ("XID 119", True),
        ("XID 13", False),
        ("XID 31", False),
        ("XID 43", False),
        ("XID 63", False),
        ("XID 94", False),
        ("XID", False),
        ("", False),
    ],
)
def test_only_errors_that_take_a_reset_withhold_a_gpu(
    hosts: Hosts, detail: str, unfit: bool
) -> None:
    hosts.say("xid", "GPU-0b", detail)
    hosts.step()
    assert hosts.unfit == ({"GPU-0b": "xid"} if unfit else {})


def test_a_note_after_a_fatal_error_does_not_take_it_back(hosts: Hosts) -> None:
    hosts.say("xid", detail="XID 48")
    hosts.say("xid", detail="XID 13")

    hosts.wait(until=minutes(30))

    assert hosts.unfit == {"GPU-0a": "xid"}


def test_an_agent_that_was_started_anew_has_looked_anew(hosts: Hosts) -> None:
    """Its owner reset the GPU and started the agent: ten minutes without fault, and it is back."""
    hosts.say("xid", detail="XID 48")
    hosts.step()
    hosts.register(NEXT_BOOT)
    hosts.wait(until=minutes(9))
    assert hosts.unfit == {"GPU-0a": "xid"}

    hosts.wait(until=minutes(2))

    assert hosts.unfit == {}


def test_what_an_earlier_run_said_and_comes_late_is_of_no_weight(hosts: Hosts) -> None:
    said_at = hosts.now - minutes(60)
    hosts.register(NEXT_BOOT)
    late = Health(seq=7, gpu_uuid="GPU-0a", kind="gpu-lost", at=said_at, detail="")
    hosts.world.send(health=(late,), boot_id=BOOT, now=hosts.now)

    hosts.wait(until=minutes(1))

    assert hosts.unfit == {}


def test_a_driver_that_was_changed_withholds_every_gpu_of_its_host(hosts: Hosts) -> None:
    hosts.say("driver-mismatch", None)
    hosts.step()
    assert hosts.unfit == {"GPU-0a": "driver-mismatch", "GPU-0b": "driver-mismatch"}
    assert hosts.host(OTHER_HOST).unfit == {}

    hosts.say("recovered", None)
    hosts.wait(until=minutes(11))

    assert hosts.unfit == {}


def test_a_card_that_others_fill_is_back_a_minute_after_they_left(hosts: Hosts) -> None:
    hosts.say("card-filled", detail="61440 MiB are held by others")
    hosts.wait(until=minutes(15))
    assert hosts.unfit == {"GPU-0a": "card-filled"}

    hosts.say("card-free")
    hosts.wait(until=timedelta(seconds=70))

    assert hosts.unfit == {}


def test_nothing_of_a_host_that_can_start_no_work_is_leased_until_a_minute_after_it_can(
    hosts: Hosts,
) -> None:
    hosts.say("cannot-start", None, detail="the cluster starts nothing on this node: DRAIN")
    hosts.wait(until=minutes(15))
    assert set(hosts.unfit.values()) == {"cannot-start"}
    assert hosts.unfit.keys() == {"GPU-0a", "GPU-0b"}

    hosts.say("can-start", None)
    hosts.wait(until=timedelta(seconds=70))

    assert hosts.unfit == {}


def test_a_card_that_is_lost_stays_withheld_when_its_host_can_start_work_again(
    hosts: Hosts,
) -> None:
    hosts.say("gpu-lost")
    hosts.say("cannot-start", None)
    hosts.say("can-start", None)

    hosts.wait(until=minutes(5))

    assert list(hosts.unfit) == ["GPU-0a"]


def test_a_card_that_recovers_is_still_filled(hosts: Hosts) -> None:
    hosts.say("card-filled")
    hosts.say("gpu-lost")
    hosts.say("recovered")

    hosts.wait(until=minutes(15))

    assert list(hosts.unfit) == ["GPU-0a"]


def test_a_note_of_a_small_stray_process_withholds_nothing(hosts: Hosts) -> None:
    hosts.say("stray-process", detail="process 7 (top) of no lease")

    hosts.wait(until=minutes(1))

    assert hosts.unfit == {}


def test_a_gpu_that_its_host_does_not_find_any_more_is_not_leased(hosts: Hosts) -> None:
    def report(*uuids: str) -> None:
        found = [gpu(uuid) for uuid in uuids]
        commands.report_inventory(
            hosts.world.store, host_id=HOST, gpus=found, by=SOMEBODY, now=hosts.now
        )

    report("GPU-0b")
    hosts.follow()
    hosts.step()
    assert hosts.unfit == {"GPU-0a": "absent"}
    hosts.now += STEP
    report("GPU-0a", "GPU-0b")
    hosts.follow()
    hosts.wait(until=minutes(11))
    assert hosts.unfit == {}


def test_its_owner_sees_which_hosts_and_gpus_are_withheld(hosts: Hosts) -> None:
    hosts.say("xid", detail="XID 79")
    hosts.step()

    def seen(actor: Actor = OWNING) -> dict[UUID, tuple[str, dict[str, str]]]:
        found = agents(actor, now=hosts.now, poll_seconds=POLL)
        return {each.host_id: (each.standing, dict(each.gpus)) for each in found}

    assert seen()[HOST] == ("healthy", {"GPU-0a": "failing", "GPU-0b": "healthy"})
    hosts.alive = {OTHER_HOST}
    hosts.wait(until=minutes(2))
    assert seen()[HOST][0] == "silent"
    hosts.alive = {HOST, OTHER_HOST}
    hosts.step()
    assert seen()[HOST][0] == "returning"
    hosts.wait(until=minutes(2))
    assert seen()[HOST][0] == "healthy"


def test_one_host_that_cannot_be_told_holds_up_no_other(
    hosts: Hosts,
) -> None:
    """The row of a host is there and its stream is not: that should never be."""
    HostRow.objects.create(
        host_id=UUID(int=1),
        tenant_id=OWNER,
        title="nowhere",
        market="main",
        region="eu",
        labels={},
        source="local",
        state="known",
        gpus=[],
        gpu_count=0,
        registered_at=hosts.now,
        version=1,
    )
    hosts.world.seen(hosts.now, host_id=HostId(UUID(int=1)))
    hosts.alive = {OTHER_HOST}

    hosts.wait(until=minutes(3))

    assert hosts.silent == [True, False]


def test_a_lease_ends_only_after_half_an_hour_of_silence(hosts: Hosts) -> None:
    ends, scheduled = hosts.now + timedelta(hours=3), running_lease(hosts)
    hosts.alive = {OTHER_HOST}
    hosts.wait(until=minutes(29))
    assert ending_reason(hosts) is None

    hosts.wait(until=minutes(2))

    assert ending_reason(hosts) == close_reasons.HOST_SILENT
    assert hosts.now < ends
    hosts.now += timedelta(minutes=1)
    advance_lease(
        hosts.world.store,
        lease_id=scheduled,
        start_grace=timedelta(minutes=10),
        by=SOMEBODY,
        now=hosts.now,
    )
    hosts.follow()
    assert assignments_for(HOST) == []  # so its agent stops the work when it is back


def test_leases_may_end_after_a_shorter_silence_and_the_host_is_silent_by_then(
    hosts: Hosts,
) -> None:
    running_lease(hosts)
    hosts.watch = Watch(poll_seconds=POLL, gone_after=timedelta(seconds=20))
    hosts.step()
    hosts.alive = {OTHER_HOST}

    hosts.wait(until=timedelta(seconds=15))
    assert (ending_reason(hosts), hosts.silent) == (None, [False, False])
    hosts.wait(until=timedelta(seconds=15))

    assert ending_reason(hosts) == close_reasons.HOST_SILENT
    assert hosts.silent == [True, False]


@pytest.mark.parametrize("away", [minutes(15), timedelta(days=2)])
def test_an_outage_of_the_platform_ends_no_lease(hosts: Hosts, away: timedelta) -> None:
    """The watch goes on, and the web does not answer: nobody is heard."""
    running_lease(hosts)
    answers = False
    hosts.watch = Watch(poll_seconds=POLL, is_reachable=lambda: answers)
    hosts.step()
    hosts.alive = set()
    for _ in range(int(min(away, minutes(45)) / STRIDE)):
        hosts.step(STRIDE)
    hosts.now += away
    hosts.alive = {HOST, OTHER_HOST}
    answers = True

    hosts.wait(until=minutes(3))

    assert ending_reason(hosts) is None
    assert hosts.silent == [False, False]


def test_a_host_that_says_less_ends_what_begins_soon_at_once_and_the_rest_after_a_while(
    hosts: Hosts,
) -> None:
    def says(*abilities: str) -> None:
        commands.report_inventory(
            hosts.world.store,
            host_id=HOST,
            gpus=[gpu("GPU-0a"), gpu("GPU-0b")],
            says=AgentSays.so("full", (), abilities),
            by=SOMEBODY,
            now=hosts.now,
        )
        hosts.follow()

    looked: list[timedelta] = []

    def to_begin(host_id: UUID, *, until: datetime) -> list[LeaseId]:
        if host_id == HOST:
            looked.append(until - hosts.now)
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("metering.falling_short.leases_to_begin_on", to_begin)
        says("secrets")
        hosts.wait(until=minutes(12))
        says()
        hosts.wait(until=minutes(5))
        says("secrets")
        hosts.wait(until=minutes(12))

    soon, all_of_them = minutes(10), timedelta(days=366)
    assert looked == [soon, all_of_them, soon, soon, all_of_them]
