"""What agents say, and that they say nothing, becomes facts by which the market leases."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import pytest

import listings.projections
import marketplace.projections
from ledger.access import Actor
from ledger.domain.ids import HostId, LeaseId, OfferId
from ledger.domain.money import Rate
from ledger.domain.span import Window
from ledger.domain.uptime import Uptime
from ledger.eventstore.port import load
from ledger.following import follow_projections
from listings import commands
from listings.domain.hosts import Host
from listings.domain.sandboxes import AgentSays
from listings.domain.terms import OfferTerms
from listings.models import HostRow
from marketplace.commands.leases import advance_lease, lease_started
from marketplace.domain.facts import close_reasons
from marketplace.domain.leases.lease import Lease
from marketplace.queries.leases import assignments_for
from metering.agent.wire import Health, HealthKind
from metering.models import AgentContact, HealthEvent
from metering.queries.usage import agents
from metering.watching import Watch
from tests.conftest import NOON, SOMEBODY
from tests.listings.conftest import gpu
from tests.metering.world import BOOT, HOST, LEASE, OTHER_HOST, OWNER, OWNING, World, share

pytestmark = pytest.mark.django_db

ROWS = (*listings.projections.PROJECTIONS, *marketplace.projections.PROJECTIONS)
STEP, STRIDE = timedelta(seconds=5), timedelta(seconds=25)
POLL = 2
NEXT_BOOT = UUID(int=62)


class Hosts:
    """Hosts with an offer each, agents that are heard or not, and the watch over them."""

    def __init__(self, world: World) -> None:
        self.world, self.now = world, NOON
        self.alive: set[UUID] = {HOST, OTHER_HOST}
        self.uptime = Uptime()
        self.watch = self.new_watch()
        self.seq = 0
        for number, host_id in enumerate((HOST, OTHER_HOST)):
            who = {"host_id": host_id, "by": SOMEBODY, "now": NOON}
            commands.register_host(
                world.store,
                tenant_id=OWNER,
                title=f"rack {number}",
                market="main",
                region="eu-west",
                **who,  # type: ignore[arg-type]
            )
            found = [gpu(f"GPU-{number}a"), gpu(f"GPU-{number}b")]
            commands.report_inventory(world.store, gpus=found, **who)  # type: ignore[arg-type]
            terms = OfferTerms(
                gpu_uuids=(f"GPU-{number}a", f"GPU-{number}b"),
                windows=(Window(NOON, NOON + timedelta(days=2)),),
                floor=Rate(1_000_000_000),
            )
            commands.publish_offer(
                world.store,
                offer_id=OfferId(UUID(int=900 + number)),
                terms=terms,
                **who,  # type: ignore[arg-type]
            )
        self.register(BOOT)
        self.follow()

    def new_watch(self) -> Watch:
        return Watch(poll_seconds=POLL, uptime=lambda now: self.uptime)

    def register(self, boot_id: UUID) -> None:
        """Let the agent of HOST start: a run of its own."""
        self.world.seen(self.now)
        AgentContact.objects.filter(host_id=HOST).update(boot_id=boot_id, registered_at=self.now)

    def say(
        self, kind: HealthKind, uuid: str | None = "GPU-0a", detail: str = "", boot: UUID = BOOT
    ) -> None:
        self.seq += 1
        told = Health(seq=self.seq, gpu_uuid=uuid, kind=kind, at=self.now, detail=detail)
        self.world.send(health=(told,), boot_id=boot, now=self.now)

    def follow(self) -> None:
        while follow_projections(self.world.store, ROWS):
            pass

    def step(self, length: timedelta = STEP) -> None:
        """Let a little time pass: agents are heard, the watch looks."""
        self.now += length
        for host_id in self.alive:
            self.world.seen(self.now, host_id=host_id)  # type: ignore[arg-type]
        if self.watch.run_once(self.world.store, now=self.now):
            self.follow()

    def wait(self, *, until: timedelta) -> None:
        """Let more time pass; where there is much of it, with fewer looks."""
        ends = self.now + until
        while self.now < ends:
            far = ends - self.now > timedelta(minutes=2)
            self.step(STRIDE if far else STEP)

    def host(self, host_id: UUID = HOST) -> Host:
        found = load(self.world.store, Host, host_id)
        assert found is not None
        return found

    @property
    def silent(self) -> list[bool]:
        return [self.host(host_id).is_silent for host_id in (HOST, OTHER_HOST)]

    @property
    def unfit(self) -> dict[str, str]:
        return {uuid: fault.reason for uuid, fault in self.host().unfit.items()}


@pytest.fixture
def hosts(world: World) -> Hosts:
    found = Hosts(world)
    found.step()
    return found


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


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


def running_lease(hosts: Hosts) -> LeaseId:
    """Let a lease run on HOST for three hours."""
    store, now = hosts.world.store, hosts.now
    hosts.world.schedule(share(HOST, OWNER, "GPU-0a"), starts_at=now, minutes=180)
    lease_started(store, lease_id=LEASE, host_id=HOST, by=SOMEBODY, now=now)
    hosts.follow()
    return LEASE


def ending_reason(hosts: Hosts) -> int | None:
    lease = load(hosts.world.store, Lease, LEASE)
    assert lease is not None
    return lease.ending_reason


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
