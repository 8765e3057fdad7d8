"""From command to row to answer: tenants, members and tokens over HTTP, on the real tables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4, uuid5

import pytest
from django.utils import timezone

from ledger import commands
from ledger.access import proofs
from ledger.domain import tokens
from ledger.domain.events import Role
from ledger.domain.ids import HostId, TokenId, UserId
from ledger.domain.parties import ROLES, tenant_id_of
from ledger.domain.tokens import ROLES_OF_SCOPE, SCOPES
from ledger.eventstore import default_store
from ledger.eventstore.port import Meta
from ledger.following import follow_projections
from ledger.models import MemberRow, Person, TokenRow, TokenUse
from ledger.projections.parties import PARTIES, TOKENS
from ledger.rebuilding import fingerprint, rebuild
from tests.access.conftest import Caller, admit

BY = Meta(actor="user:test")


@pytest.fixture(autouse=True)
def routes(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.access.parties_site"


def follow() -> None:
    while follow_projections(default_store(), (PARTIES, TOKENS)):
        pass


def join(slug: str, *roles: str, scopes: tuple[str, ...] = (), email: str = "") -> Caller:
    """Register a tenant, admit one member and make a token, all through the commands."""
    now, store, tenant_id = timezone.now(), default_store(), tenant_id_of(slug)
    person = Person.objects.create_user(email or f"{'-'.join(roles)}@{slug}.example")
    user_id = UserId(person.id)
    commands.register_tenant(store, slug=slug, title=slug, currency="USD", by=BY, now=now)
    commands.admit_member(
        store,
        tenant_id=tenant_id,
        user_id=user_id,
        roles=roles,
        subscriber_id=None,
        by=BY,
        now=now,
    )
    usable = [each for each in SCOPES if set(roles) & ROLES_OF_SCOPE[each]]
    text = tokens.write("user", os.urandom(32))
    token_id = TokenId(uuid4())
    commands.issue_token(
        store,
        token_id=token_id,
        tenant_id=tenant_id,
        user_id=user_id,
        written=tokens.read(text),
        title="test",
        scopes=scopes or usable,
        expires_at=None,
        by=BY,
        now=now,
    )
    follow()
    return Caller(tenant_id, user_id, token_id, text)


@pytest.fixture
def root(db: None) -> Iterator[Caller]:
    yield join("platform", "operator")


@pytest.fixture
def boss(db: None) -> Caller:
    return join("acme", "operator")


def test_me_tells_what_token_and_roles_leave(db: None) -> None:
    caller = join("acme", "consumer", scopes=("market:read", "bids:write"))

    me = caller.get("/api/v1/me").json()

    assert me["tenant_id"] == str(caller.tenant_id)
    assert me["roles"] == ["consumer"]
    held = ["files:read", "files:write", "secrets:read"]
    assert me["scopes"] == ["market:read", "bids:write", *held]
    MemberRow.objects.update(roles=["auditor"])
    assert caller.get("/api/v1/me").json()["scopes"] == ["market:read"]


def test_a_tenant_with_a_member_and_a_unit_is_made_over_http(root: Caller, boss: Caller) -> None:
    registered = root.post(
        "/api/v1/tenants", {"slug": "globex", "title": "Globex", "currency": "EUR"}
    )
    unit = boss.post("/api/v1/subscribers", {"title": "Research", "cost_centre": "R1"})
    member = boss.post(
        "/api/v1/members",
        {
            "email": "Ada@Acme.example",
            "roles": ["consumer"],
            "subscriber_id": unit.json()["subscriber_id"],
        },
    )
    follow()

    assert [each.status_code for each in (registered, unit, member)] == [201, 201, 201]
    slugs = [each["slug"] for each in root.get("/api/v1/tenants").json()["data"]]
    assert slugs == ["acme", "globex", "platform"]
    assert [each["slug"] for each in boss.get("/api/v1/tenants").json()["data"]] == ["acme"]
    people = boss.get("/api/v1/members").json()["data"]
    assert [each["email"] for each in people] == ["operator@acme.example", "ada@acme.example"]
    centres = [each["cost_centre"] for each in boss.get("/api/v1/subscribers").json()["data"]]
    assert centres == ["R1"]


def test_only_the_platform_registers_tenants(boss: Caller) -> None:
    body = {"slug": "globex", "title": "Globex", "currency": "EUR"}

    refused = boss.post("/api/v1/tenants", body)

    assert (refused.status_code, refused.json()["code"]) == (403, "platform-only")


def test_a_token_made_over_http_works_until_it_is_revoked(boss: Caller) -> None:
    body = {"title": "ci", "scopes": ["market:read"]}
    made = boss.post("/api/v1/tokens", body, Idempotency_Key="k1")
    again = boss.post("/api/v1/tokens", body, Idempotency_Key="k1")
    follow()
    fresh = Caller(boss.tenant_id, boss.user_id, made.json()["token_id"], made.json()["token"])

    assert "token" not in again.json()
    assert fresh.get("/api/v1/tenants").status_code == 200
    shown = boss.get(f"/api/v1/tokens/{fresh.token_id}").json()
    assert shown["used_at"] is not None
    assert fresh.token not in str(shown)
    revoked = boss.delete(f"/api/v1/tokens/{fresh.token_id}")
    follow()
    refused = fresh.get("/api/v1/tenants")
    assert revoked.status_code == 200
    assert (refused.status_code, refused.json()["code"]) == (401, "token-no-longer-works")


def test_a_member_sees_their_own_tokens_and_an_operator_all(boss: Caller) -> None:
    ada = join("acme", "consumer")

    mine = ada.get("/api/v1/tokens").json()["data"]
    all_of_them = boss.get("/api/v1/tokens").json()["data"]

    assert [each["token_id"] for each in mine] == [str(ada.token_id)]
    assert len(all_of_them) == 2
    assert ada.get(f"/api/v1/tokens/{boss.token_id}").status_code == 404
    assert ada.delete(f"/api/v1/tokens/{boss.token_id}").status_code == 404
    assert boss.delete(f"/api/v1/tokens/{ada.token_id}").status_code == 200


def test_a_token_stops_with_the_membership(boss: Caller) -> None:
    ada = join("acme", "consumer")

    removed = boss.delete(f"/api/v1/members/{ada.user_id}")
    follow()

    refused = ada.get("/api/v1/me")
    assert removed.status_code == 200
    assert (refused.status_code, refused.json()["code"]) == (401, "no-longer-member")


def test_the_last_operator_cannot_remove_themselves(boss: Caller) -> None:
    refused = boss.delete(f"/api/v1/members/{boss.user_id}")

    assert (refused.status_code, refused.json()["code"]) == (409, "last-operator")


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (None, "not-signed-in"),
        ("Basic YTpi", "scheme-unknown"),
        ("Bearer", "token-malformed"),
        ("Bearer hunter2", "token-malformed"),
        ("Bearer " + tokens.write("user", b"x" * 32), "token-not-known"),
        ("Bearer " + tokens.write("user", b"x" * 32)[:-1] + "!", "token-malformed"),
        ("Bearer " + tokens.write("user", b"x" * 32)[:-6] + "000000", "token-checksum-wrong"),
        ("Bearer " + "9" * 9_000, "token-malformed"),
    ],
)
def test_who_cannot_prove_who_they_are_is_told_why(
    boss: Caller, header: str | None, code: str
) -> None:
    from django.test import Client

    response = Client().get("/api/v1/me", headers={"Authorization": header} if header else {})

    assert (response.status_code, response.json()["code"]) == (401, code)
    assert response["WWW-Authenticate"].startswith("Bearer")


def test_an_expired_token_is_named_by_its_prefix(boss: Caller) -> None:
    TokenRow.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    response = boss.get("/api/v1/me")

    assert (response.status_code, response.json()["code"]) == (401, "token-expired")
    assert response.json()["details"]["prefix"] == boss.token[:16]


def test_use_is_written_once_a_minute(boss: Caller) -> None:
    boss.get("/api/v1/me")
    first = TokenUse.objects.get(token_id=boss.token_id).used_at
    boss.get("/api/v1/me")
    second = TokenUse.objects.get(token_id=boss.token_id).used_at
    TokenUse.objects.update(used_at=first - timedelta(minutes=1))
    proofs._noted.clear()  # as in another process, or a minute later
    boss.get("/api/v1/me")

    assert first == second
    assert TokenUse.objects.get(token_id=boss.token_id).used_at > first


def test_a_host_s_token_speaks_for_the_host_alone(boss: Caller, settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.access.probe"
    host_id, text = HostId(uuid4()), tokens.write("host", os.urandom(32))
    commands.issue_host_token(
        default_store(),
        token_id=TokenId(uuid4()),
        tenant_id=tenant_id_of("acme"),
        host_id=host_id,
        written=tokens.read(text),
        title="rack 1",
        expires_at=None,
        by=BY,
        now=timezone.now(),
    )
    follow()
    agent = Caller(boss.tenant_id, UUID(int=0), UUID(int=0), text)

    assert agent.get("/api/v1/agent").json() == {"host": str(host_id)}
    assert agent.get("/api/v1/notes").status_code == 403
    assert boss.get("/api/v1/agent").status_code == 403
    settings.ROOT_URLCONF = "tests.access.parties_site"
    assert agent.post("/api/v1/tokens", {"title": "x", "scopes": ["agent"]}).status_code == 403


@pytest.mark.parametrize("role", ROLES)
def test_a_role_opens_what_its_scopes_say_and_nothing_else(
    db: None, settings: Any, role: Role
) -> None:
    settings.ROOT_URLCONF = "tests.access.probe"
    caller = admit("acme", role)

    read = caller.get("/api/v1/notes").status_code
    write = caller.post("/api/v1/notes", {"text": "hello"}).status_code

    assert read == (200 if role in ROLES_OF_SCOPE["bids:read"] else 403)
    assert write == (201 if role in ROLES_OF_SCOPE["bids:write"] else 403)


@pytest.mark.usefixtures("committed_store")
def test_the_rows_equal_their_rebuild_to_the_byte() -> None:
    boss = join("acme", "operator")
    boss.post("/api/v1/subscribers", {"title": "Research", "cost_centre": "R1"})
    boss.post("/api/v1/members", {"email": "ada@acme.example", "roles": ["consumer"]})
    ada = UserId(Person.objects.get(email="ada@acme.example").id)
    boss.post("/api/v1/members", {"email": "ada@acme.example", "roles": ["owner", "finance"]})
    boss.post("/api/v1/members", {"email": "eve@acme.example", "roles": ["auditor"]})
    boss.delete(f"/api/v1/members/{uuid5(ada, 'nobody')}")
    boss.delete(f"/api/v1/members/{Person.objects.get(email='eve@acme.example').id}")
    boss.delete(f"/api/v1/tokens/{boss.token_id}")
    follow()

    for projection in (PARTIES, TOKENS):
        live = fingerprint(projection.tables)
        rebuild(default_store(), projection)
        assert fingerprint(projection.tables) == live
    assert MemberRow.objects.get(user_id=ada).roles == ["owner", "finance"]
