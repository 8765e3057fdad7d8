"""Made, then used at once: no caller is told that what it has just made is not there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from django.db import connections

from config.urls import api_urls
from config.wiring import projections
from ledger.eventstore import default_store
from ledger.rest import Endpoint
from tests.access.world import Party, follow, found

OF_THE_STREAM_ALONE = {
    "budgets/<uuid:budget_id>/grants/<uuid:grant_id>/approve",
    "budgets/<uuid:budget_id>/grants/<uuid:grant_id>/decline",
    "burst/home-policy",
    "market/depth",
    "market/quotes",
    "notices/digest",
    "notices/wishes",
    "webhooks",
    "webhooks/<uuid:webhook_id>",
    "webhooks/<uuid:webhook_id>/deliveries",
    "webhooks/<uuid:webhook_id>/deliveries/<uuid:delivery_id>/again",
    "webhooks/<uuid:webhook_id>/on",
    "webhooks/<uuid:webhook_id>/secret",
    "webhooks/<uuid:webhook_id>/test",
    "workloads",
}
"""What these show comes from a stream itself or from no record at all, never from rows."""


def endpoints() -> dict[str, type[Endpoint]]:
    return {str(each.pattern): each.callback.view_class for each in api_urls}  # type: ignore[attr-defined]  # as_view() sets it


@pytest.mark.parametrize("route", sorted(endpoints()))
def test_every_route_says_which_rows_it_reads(route: str) -> None:
    endpoint = endpoints()[route]

    known = {projection.name for projection in projections()}
    assert set(endpoint.reads) <= known
    if "GET" in endpoint.scopes or "<uuid:" in route:
        assert bool(endpoint.reads) == (route not in OF_THE_STREAM_ALONE)


@pytest.fixture
def late(committed_store: None) -> Iterator[Party]:
    """An organisation whose read models follow a while after what is written."""
    party = found("hasty")
    follow()
    stop, head = threading.Event(), default_store().head()

    def reading() -> None:
        seen = head
        while not stop.wait(0.01):
            if default_store().head() > seen:
                seen = default_store().head()
                stop.wait(0.3)
                follow()
        connections.close_all()

    thread = threading.Thread(target=reading)
    thread.start()
    yield party
    stop.set()
    thread.join()


def test_a_host_is_there_for_its_token(late: Party) -> None:
    for number in range(3):
        made = late.caller.post("/api/v1/hosts", {"title": f"r{number}", "region": "eu"}).json()
        token = late.caller.post(f"/api/v1/hosts/{made['id']}/tokens", {"title": "agent"})
        assert token.status_code == 201, token.content


def test_a_host_can_be_read_and_retired_at_once(late: Party) -> None:
    made = late.caller.post("/api/v1/hosts", {"title": "r", "region": "eu"}).json()

    assert late.caller.get(f"/api/v1/hosts/{made['id']}").status_code == 200
    assert late.caller.post(f"/api/v1/hosts/{made['id']}/retire").status_code == 200


def test_a_token_works_at_once(late: Party) -> None:
    made = late.caller.post("/api/v1/tokens", {"title": "new", "scopes": ["market:read"]}).json()

    caller = replace(late.caller, token=made["token"])

    assert caller.get("/api/v1/me").status_code == 200


def test_a_unit_can_bid_at_once(late: Party) -> None:
    unit = late.caller.post("/api/v1/subscribers", {"title": "Lab", "cost_centre": "L1"}).json()
    asked = {
        "subscriber_id": unit["subscriber_id"],
        "gpus": 1,
        "duration_seconds": 3_600,
        "limit": "1.00",
        "service_class": "on-demand",
        "workload": {"kind": "inference-7b"},
    }

    placed = late.caller.post("/api/v1/bids", asked)

    assert placed.json().get("code") != "subscriber-unknown", placed.content


@pytest.mark.parametrize("by_header", [True, False])
def test_a_list_shows_what_was_written_up_to_a_position(late: Party, by_header: bool) -> None:
    made = late.caller.post("/api/v1/hosts", {"title": "r", "region": "eu"}).json()
    position = str(made["position"])

    if by_header:
        listed = late.caller.get("/api/v1/hosts", **{"Offpeak-After": position})
    else:
        listed = late.caller.get(f"/api/v1/hosts?after={position}")

    assert made["id"] in {each["id"] for each in listed.json()["data"]}


def test_what_is_really_missing_is_still_missing(late: Party) -> None:
    answer = late.caller.get(f"/api/v1/hosts/{uuid4()}")

    assert (answer.status_code, answer.json()["code"]) == (404, "host-unknown")


@pytest.fixture
def stopped(committed_store: None, monkeypatch: pytest.MonkeyPatch) -> Party:
    """An organisation whose read models follow when a test says so: their process has ended."""
    monkeypatch.setattr("ledger.rest.endpoint.CATCH_UP_SECONDS", 0.05)
    monkeypatch.setattr("ledger.rest.proving.CATCH_UP_SECONDS", 0.05)
    party = found("patient")
    follow()
    return party


def test_while_nothing_is_read_nothing_is_called_missing(stopped: Party) -> None:
    made = stopped.caller.post("/api/v1/hosts", {"title": "r", "region": "eu"}).json()
    address = f"/api/v1/hosts/{made['id']}"

    for answer in (
        stopped.caller.get(address),
        stopped.caller.post(f"{address}/tokens", {"title": "agent"}),
        stopped.caller.get(f"/api/v1/hosts/{uuid4()}"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (503, "not-read-yet")
        assert int(answer["Retry-After"]) >= 1

    follow()
    assert stopped.caller.post(f"{address}/tokens", {"title": "agent"}).status_code == 201
    follow()
    assert stopped.caller.get(f"/api/v1/hosts/{uuid4()}").status_code == 404


def test_while_nothing_is_read_no_token_is_called_unknown(stopped: Party) -> None:
    made = stopped.caller.post("/api/v1/tokens", {"title": "new", "scopes": ["market:read"]}).json()
    caller = replace(stopped.caller, token=made["token"])

    assert caller.get("/api/v1/me").status_code == 503
    follow()
    assert caller.get("/api/v1/me").status_code == 200


@pytest.mark.parametrize("after", ["-1", "1_0", "\u0663", "9" * 5_000, "", " 1", "1.0", "+1"])
def test_a_position_is_digits(late: Party, after: str) -> None:
    answer = late.caller.get("/api/v1/hosts?" + urlencode({"after": after}))

    assert answer.json()["code"] in {"position-unreadable", "parameter-too-long"}, answer.content
