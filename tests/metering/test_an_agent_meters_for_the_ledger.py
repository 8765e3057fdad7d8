"""The real agent against the real endpoints, ledger and clock: what ran is what is charged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from django.test import Client
from django.utils import timezone

from ledger.domain.ids import BidId
from ledger.domain.money import Money
from ledger.domain.span import Window
from ledger.eventstore.port import load
from ledger.eventstore.postgres import PostgresStore
from ledger.following import follow_projections
from ledger.models import DisputeRow
from ledger.projections import PROJECTIONS as LEDGER
from ledger.queries.money import disagreements
from ledger.reacting import follow_policies
from listings.domain.divisions import divide
from listings.domain.events import Division
from listings.domain.hosts import Host
from listings.projections import PROJECTIONS as LISTINGS
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import LeaseClosed, LeaseScheduled, ReclaimRequested, Workload
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.reclaim import reclaim
from marketplace.loops import advance_leases
from marketplace.models.leases import LeaseRow
from marketplace.projections.leases import PROJECTIONS as LEASES
from metering.agent import wire
from metering.agent.agent import Agent, AgentConfig
from metering.agent.clock import ManualClock
from metering.agent.gpus.simulated import SimulatedGpus
from metering.agent.runtimes.simulated import SimulatedRuntime
from metering.agent.strict import Message
from metering.agent.uplink import Refused, Unreachable
from metering.comparing import compare_meters
from metering.domain.events import MeterClosed, MeterGapFound, UsageWindowClosed
from metering.domain.instants import instant_of, millis_down
from metering.domain.two_meters import Tolerance
from metering.policies import POLICIES
from metering.projections import PROJECTIONS
from tests.access.conftest import admit
from tests.metering import world
from tests.metering.host_agent import HostAgent
from tests.metering.world import FUNDS, HOLD, PRICE, World, share

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.metering.routes")]

M = TypeVar("M", bound=Message)
MODELS = ["H100", "H100"]
SERVER_EVERY_SECONDS = 5


class TestClientUplink:
    """The uplink, less the network. away: nothing gets through. lose_replies: of so many calls."""

    __test__ = False

    def __init__(self, token: str) -> None:
        self.token, self.away, self.lose_replies = token, False, 0

    def register(self, registration: wire.Registration) -> wire.Registered:
        return self._call("PUT", wire.HOST_PATH, wire.Registered, registration.to_json())

    def assignments(self) -> wire.Assignments:
        return self._call("GET", wire.ASSIGNMENTS_PATH, wire.Assignments, None)

    def report(self, reports: Mapping[str, Any]) -> wire.ReportsAccepted:
        return self._call("POST", wire.REPORTS_PATH, wire.ReportsAccepted, reports)

    def send(self, samples: Mapping[str, Any]) -> wire.Acknowledged:
        return self._call("POST", wire.SAMPLES_PATH, wire.Acknowledged, samples)

    def ship(self, logs: wire.LogBatch) -> wire.LogsTaken:
        return self._call("POST", wire.LOGS_PATH, wire.LogsTaken, logs.to_json())

    def secrets(self, asked: wire.SecretsAsked) -> wire.SecretsSealed:
        return self._call("POST", wire.SECRETS_PATH, wire.SecretsSealed, asked.to_json())

    def _call(self, method: str, path: str, kind: type[M], body: Any) -> M:
        if self.away:
            raise Unreachable("away")
        answer = Client(raise_request_exception=False).generic(
            method,
            path,
            "" if body is None else json.dumps(body),
            content_type="application/json",
            headers={"Authorization": f"Bearer {self.token}"},
        )
        if self.lose_replies:
            self.lose_replies -= 1
            raise Unreachable("the reply was lost")
        if answer.status_code >= 400:
            raise Refused(answer.status_code, answer.content.decode())
        return kind.from_json(answer.json())


class Site:
    """A server and one host with two GPUs, moved second by second."""

    def __init__(
        self,
        state_dir: Path,
        monkeypatch: pytest.MonkeyPatch,
        *,
        models: Sequence[str] = MODELS,
    ) -> None:
        self.clock = ManualClock(millis_down(timezone.now()) // 60_000 * 60_000)
        monkeypatch.setattr(timezone, "now", lambda: instant_of(self.clock.now_ms()))
        self.store = PostgresStore()
        self.host = HostAgent(admit("ada-labs", "owner"))
        self.world = World(self.store)
        self.runtime = SimulatedRuntime(clock=self.clock)
        self.gpus = SimulatedGpus(models, clock=self.clock, holders=self.runtime.holders)
        self.uuids = tuple(gpu.uuid for gpu in self.gpus.inventory())
        self.uplink = TestClientUplink(self.host.token)
        self.agent = Agent(
            AgentConfig(state_dir=state_dir, hostname="n1"),
            gpus=self.gpus,
            runtime=self.runtime,
            uplink=self.uplink,
            clock=self.clock,
        )
        self.ended_ms = self.started_ms = 0

    def lease(self, *command: str, seconds: int, notice_seconds: int = 60) -> None:
        starts_at = instant_of(self.clock.now_ms()) + timedelta(seconds=10)
        window = Window(starts_at, starts_at + timedelta(seconds=seconds))
        self.world.fund()
        self.world.hold(window, 2)
        terms = LeaseScheduled(
            lease_id=self.host.lease_id,
            bid_id=BidId(self.host.boot_id),
            tenant_id=world.CONSUMER,
            subscriber_id=world.UNIT,
            user_id=None,
            account_id=FUNDS,
            hold_id=HOLD,
            market="main",
            shares=(share(self.host.host_id, self.host.tenant_id, *self.uuids),),
            gpu_model="H100-80GB",
            window=window,
            price=PRICE,
            fee_ppm=50_000,
            service_class="on-demand",
            workload=Workload(kind="train", command=command),
            cost_centre="CC-1",
            at=starts_at - timedelta(seconds=10),
        )
        self.world.tell(terms)

    def run(self, seconds: int) -> None:
        """Let time pass; agent, market's clock, projections, policies and metering each act."""
        for second in range(seconds):
            self.clock.advance(1_000)
            self.agent.run_once()
            for work in self.runtime.works():
                self.started_ms = work.started_ms or self.started_ms
                self.ended_ms = work.ended_ms or self.ended_ms
            if second % SERVER_EVERY_SECONDS:
                continue
            now = instant_of(self.clock.now_ms())
            self._follow()
            advance_leases(self.store, now=now, start_grace=timedelta(minutes=5))
            self._follow()
            self.world.close(now, window_seconds=60, grace=timedelta(minutes=30))

    def _follow(self) -> None:
        every = (*LISTINGS, *LEASES, *PROJECTIONS)
        while follow_projections(self.store, every) + follow_policies(self.store, POLICIES):
            pass

    def run_to_the_end(self, *, seconds_max: int = 600) -> None:
        """Let time pass until the meter is closed: an agent comes back when its pause is over."""
        for _ in range(0, seconds_max, 10):
            self.run(10)
            if self.world.events(MeterClosed, self.host.lease_id):
                return

    def reason(self) -> int:
        events = [each.event for each in self.store.read_stream(f"lease-{self.host.lease_id}")]
        (closed,) = [event for event in events if isinstance(event, LeaseClosed)]
        return closed.reason

    @property
    def truth_ms(self) -> int:
        """Return the GPU-milliseconds that the work really ran."""
        return 2 * (self.ended_ms - self.started_ms)

    def charged_in_full(self) -> None:
        """Check that ledger, meter and truth agree to the millisecond and nano-unit."""
        (closed,) = self.world.events(MeterClosed, self.host.lease_id)
        assert closed.granted_ms == self.truth_ms > 0
        hold = self.world.account().holds[HOLD]
        assert hold.captured == PRICE.charge(self.truth_ms)
        assert hold.released
        assert self.world.account().held == Money(0)
        assert self.world.events(MeterGapFound, self.host.lease_id) == []


@pytest.fixture
def site(db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site(tmp_path / "state", monkeypatch)
    site.run(2)
    yield site
    site.agent.close()


def test_work_that_ends_by_itself_is_charged_for_what_it_ran(site: Site) -> None:
    site.lease("sleep", "75.5", seconds=300)

    site.run(100)

    assert site.truth_ms == 151_000
    assert site.reason() == close_reasons.WORK_DONE
    site.charged_in_full()


def test_what_the_work_saved_before_a_reclaim_is_kept(site: Site) -> None:
    site.lease("serve", seconds=600, notice_seconds=60)
    site.run(100)
    site.runtime.saved_ms[site.host.lease_id] = site.started_ms + 45_000
    lease = load(site.store, Lease, site.host.lease_id)
    assert lease is not None
    now = instant_of(site.clock.now_ms())
    site.world.tell(*reclaim(lease, owner_id=site.host.tenant_id, now=now))

    site.run(120)

    row = LeaseRow.objects.get(lease_id=site.host.lease_id)
    assert row.close_reason == close_reasons.RECLAIMED
    assert row.checkpoint_at == instant_of(site.started_ms + 45_000)
    assert row.kept_seconds == (row.checkpoint_at - row.starts_at).seconds
    assert row.lost_seconds is not None
    assert row.stop_at is not None
    longest = row.stop_at - row.checkpoint_at
    assert longest.seconds - 30 <= row.lost_seconds <= longest.seconds
    site.charged_in_full()


def test_work_that_runs_to_the_end_is_stopped_in_time_and_charged(site: Site) -> None:
    site.lease("serve", seconds=90)

    site.run(110)

    assert 2 * 70_000 < site.truth_ms <= 2 * 90_000
    assert site.reason() == close_reasons.WINDOW_OVER
    site.charged_in_full()
    busy = [gpu.busy_ms for w in windows(site) for gpu in w.gpus]
    assert all(each is not None and each > 0 for each in busy)


def windows(site: Site) -> list[UsageWindowClosed]:
    return site.world.events(UsageWindowClosed, site.host.lease_id)


def test_an_outage_and_lost_replies_lose_and_double_nothing(site: Site) -> None:
    site.lease("serve", seconds=130)
    site.run(30)
    site.uplink.away = True
    site.run(40)
    site.uplink.away, site.uplink.lose_replies = False, 3

    site.run_to_the_end()

    assert site.truth_ms > 2 * 100_000
    assert site.reason() == close_reasons.WINDOW_OVER
    site.charged_in_full()


def test_an_owner_who_reclaims_has_the_gpus_back_and_the_rest_is_not_charged(site: Site) -> None:
    site.lease("serve", seconds=600)
    site.run(30)
    now = instant_of(site.clock.now_ms())
    lease = load(site.store, Lease, site.host.lease_id)
    assert lease is not None
    asked = reclaim(lease, owner_id=site.host.tenant_id, now=now)
    assert isinstance(asked[0], ReclaimRequested)
    site.world.tell(*asked)

    site.run(75)

    assert site.ended_ms <= millis_down(asked[0].stop_at)
    assert site.reason() == close_reasons.RECLAIMED
    site.charged_in_full()


def test_a_mig_instance_that_the_agent_made_is_metered_like_a_gpu(
    db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the offer's division to the environment of the work, and to the ledger."""
    site = Site(tmp_path / "state", monkeypatch, models=["H100@MIG"])
    site.run(2)
    (card,) = load_host(site).gpus.values()
    halves = Division("mig", profiles=("3g.40gb", "3g.40gb"))
    first, second = (gpu.uuid for gpu in divide(card, halves))
    site.uuids = (first, second)

    site.lease("sleep", "75.5", seconds=300)
    site.run(20)
    (work,) = site.runtime.works()
    made = {each.uuid for each in site.gpus.instances(card.uuid)}
    assert set(work.devices) == made and len(made) == 2
    assert {gpu.uuid for gpu in load_host(site).gpus.values()} == {card.uuid}
    site.run(80)

    site.charged_in_full()
    assert site.gpus.instances(card.uuid) == ()
    used = site.world.events(UsageWindowClosed, site.host.lease_id)
    assert {gpu.gpu_uuid for window in used for gpu in window.gpus} == {first, second}


def load_host(site: Site) -> Host:
    host = load(site.store, Host, site.host.host_id)
    assert host is not None
    return host


@pytest.mark.parametrize("away", [False, True])
def test_all_that_was_charged_after_the_last_heartbeat_is_contested(site: Site, away: bool) -> None:
    site.lease("serve", seconds=200)
    site.run(20)
    since = site.started_ms
    for _ in range(8):
        alive_until = site.clock.now_ms() + 12_000
        site.runtime.alive_ms[site.host.lease_id] = (since, alive_until)
        site.run(10)
    site.uplink.away = away
    site.run(10)
    site.uplink.away = False
    site.run(40)
    site.run_to_the_end()
    site.charged_in_full()
    while follow_projections(site.store, LEDGER):
        pass

    now = instant_of(site.clock.now_ms()) + timedelta(minutes=10)
    found = compare_meters(site.store, tolerance=Tolerance(ppm=20_000, millis=5_000), now=now)
    while follow_projections(site.store, LEDGER):
        pass

    rows = list(DisputeRow.objects.all())
    assert len(rows) == found >= 1
    contested = sum(row.charged_millis - row.used_millis for row in rows)
    assert contested == 2 * (site.ended_ms - alive_until)
    assert {row.opened_by for row in rows} == {None}
    assert disagreements() == []
