"""An owner's switch, at the host or on the market, takes a host out and its leases back."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from django.test import Client

import listings.projections
import marketplace.projections
from ledger.domain.ids import HostId
from ledger.domain.money import Money
from ledger.eventstore.port import load
from ledger.following import follow_projections
from listings import commands
from listings.domain.events import Taking
from listings.domain.hosts import Host, HostIsRetired
from listings.domain.sandboxes import AgentSays
from listings.models import HostRow
from listings.queries import told_to_agent
from listings.queries.watched import hosts_watched
from marketplace.commands.leases import advance_lease, lease_started
from marketplace.domain.facts import close_reasons
from marketplace.domain.leases.lease import Lease
from marketplace.queries.leases import assignments_for
from metering.agent.wire import Report, ReportBatch
from metering.ingest.grants import Grants
from metering.ingest.reports import take_reports
from metering.taking import take_back
from tests.conftest import NOON, SOMEBODY
from tests.metering.host_agent import host_token
from tests.metering.world import BOOT, HOST, LEASE, OTHER_HOST, OWNER, SHARES, World, minute

pytestmark = pytest.mark.django_db

ROWS = (*listings.projections.PROJECTIONS, *marketplace.projections.PROJECTIONS)
NOTICE = timedelta(seconds=60)


class Rented:
    """A lease that runs on two owners' hosts, as the market knows it."""

    def __init__(self, world: World) -> None:
        self.world = world
        for host_id in (HOST, OTHER_HOST):
            commands.register_host(
                world.store, host_id=host_id, tenant_id=OWNER, title="rack", market="main",
                region="eu-west", by=SOMEBODY, now=NOON,
            )  # fmt: skip
        world.fund()
        world.schedule(*SHARES)
        for host_id in (HOST, OTHER_HOST):
            lease_started(world.store, lease_id=LEASE, host_id=host_id, by=SOMEBODY, now=NOON)
        self.follow()

    def follow(self) -> None:
        while follow_projections(self.world.store, ROWS):
            pass

    def tick(self, at: float) -> None:
        advance_lease(
            self.world.store, lease_id=LEASE, start_grace=timedelta(minutes=5), by=SOMEBODY,
            now=minute(at),
        )  # fmt: skip
        self.follow()

    def turn(self, on_market: Taking, at: float = 1) -> int:
        commands.turn_switch(
            self.world.store, host_id=HOST, on_market=on_market, by=SOMEBODY, now=minute(at)
        )
        return self.look(at)

    def look(self, at: float) -> int:
        self.follow()
        (watched,) = [each for each in hosts_watched() if each.host_id == HOST]
        taken = take_back(self.world.store, watched, by=SOMEBODY, now=minute(at))
        self.follow()
        return taken

    @property
    def lease(self) -> Lease:
        found = load(self.world.store, Lease, LEASE)
        assert found is not None
        return found


@pytest.fixture
def rented(world: World) -> Rented:
    return Rented(world)


def test_a_paused_host_keeps_what_it_runs(rented: Rented) -> None:
    assert rented.turn("paused") == 0

    assert rented.lease.state == "active" and rented.lease.stop_at is None


def test_a_drained_host_has_its_leases_reclaimed_with_their_notice_once(rented: Rented) -> None:
    assert rented.turn("draining") == 1
    assert rented.lease.stop_at == minute(1) + NOTICE

    assert rented.look(1.1) == 0  # told once
    rented.tick(2)
    assert rented.lease.ending_reason == close_reasons.RECLAIMED


def test_a_released_host_has_its_leases_taken_at_once_also_after_a_drain(rented: Rented) -> None:
    rented.turn("draining")

    assert rented.turn("released", 1.2) == 1

    assert rented.lease.stop_at == minute(1.2)
    (told,) = assignments_for(HOST)
    assert (told.phase, told.stop_at) == ("warn", minute(1.2))
    rented.tick(1.3)
    assert rented.lease.ending_reason == close_reasons.RECLAIMED
    assert [each.phase for each in assignments_for(HOST)] == ["stop"]


def told(rented: Rented, *, reclaimed: bool, at: float = 5) -> None:
    report = Report(
        report_id=UUID(int=83), lease_id=LEASE, what="stopped", at=minute(at), exit_code=None,
        detail="the owner took it", reclaimed=reclaimed,
    )  # fmt: skip
    take_reports(
        rented.world.store, Grants(), ReportBatch(boot_id=BOOT, reports=(report,)), host_id=HOST,
        by=SOMEBODY, now=minute(at),
    )  # fmt: skip
    rented.follow()


def test_what_a_host_let_go_by_its_owners_hand_is_a_reclaim_and_paid_for(rented: Rented) -> None:
    """The market hears of it only now: no switch was turned that it knew of."""
    told(rented, reclaimed=True)

    assert rented.lease.ending_reason == close_reasons.RECLAIMED
    (reclaim,) = rented.lease.rights.reclaims
    assert (reclaim.owner_id, reclaim.stop_at) == (OWNER, minute(5))
    assert isinstance(reclaim.money, Money)


def test_heard_twice_it_is_paid_once(rented: Rented) -> None:
    told(rented, reclaimed=True)
    told(rented, reclaimed=True)

    assert len(rented.lease.rights.reclaims) == 1


def test_both_switches_are_kept_apart_and_the_agent_is_told_of_one(rented: Rented) -> None:
    commands.report_inventory(
        rented.world.store, host_id=HOST, gpus=[], taking="paused", by=SOMEBODY, now=NOON
    )
    rented.turn("draining")
    rented.turn("all", 2)

    row = HostRow.objects.get(host_id=HOST)
    assert (row.at_host, row.on_market) == ("paused", "all")
    assert told_to_agent(HOST) == (False, "all")  # of before: it has not said that it knows
    assert told_to_agent(UUID(int=1)) == (False, "all")


def test_a_switch_that_stands_so_already_makes_no_fact(rented: Rented) -> None:
    rented.turn("paused")
    rented.turn("paused", 2)

    events = [each.event.name for each in rented.world.store.read_stream(f"host-{HOST}")]
    assert events.count("listings.host-taking-changed") == 1


def test_the_switch_of_a_retired_host_is_not_turned(rented: Rented) -> None:
    commands.retire_host(rented.world.store, host_id=HOST, by=SOMEBODY, now=NOON)

    with pytest.raises(HostIsRetired):
        rented.turn("paused")


def test_assignments_say_the_notice(rented: Rented) -> None:
    assert [each.notice_seconds for each in assignments_for(HOST)] == [60]


def test_the_fold_keeps_both_words(rented: Rented) -> None:
    rented.turn("released")

    host = load(rented.world.store, Host, HostId(HOST))
    assert host is not None and (host.at_host, host.on_market) == ("all", "released")


@pytest.mark.urls("tests.metering.market_routes")
@pytest.mark.parametrize("knows", [True, False], ids=["one that knows of it", "one of before"])
def test_an_agent_is_told_the_markets_switch_and_the_notice(rented: Rented, knows: bool) -> None:
    says = AgentSays.so("process", (), ("hand",) if knows else ("files",))
    commands.report_inventory(
        rented.world.store, host_id=HOST, gpus=[], says=says, by=SOMEBODY, now=NOON
    )
    rented.turn("paused")

    headers = {"Authorization": f"Bearer {host_token(HOST, OWNER)}"}
    answer = Client().get("/api/v1/agent/assignments", headers=headers).json()

    assert answer.get("taking") == ("paused" if knows else None)
    assert answer["assignments"][0].get("notice_seconds") == (60 if knows else None)
