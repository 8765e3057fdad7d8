"""Invitations and budgets by the API: what operators get, and what they are refused."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from tests.pages.world import CONSUMER, PLATFORM, World

pytestmark = pytest.mark.django_db


@pytest.fixture
def chief(world: World) -> Client:
    return world.member(CONSUMER, "operator")


def sent(client: Client, method: str, path: str, body: Any = None) -> Any:
    return client.generic(
        method,
        f"/api/v1/{path}",
        "" if body is None else json.dumps(body),
        content_type="application/json",
    )


def here(world: World) -> str:
    return f"tenants/{world.tenant(CONSUMER)}/invitations"


def refusal(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_an_invitation_is_made_shown_without_its_link_and_revoked(
    world: World, chief: Client
) -> None:
    asked = {"email": "eve@new.example", "roles": ["consumer"], "valid_seconds": 86_400}
    made = sent(chief, "POST", here(world), asked)
    world.settle()

    assert made.status_code == 201
    link = made.json()["link"]
    assert "/invitations/offp_invite_" in link
    listed = sent(chief, "GET", here(world))
    [shown] = listed.json()["data"]
    assert (shown["email"], shown["state"], shown["sent"]) == ("eve@new.example", "open", "link")
    assert link.rpartition("/")[2] not in listed.text

    one = f"{here(world)}/{shown['invitation_id']}"
    assert sent(chief, "DELETE", one).status_code == 200
    world.settle()
    assert sent(chief, "GET", here(world)).json()["data"][0]["state"] == "revoked"
    assert sent(chief, "DELETE", f"{here(world)}/{uuid4()}").status_code == 404


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"email": "no address"}, 422),
        ({"roles": []}, 422),
        ({"roles": ["chief"]}, 422),
        ({"valid_seconds": 1}, 422),
        ({"valid_seconds": 31 * 86_400}, 422),
        ({"send": "pigeon"}, 422),
        ({"send": "mail"}, 422),
        ({"subscriber_id": "00000000-0000-4000-8000-000000000001"}, 404),
    ],
)
def test_what_is_no_invitation_is_refused(
    world: World, chief: Client, more: dict[str, Any], status: int
) -> None:
    asked = {"email": "eve@new.example", "roles": ["consumer"]} | more

    refused = sent(chief, "POST", here(world), asked)

    assert refused.status_code == status, refused.text
    assert sent(chief, "GET", here(world)).json()["data"] == []


@pytest.mark.parametrize("role", ["consumer", "owner", "finance", "auditor"])
def test_only_operators_invite_and_see_invitations(world: World, role: str) -> None:
    member = world.member(CONSUMER, role)

    for method, body in (("GET", None), ("POST", {"email": "a@b.example", "roles": ["owner"]})):
        assert sent(member, method, here(world), body).status_code == 403


def test_a_budget_goes_down_by_its_organisation_and_up_by_the_platform(world: World) -> None:
    path = f"accounts/{world.account_id}/budget"
    own = world.member(CONSUMER, "finance", "operator")
    platform = world.member(PLATFORM, "operator", "finance")

    raised = sent(platform, "PUT", path, {"overdraft": "200.00"})
    assert raised.status_code == 200, raised.text
    assert sent(own, "PUT", path, {"overdraft": "100.00"}).status_code == 200
    assert refusal(sent(own, "PUT", path, {"overdraft": "150.00"})) == (
        403,
        "budget-raised-by-platform-only",
    )
    for wrong in ("-1.00", "much", "1e9", None, 5):
        assert sent(own, "PUT", path, {"overdraft": wrong}).status_code in (409, 422), wrong
    world.settle()
    assert sent(own, "PUT", f"accounts/{uuid4()}/budget", {"overdraft": "1.00"}).status_code == 404
    assert sent(world.member(CONSUMER, "consumer"), "PUT", path, {}).status_code == 403
