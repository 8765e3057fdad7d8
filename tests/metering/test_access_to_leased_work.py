"""Who gets a permit to connect into leased work, and how long it holds."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core import signing
from django.utils import timezone

from ledger.domain.refusal import Refusal
from ledger.domain.tokens import TokenMalformed
from ledger.models import MemberRow, TokenRow
from listings.domain.hosts import HostIsRetired
from listings.models import HostRow
from marketplace.models.leases import LeaseShareRow
from metering.domain.access import HostNotConnected, Permit, PermitNotGood
from metering.ingest import tunnels
from metering.ingest.tunnels import Agent, Holder
from metering.models import AgentTunnel
from tests.access.conftest import Caller, admit
from tests.metering.host_agent import host_token
from tests.metering.leases import lease_row, share_row

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.metering.routes")]

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJkq9YmLDnG0c0bGQwsZ1GZ1Rr4h4cCsh4r1v8Yt5c1c"
HERE = Holder(uuid4(), "http://127.0.0.1:8000")


@pytest.fixture
def grace() -> Caller:
    return admit("grace-lab", "consumer")


@pytest.fixture
def owner() -> Caller:
    return admit("owner-works", "owner")


@pytest.fixture
def lease(grace: Caller, owner: Caller) -> Any:
    row = lease_row(tenant_id=grace.tenant_id, owner_id=owner.tenant_id)
    share_row(row, phase="run")
    return row


@pytest.fixture
def agent(lease: Any, owner: Caller) -> Agent:
    agent = Agent(lease.host_ids[0], owner.tenant_id, uuid4())
    tunnels.note_opened(agent, HERE, "shell", now=timezone.now())
    return agent


def ask(caller: Caller, lease: Any, **asked: Any) -> Any:
    wish = asked or {"what": "port", "port": 8888}
    return caller.post(f"/api/v1/leases/{lease.lease_id}/access", wish)


def code_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def refused(permit: Permit) -> str:
    with pytest.raises(Refusal) as refusal:
        tunnels.check_now(permit)
    return refusal.value.code


def test_a_consumer_gets_a_permit_for_one_port_of_the_lease(
    grace: Caller, lease: Any, agent: Agent
) -> None:
    answer = ask(grace, lease)

    said = answer.json()
    permit = tunnels.read_permit(said["token"])
    assert permit == Permit(
        lease_id=lease.lease_id,
        host_id=agent.host_id,
        tenant_id=grace.tenant_id,
        user_id=grace.user_id,
        token_id=grace.token_id,
        what="port",
        port=8888,
    )
    assert (said["path"], said["idle_seconds"]) == ("/tunnel", 1800)
    assert tunnels.check_now(permit) == HERE


def test_a_shell_is_for_the_key_that_was_named(grace: Caller, lease: Any, agent: Agent) -> None:
    said = ask(grace, lease, what="shell", key=KEY).json()

    permit = tunnels.read_permit(said["token"])
    assert (permit.what, permit.port, permit.key) == ("shell", 0, KEY)


def test_what_can_be_reached_is_told(grace: Caller, lease: Any, agent: Agent) -> None:
    path = f"/api/v1/leases/{lease.lease_id}/access"
    counts = {agent.host_id: {str(lease.lease_id): 2}}
    tunnels.note_connections(HERE, counts, counts)
    tunnels.note_host_key(lease.lease_id, agent.host_id, KEY, now=timezone.now())

    told = grace.get(path).json()

    [host] = told["hosts"]
    assert told["idle_seconds"] == 1800
    assert host == {
        "host_id": str(agent.host_id),
        "is_connected": True,
        "runs": True,
        "allowed": "shell",
        "connections": 2,
        "host_key": KEY,
    }


def test_nobody_else_gets_one(grace: Caller, owner: Caller, lease: Any, agent: Agent) -> None:
    stranger = admit("stranger", "consumer")

    assert ask(stranger, lease).status_code == 404
    assert code_of(ask(owner, lease))[0] == 403
    assert (
        grace.post(f"/api/v1/leases/{uuid4()}/access", {"what": "port", "port": 1}).status_code
        == 404
    )
    auditor = admit("auditing", "auditor")
    assert ask(auditor, lease).status_code == 403
    reader = admit("reading", "consumer", scopes=("leases:read",))
    assert code_of(ask(reader, lease)) == (403, "scope-missing")


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"what": "port"}, "port-missing"),
        ({"what": "port", "port": 0}, "body-invalid"),
        ({"what": "port", "port": 65_536}, "body-invalid"),
        ({"what": "port", "port": 22, "key": KEY}, "key-unreadable"),
        ({"what": "shell"}, "key-unreadable"),
        ({"what": "shell", "key": KEY, "port": 22}, "port-missing"),
        ({"what": "shell", "key": "ssh-rsa AAAA"}, "key-unreadable"),
        ({"what": "shell", "key": KEY + "\nssh-ed25519 " + "A" * 68}, "key-unreadable"),
        ({"what": "shell", "key": 'command="x" ' + KEY}, "key-unreadable"),
        ({"what": "root", "port": 1}, "body-invalid"),
        ({"what": "port", "port": 1, "host_id": str(uuid4())}, "host-not-of-lease"),
        ({"what": "port", "port": 1, "lease_id": str(uuid4())}, "body-invalid"),
    ],
)
def test_a_wish_that_says_something_else_is_refused(
    grace: Caller, lease: Any, agent: Agent, asked: dict[str, Any], code: str
) -> None:
    assert code_of(ask(grace, lease, **asked)) == (422, code)


def test_an_owner_s_word_is_the_bound(grace: Caller, lease: Any, agent: Agent) -> None:
    tunnels.note_opened(agent, HERE, "ports", now=timezone.now())
    assert ask(grace, lease).status_code == 200
    assert code_of(ask(grace, lease, what="shell", key=KEY)) == (403, "access-not-allowed")

    AgentTunnel.objects.update(allowed="all")
    assert code_of(ask(grace, lease)) == (403, "access-not-allowed")


def test_without_a_tunnel_there_is_no_way_in(grace: Caller, lease: Any, agent: Agent) -> None:
    permit = tunnels.read_permit(ask(grace, lease).json()["token"])

    tunnels.note_ended(agent.host_id, Holder(uuid4(), ""))
    assert ask(grace, lease).status_code == 200, "another process's word about it does not count"
    tunnels.note_ended(agent.host_id, HERE)

    assert code_of(ask(grace, lease)) == (409, "host-not-connected")
    with pytest.raises(HostNotConnected):
        tunnels.check_now(permit)


def test_a_permit_holds_no_longer_than_the_lease(grace: Caller, lease: Any, agent: Agent) -> None:
    permit = tunnels.read_permit(ask(grace, lease).json()["token"])

    LeaseShareRow.objects.filter(lease_id=lease.lease_id).update(phase="stop")

    assert refused(permit) == "work-not-running"
    assert code_of(ask(grace, lease)) == (409, "work-not-running")


def test_a_permit_holds_no_longer_than_the_membership(
    grace: Caller, lease: Any, agent: Agent
) -> None:
    permit = tunnels.read_permit(ask(grace, lease).json()["token"])
    in_a_page = replace(permit, token_id=None)
    assert tunnels.refusals_of([permit, in_a_page]) == {}

    MemberRow.objects.filter(user_id=grace.user_id).update(roles=["auditor"])
    assert refused(permit) == refused(in_a_page) == "person-may-no-longer"
    MemberRow.objects.filter(user_id=grace.user_id).delete()
    assert refused(permit) == refused(in_a_page) == "person-may-no-longer"


def test_a_permit_holds_no_longer_than_the_token_it_was_asked_with(
    grace: Caller, lease: Any, agent: Agent
) -> None:
    permit = tunnels.read_permit(ask(grace, lease).json()["token"])

    TokenRow.objects.filter(token_id=grace.token_id).update(revoked_at=timezone.now())

    assert refused(permit) == "person-may-no-longer"
    assert tunnels.refusals_of([replace(permit, token_id=None)]) == {}


def test_a_permit_of_one_organisation_is_none_for_another(
    grace: Caller, lease: Any, agent: Agent
) -> None:
    permit = tunnels.read_permit(ask(grace, lease).json()["token"])

    assert refused(replace(permit, tenant_id=uuid4(), token_id=None)) == "person-may-no-longer"
    assert refused(replace(permit, host_id=uuid4())) == "work-not-running"
    assert refused(replace(permit, lease_id=uuid4())) == "work-not-running"


def test_a_permit_that_this_market_did_not_sign_is_none(
    grace: Caller, lease: Any, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = ask(grace, lease).json()["token"]

    for forged in ("", "x", token[:-1] + ("A" if token[-1] != "A" else "B"),
                   signing.dumps({"lease_id": "x"}, salt="other"), grace.token):  # fmt: skip
        with pytest.raises(PermitNotGood):
            tunnels.read_permit(forged)
    now = time.time()
    monkeypatch.setattr("django.core.signing.time.time", lambda: now + 61)
    with pytest.raises(PermitNotGood):
        tunnels.read_permit(token)


def test_an_agent_s_tunnel_is_opened_by_its_own_token_alone(grace: Caller) -> None:
    with pytest.raises(Refusal) as refusal:
        tunnels.agent_of(grace.token)
    assert refusal.value.code == "scope-missing"
    with pytest.raises(TokenMalformed):
        tunnels.agent_of("nothing")


def test_an_agent_whose_token_was_revoked_is_barred(agent: Agent) -> None:
    assert tunnels.agents_barred([agent]) == {agent}, "there is no such token"


def test_a_lease_s_permit_says_nothing_else(grace: Caller, lease: Any, agent: Agent) -> None:
    permit = tunnels.read_permit(ask(grace, lease, what="shell", key=KEY).json()["token"])

    assert Permit.from_json(permit.to_json()) == permit
    assert isinstance(permit.lease_id, UUID)


def test_an_agent_of_a_host_that_is_retired_is_barred(lease: Any, owner: Caller) -> None:
    host_id = lease.host_ids[0]
    token = host_token(host_id, owner.tenant_id)
    agent = tunnels.agent_of(token)
    assert tunnels.agents_barred([agent]) == set()

    HostRow.objects.create(
        host_id=host_id,
        tenant_id=owner.tenant_id,
        state="retired",
        labels={},
        gpus=[],
        gpu_count=0,
        registered_at=timezone.now(),
        version=1,
    )

    assert tunnels.agents_barred([agent]) == {agent}
    with pytest.raises(HostIsRetired):
        tunnels.agent_of(token)
