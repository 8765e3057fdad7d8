"""Batches that come at the same moment are stored in one transaction, each all or nothing."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from ledger.rest import throttling
from ledger.rest.asked import Answer, Asked
from metering.agent import wire
from metering.api.many_samples import take_all
from metering.domain.instants import millis_down
from metering.models import AgentContact, IngestAlarm, Interval, Taken
from tests.access.conftest import Caller
from tests.metering.agent_since import agent as agent
from tests.metering.agent_since import since as since
from tests.metering.host_agent import HostAgent
from tests.metering.host_agent import owner as owner

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.metering.routes")]


def batch(agent: HostAgent, seq: int, start: datetime, minutes: int = 1, **more: Any) -> Asked:
    """A request with one interval."""
    start_ms, length_ms = millis_down(start), minutes * 60_000
    row = {
        "seq": seq,
        "lease_id": str(agent.lease_id),
        "gpu_uuid": "GPU-a",
        "start_ms": start_ms,
        "end_ms": start_ms + length_ms,
        "granted_ms": length_ms,
        "occupied_ms": None,
        "busy_ms": 0,
        "memory_used_mib": None,
    } | more
    body = {"boot_id": str(agent.boot_id), "batch": [row], "health": []}
    return Asked(agent.token, json.dumps(body).encode(), wire.SAMPLES_PATH, uuid4())


def told(answer: Answer | None) -> tuple[int, str]:
    assert answer is not None
    said = json.loads(answer.content)
    return answer.status, said.get("code", said.get("acknowledged_seq"))


def test_one_that_is_refused_is_refused_alone(
    owner: Caller, agent: HostAgent, since: datetime
) -> None:
    other = HostAgent(owner)
    stolen = batch(other, 1, since, lease_id=str(agent.lease_id))
    take_all([batch(agent, 1, since)])

    answers = take_all(
        [
            stolen,
            batch(agent, 2, since + timedelta(minutes=1)),
            batch(agent, 1, since, 2),
            batch(agent, 3, timezone.now() + timedelta(hours=1)),
            batch(agent, 1, since),
        ]
    )

    assert [told(each) for each in answers] == [
        (409, "lease-not-here"),
        (200, 2),
        (409, "sample-conflict"),
        (425, "sample-too-early"),
        (200, 1),
    ]
    assert Interval.objects.count() == 2
    assert Taken.objects.get(host_id=agent.host_id).spans == [1, 3]
    assert IngestAlarm.objects.get().details["seq"] == 1
    assert {each.host_id for each in AgentContact.objects.all()} == {agent.host_id, other.host_id}


def test_a_refusal_is_the_one_that_the_handler_gives(agent: HostAgent, since: datetime) -> None:
    later = timezone.now() + timedelta(hours=1)
    [short] = take_all([batch(agent, 1, later)])
    ordinary = agent.send(1, later, later + timedelta(minutes=1))

    assert short is not None
    said, known = json.loads(short.content), ordinary.json()
    for each in (said, known):
        each.pop("request_id")
        each["details"].pop("server_time")
        each["detail"] = each["detail"].split(":")[0]
    assert said == known
    assert short.headers["Content-Type"] == ordinary.headers["Content-Type"]


def test_what_is_unusual_is_left_to_the_handler_and_nothing_is_written(
    agent: HostAgent, owner: Caller, since: datetime
) -> None:
    good = batch(agent, 1, since)
    unusual = [
        Asked("offpeak_nobody", good.body, good.path, uuid4()),
        Asked(owner.token, good.body, good.path, uuid4()),
        Asked(agent.token, good.body[:-1], good.path, uuid4()),
        Asked(agent.token, good.body, good.path, uuid4(), key="once"),
        batch(agent, 1, since, colour="red"),
        batch(agent, 1, since, busy_ms=10**9),
    ]

    assert take_all(unusual) == [None] * len(unusual)
    assert Interval.objects.count() == 0
    assert AgentContact.objects.count() == 0


def test_a_host_that_asks_too_much_is_left_to_the_handler(
    agent: HostAgent, since: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttling, "take_each", lambda *_, **__: {})

    assert take_all([batch(agent, 1, since)]) == [None]
    assert Interval.objects.count() == 0
