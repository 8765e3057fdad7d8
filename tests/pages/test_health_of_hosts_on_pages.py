"""Owners and operators see how hosts do, announce maintenance, cancel it, and drain."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from ledger.eventstore.port import Meta
from listings.commands.health import note_gpu, quarantine_gpu
from listings.models import HostRow
from tests.pages.reading import text
from tests.pages.world import CONSUMER, OWNER, PLATFORM, World

pytestmark = pytest.mark.django_db

BY = Meta(actor="loop:host-health")


@pytest.fixture
def owner(world: World) -> Client:
    return world.member(OWNER, "owner")


def address(world: World) -> str:
    return f"/owner/hosts/{world.host_id}/health"


def form(**changed: object) -> dict[str, object]:
    until = timezone.localtime(timezone.now() + timedelta(hours=5))
    said = {"token": str(uuid4()), "since": "", "until": f"{until:%Y-%m-%d %H:%M}"}
    return said | {"reason": "new fans"} | changed


def fail(world: World) -> None:
    """Let GPU-1 fail its diagnostic."""
    why = "silent corruption: 3 words were computed wrongly; probed again in 2 min"
    which = {"host_id": world.host_id, "gpu_uuid": "GPU-1", "by": BY, "now": world.now}
    quarantine_gpu(world.store, reason="diagnostic-failed", detail=why, **which)  # type: ignore[arg-type]
    note_gpu(world.store, note="diagnostic-failed", detail=why, **which)  # type: ignore[arg-type]
    world.settle()


def test_a_gpu_that_is_withheld_says_why_and_when_it_is_looked_at_again(
    world: World, owner: Client
) -> None:
    fail(world)
    shown = text(owner.get(address(world)).content)
    assert "silent corruption: 3 words were computed wrongly" in shown
    assert "looked at again" in shown and "once a diagnostic passes" in shown
    assert "said by: agent" in shown


def test_maintenance_is_announced_shown_and_cancelled(world: World, owner: Client) -> None:
    answer = owner.post(address(world), form(gpus=["GPU-0"]))
    assert answer.status_code == 302
    world.settle()
    shown = text(owner.get(address(world)).content)
    assert "new fans" in shown and "End it now" in shown
    (key,) = HostRow.objects.get(host_id=world.host_id).maintenance

    owner.post(f"/owner/hosts/{world.host_id}/maintenance/{key}/cancel")
    world.settle()

    assert "None is planned" in text(owner.get(address(world)).content)


def test_what_is_no_window_is_said_in_place(world: World, owner: Client) -> None:
    past = form(until="2020-01-01 10:00")
    answer = owner.post(address(world), past)
    assert answer.status_code == 422
    assert HostRow.objects.get(host_id=world.host_id).maintenance == {}


def test_a_host_is_drained_and_undrained(world: World, owner: Client) -> None:
    for turn, taking in (("drain", "draining"), ("undrain", "all")):
        owner.post(f"/owner/hosts/{world.host_id}/drain", {"turn": turn})
        world.settle()
        assert HostRow.objects.get(host_id=world.host_id).on_market == taking
    assert owner.post(f"/owner/hosts/{world.host_id}/drain", {"turn": "x"}).status_code == 400


def test_operators_see_all_hosts_and_may_do_so_too(world: World) -> None:
    fail(world)
    operator = world.member(PLATFORM, "operator")
    shown = text(operator.get("/ops/health").content)
    assert "1 of 1 are to be looked after" in shown and "diagnostic-failed" in shown
    assert operator.post(address(world), form()).status_code == 302
    operator.post(f"/owner/hosts/{world.host_id}/drain", {"turn": "drain"})
    world.settle()
    row = HostRow.objects.get(host_id=world.host_id)
    assert row.on_market == "draining" and len(row.maintenance) == 1


def test_others_see_and_do_nothing_of_it(world: World) -> None:
    other = world.member(CONSUMER, "owner")
    assert other.get(address(world)).status_code == 404
    assert other.post(address(world), form()).status_code == 404
    assert other.post(f"/owner/hosts/{world.host_id}/drain", {"turn": "drain"}).status_code == 404
    assert other.get("/ops/health").status_code == 403
    assert HostRow.objects.get(host_id=world.host_id).on_market == "all"


# --- the same over HTTP -----------------------------------------------------------------------


def asked(client: Client, method: str, path: str, body: object = None) -> tuple[int, Any]:
    answer = client.generic(
        method,
        f"/api/v1/{path}",
        "" if body is None else json.dumps(body),
        content_type="application/json",
        headers={"X-CSRFToken": "x"},
    )
    return answer.status_code, answer.json()


def test_the_api_tells_how_a_host_does_and_what_was_the_matter(world: World, owner: Client) -> None:
    fail(world)
    status, now = asked(owner, "GET", f"hosts/{world.host_id}/health")
    assert status == 200 and now["standing"] is None
    (bad,) = (each for each in now["gpus"] if each["reason"])
    assert (bad["gpu_uuid"], bad["condition"]) == ("GPU-1", "failing")
    assert bad["next_look_at"] > bad["since"]
    _, told = asked(owner, "GET", f"hosts/{world.host_id}/health/history")
    kinds = [(each["kind"], each["said_by"], each["until"] is None) for each in told["data"]]
    assert sorted(kinds) == [
        ("diagnostic-failed", "agent", False),
        ("diagnostic-failed", "agent", True),
    ]


def test_a_window_is_announced_moved_and_cancelled_over_http(world: World, owner: Client) -> None:
    def moment(hours: int) -> str:
        at = timezone.now().replace(microsecond=0) + timedelta(hours=hours)
        return at.isoformat().replace("+00:00", "Z")

    path = f"hosts/{world.host_id}/maintenance"
    said = {"starts_at": moment(2), "ends_at": moment(3), "reason": "new fans"}
    status, made = asked(owner, "POST", path, said)
    assert status == 201
    world.settle()
    _, listed = asked(owner, "GET", path)
    assert [each["id"] for each in listed["data"]] == [made["id"]]
    status, _ = asked(owner, "PATCH", f"{path}/{made['id']}", {"ends_at": moment(4)})
    assert status == 200
    status, refused = asked(owner, "POST", path, said | {"ends_at": moment(-1)})
    assert status == 422 and refused["code"] == "window-empty"
    status, _ = asked(owner, "DELETE", f"{path}/{made['id']}")
    assert status == 200
    world.settle()
    status, gone = asked(owner, "DELETE", f"{path}/{made['id']}")
    assert (status, gone["code"]) == (404, "maintenance-unknown")
