"""What agents call and what people read, over HTTP, on the PostgreSQL store and real tables."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from ledger.eventstore.port import load
from ledger.eventstore.postgres import PostgresStore
from ledger.following import follow_projections
from listings.domain.hosts import Host
from listings.projections import PROJECTIONS as LISTINGS
from marketplace.projections.leases import PROJECTIONS as LEASES
from metering.agent import wire
from metering.domain.instants import millis_down
from metering.models import AgentContact, IngestAlarm, Interval
from tests.access.conftest import Caller, admit
from tests.metering.agent_since import agent as agent
from tests.metering.agent_since import since as since
from tests.metering.host_agent import HostAgent
from tests.metering.host_agent import owner as owner
from tests.metering.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.metering.routes")]


def test_an_agent_registers_its_gpus_and_learns_how_often_to_call(agent: HostAgent) -> None:
    answer = agent.register()

    registered = wire.Registered.from_json(answer.json())
    assert registered.host_id == agent.host_id
    host = load(PostgresStore(), Host, agent.host_id)
    assert host is not None
    assert host.gpus["GPU-a"].model == "H100-80GB"
    assert AgentContact.objects.get().agent_version == "1.0"


def test_an_agent_is_told_what_to_run(agent: HostAgent, since: datetime) -> None:
    answer = agent.call("GET", wire.ASSIGNMENTS_PATH)

    (assignment,) = wire.Assignments.from_json(answer.json()).assignments
    assert (assignment.lease_id, assignment.phase) == (agent.lease_id, "run")
    assert assignment.command == ("true",)
    assert AgentContact.objects.get().host_id == agent.host_id


def test_samples_are_stored_once_and_acknowledged(agent: HostAgent, since: datetime) -> None:
    answers = [agent.send(7, since, since + timedelta(minutes=1)) for _ in range(2)]

    assert [wire.Acknowledged.from_json(a.json()).acknowledged_seq for a in answers] == [7, 7]
    assert Interval.objects.count() == 1


def test_another_content_under_the_same_number_raises_an_alarm(
    agent: HostAgent, since: datetime
) -> None:
    agent.send(7, since, since + timedelta(minutes=1))

    answer = agent.send(7, since, since + timedelta(minutes=2))

    assert (answer.status_code, answer.json()["code"]) == (409, "sample-conflict")
    alarm = IngestAlarm.objects.get()
    assert (alarm.host_id, alarm.code, alarm.details["seq"]) == (
        agent.host_id,
        "sample-conflict",
        7,
    )
    assert Interval.objects.get().end_ms == millis_down(since + timedelta(minutes=1))


def test_another_hosts_agent_is_refused_for_good_and_not_as_a_host(
    owner: Caller, agent: HostAgent, since: datetime
) -> None:
    """An agent gives a wrong line up; 401, 403 and 404 would stop all it has to send."""
    other = HostAgent(owner)

    answers = [
        other.send(1, since, since + timedelta(minutes=1), lease_id=str(agent.lease_id)),
        other.report("started", lease_id=str(agent.lease_id)),
        agent.send(1, since, since + timedelta(minutes=1), lease_id=str(uuid4())),
        agent.report("started", lease_id=str(uuid4())),
    ]

    assert [(a.status_code, a.json()["code"]) for a in answers] == [(409, "lease-not-here")] * 4
    assert Interval.objects.count() == 0


def test_samples_of_the_future_are_to_be_sent_again(agent: HostAgent, since: datetime) -> None:
    answer = agent.send(1, since, timezone.now() + timedelta(hours=1))

    assert (answer.status_code, answer.json()["code"]) == (425, "sample-too-early")


@pytest.mark.parametrize(
    "wrong",
    [
        {"granted_ms": 1},
        {"busy_ms": -1},
        {"busy_ms": 10**12},
        {"start_ms": 0},
        {"seq": 0},
        {"seq": 1.5},
        {"lease_id": "x"},
    ],
)
def test_what_the_wire_does_not_allow_is_refused_with_its_place(
    agent: HostAgent, since: datetime, wrong: dict[str, Any]
) -> None:
    answer = agent.send(wrong.pop("seq", 1), since, since + timedelta(minutes=1), **wrong)

    assert (answer.status_code, answer.json()["code"]) == (422, "message-unreadable")
    assert answer.json()["details"]["place"].startswith("batch[0]")
    assert Interval.objects.count() == 0


def test_text_that_no_table_can_hold_is_refused_with_its_place(
    agent: HostAgent, since: datetime
) -> None:
    answer = agent.send(1, since, since + timedelta(minutes=1), gpu_uuid="\x00")

    assert answer.status_code == 422
    assert "/batch/0/gpu_uuid" in answer.content.decode()
    assert Interval.objects.count() == 0


def test_a_report_reaches_the_lease_once(agent: HostAgent, since: datetime) -> None:
    at = timezone.now().isoformat()

    answers = [agent.report("started", at=at) for _ in range(2)]

    assert [a.json() for a in answers] == [{"accepted": 1}] * 2
    heard = [each.type for each in PostgresStore().read_stream(f"lease-{agent.lease_id}")]
    assert heard[2:] == ["marketplace.work-started", "marketplace.lease-activated"]


def test_only_an_agents_token_opens_the_agents_routes(owner: Caller, agent: HostAgent) -> None:
    for method, path in (
        ("PUT", wire.HOST_PATH),
        ("GET", wire.ASSIGNMENTS_PATH),
        ("POST", wire.REPORTS_PATH),
        ("POST", wire.SAMPLES_PATH),
    ):
        for token in (owner.token, None):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            answer = Client().generic(
                method, path, "{}", content_type="application/json", headers=headers
            )
            assert answer.status_code == (403 if token else 401), path


def test_an_agents_token_opens_nothing_else(agent: HostAgent) -> None:
    for path in ("agents", "heat", f"leases/{agent.lease_id}/usage"):
        assert agent.call("GET", f"/api/v1/{path}").status_code == 403


def test_an_owner_reads_use_gaps_heat_and_agents(
    owner: Caller, agent: HostAgent, since: datetime
) -> None:
    agent.register()
    agent.report("started", at=since.isoformat())
    agent.send(1, since, since + timedelta(minutes=20))
    agent.send(2, since + timedelta(minutes=30), since + timedelta(minutes=59))
    world = World(PostgresStore())
    world.close(timezone.now(), grace=timedelta(minutes=30))
    while follow_projections(PostgresStore(), LISTINGS):
        pass

    so_far = owner.get(f"/api/v1/leases/{agent.lease_id}/usage").json()
    windows = owner.get(f"/api/v1/leases/{agent.lease_id}/usage/windows").json()["data"]
    gaps = owner.get(f"/api/v1/leases/{agent.lease_id}/usage/gaps").json()["data"]
    heat = owner.get("/api/v1/heat").json()["data"]
    (seen,) = owner.get("/api/v1/agents").json()["data"]

    assert so_far["granted_ms"] == 49 * 60_000
    assert (so_far["occupied_ms"], so_far["busy_ms"]) == (None, 0)
    assert so_far["cost"] == "1.412833334"
    assert sum(each["gap_ms"] for each in windows) == 10 * 60_000
    assert sum(millis(each) for each in gaps) == 10 * 60_000
    assert sum(each["granted_ms"] for each in heat) == so_far["rated_ms"]
    assert (seen["standing"], seen["gpus"]) == ("healthy", {"GPU-a": "healthy"})


def millis(gap: dict[str, str]) -> int:
    ends_at, starts_at = (datetime.fromisoformat(gap[key]) for key in ("ends_at", "starts_at"))
    return millis_down(ends_at) - millis_down(starts_at)


def test_another_tenant_reads_nothing(owner: Caller, agent: HostAgent, since: datetime) -> None:
    agent.register()
    while follow_projections(PostgresStore(), (*LISTINGS, *LEASES)):
        pass
    World(PostgresStore()).follow()
    stranger = admit("eve-works", "owner", "consumer")

    for path in ("usage", "usage/windows", "usage/days", "usage/corrections", "usage/gaps"):
        answer = stranger.get(f"/api/v1/leases/{agent.lease_id}/{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "lease-unknown")
    for path in ("agents", "heat", "usage/days"):
        assert stranger.get(f"/api/v1/{path}").json()["data"] == []
