"""What agents are told when they ask at the same moment is what each is told alone."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from config.web.front import Front
from ledger.eventstore.postgres import PostgresStore
from ledger.following import follow_projections
from ledger.rest import gathering
from ledger.rest.asked import Asked
from listings.projections import PROJECTIONS as LISTINGS
from marketplace.projections.leases import PROJECTIONS as LEASES
from metering.agent import wire
from metering.api.many_assignments import tell_all
from metering.models import AgentContact
from tests.access.conftest import Caller, admit
from tests.metering.agent_since import agent as agent
from tests.metering.agent_since import since as since
from tests.metering.host_agent import HostAgent
from tests.metering.host_agent import owner as owner

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.metering.routes")]


def asking(token: str, **more: Any) -> Asked:
    return Asked(token, b"", wire.ASSIGNMENTS_PATH, uuid4(), **more)


def test_each_is_told_its_own_leases_and_noted_as_heard(
    owner: Caller, agent: HostAgent, since: datetime
) -> None:
    idle = HostAgent(owner)
    while follow_projections(PostgresStore(), (*LISTINGS, *LEASES)):
        pass

    answers = tell_all([asking(agent.token), asking(idle.token), asking(agent.token)])

    said = [wire.Assignments.from_json(json.loads(each.content)) for each in answers if each]
    assert [[each.lease_id for each in one.assignments] for one in said] == [
        [agent.lease_id],
        [],
        [agent.lease_id],
    ]
    assert {each.host_id for each in AgentContact.objects.all()} == {agent.host_id, idle.host_id}
    ordinary = wire.Assignments.from_json(agent.call("GET", wire.ASSIGNMENTS_PATH).json())
    assert ordinary.assignments == said[0].assignments


def test_who_is_no_agent_is_left_to_the_handler(owner: Caller, agent: HostAgent) -> None:
    asked = [asking("offpeak_nobody"), asking(owner.token), asking(agent.token, key="once")]

    assert tell_all(asked) == [None, None, None]
    assert AgentContact.objects.count() == 0


@pytest.fixture
def party(committed_store: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostAgent]:
    monkeypatch.setattr(gathering, "END_SECONDS", 0.05)
    yield HostAgent(admit("ada-labs", "owner"))
    for thread in [each for each in threading.enumerate() if each.name == "assignments"]:
        thread.join(60)


@pytest.mark.parametrize(("asks", "short"), [("", True), ("after=0", False)])
def test_a_plain_question_of_an_agent_goes_past_django(
    party: HostAgent, asks: str, short: bool
) -> None:
    came: list[str] = []

    async def ordinary(scope: Any, receive: Any, send: Any) -> None:
        came.append(scope["path"])
        await send({"type": "http.response.start", "status": 299, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    headers = {"host": "localhost", "authorization": f"Bearer {party.token}"}
    scope = {
        "type": "http",
        "method": "GET",
        "path": wire.ASSIGNMENTS_PATH,
        "query_string": asks.encode(),
        "scheme": "http",
        "headers": [(name.encode(), text.encode()) for name, text in headers.items()],
    }
    asyncio.run(Front(ordinary)(scope, receive, send))

    assert (sent[0]["status"], came) == ((200, []) if short else (299, [wire.ASSIGNMENTS_PATH]))
    if short:
        told = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        alone = Client().get(
            wire.ASSIGNMENTS_PATH, headers={"Authorization": f"Bearer {party.token}"}
        )
        assert json.loads(sent[1]["body"]).keys() == alone.json().keys()
        assert told["content-type"] == alone["content-type"]
