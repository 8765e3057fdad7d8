"""What does not make sense is refused with its reason, and nothing is recorded.

One write of each app that takes any; the same strict fields serve all the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django.plugin import DjangoDbBlocker

from ledger.eventstore import default_store
from tests.access.world import Party, follow, found
from tests.kept import kept

pytestmark = pytest.mark.django_db

BAD_BODIES: list[tuple[str, bytes, int, str]] = [
    ("no JSON", b"{", 400, "body-unreadable"),
    ("empty", b"", 422, "body-invalid"),
    ("NaN", b'{"title": NaN}', 400, "body-unreadable"),
    ("Infinity", b'{"title": -Infinity}', 400, "body-unreadable"),
    ("a name twice", b'{"title": "a", "title": "b"}', 400, "body-unreadable"),
    ("not UTF-8", b'{"title": "\xff"}', 400, "body-unreadable"),
    ("deep", b'{"title": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "body-unreadable"),
    ("deep objects", b'{"a":' * 50_000 + b"1" + b"}" * 50_000, 400, "body-unreadable"),
    ("a huge number", b'{"gpus": ' + b"9" * 5_000 + b"}", 400, "body-unreadable"),
    ("NUL in a name", b'{"labels": {"a\\u0000b": "x"}}', 400, "body-unreadable"),
    ("half a pair in a name", b'{"labels": {"\\ud800": "x"}}', 400, "body-unreadable"),
    ("a list", b"[1]", 422, "body-invalid"),
    ("a number", b"1e400", 422, "body-invalid"),
    ("too large", b'{"title": "' + b"x" * 20_000_000 + b'"}', 413, "too-large"),
]
ROUTES = ("POST subscribers", "POST offers", "POST bids", "POST agent/samples", "PUT agent/host")
NUL, SURROGATE = "a\0b", "\ud800"

# route, where in the body, what is put there, the code that names the fault
BAD_FIELDS: list[tuple[str, str, object, str]] = [
    ("POST subscribers", "titel", "x", "unknown-field"),
    ("POST subscribers", "title", 7, "not-a-string"),
    ("POST subscribers", "title", NUL, "null-characters-not-allowed"),
    ("POST subscribers", "title", SURROGATE, "surrogate-characters-not-allowed"),
    ("POST subscribers", "title", "x" * 10_000, "max-length"),
    ("POST offers", "floors", "1", "unknown-field"),
    ("POST offers", "floor", 1.5, "amount-not-a-string"),
    ("POST offers", "floor", "NaN", "amount-unreadable"),
    ("POST offers", "floor", "Infinity", "amount-unreadable"),
    ("POST offers", "floor", "1.0000000001", "amount-too-fine"),
    ("POST offers", "floor", "-1.00", "amount-too-large"),
    ("POST offers", "floor", "9000000001", "amount-too-large"),
    ("POST offers", "windows.0.starts_at", "2026-01-05T12:00:00", "moment-without-offset"),
    ("POST offers", "windows.0.until", "x", "unknown-field"),
    ("POST offers", "notice_seconds", -1, "out-of-range"),
    ("POST offers", "grace_seconds", -1, "out-of-range"),
    ("POST offers", "grace_seconds", "60", "not-a-whole-number"),
    ("POST offers", "lease_min_seconds", 10**40, "out-of-range"),
    ("POST offers", "gpu_uuids", [SURROGATE], "surrogate-characters-not-allowed"),
    ("POST bids", "limits", "1", "unknown-field"),
    ("POST bids", "workload.kinds", "1", "unknown-field"),
    ("POST bids", "limit", "2.0000000001", "amount-too-fine"),
    ("POST bids", "limit", "1e5", "amount-unreadable"),
    ("POST bids", "gpus", 0, "out-of-range"),
    ("POST bids", "gpus", 1.0, "not-a-whole-number"),
    ("POST bids", "gpus", 10**18, "out-of-range"),
    ("POST bids", "duration_seconds", -3_600, "out-of-range"),
    ("POST bids", "duration_seconds", True, "not-a-whole-number"),
    ("POST bids", "deadline", "2026-01-05T12:00", "moment-unreadable"),
    ("POST bids", "deadline", "2026-01-05T12:00:00", "moment-without-offset"),
    ("POST bids", "deadline", "9999-12-31T23:59:59Z", "moment-out-of-range"),
    ("POST bids", "workload.environment", {"X": SURROGATE}, "surrogate-characters-not-allowed"),
    ("POST bids", "workload.command", [NUL], "null-characters-not-allowed"),
    ("POST bids", "query", NUL, "null-characters-not-allowed"),
]
# The agent's messages are refused whole, with the place; what only a later agent says is left out.
BAD_MESSAGES: list[tuple[str, str, object]] = [
    ("POST agent/samples", "batch.0.start_ms", -5),
    ("POST agent/samples", "batch.0.end_ms", 10**30),
    ("POST agent/samples", "batch.0.busy_ms", 0.5),
    ("POST agent/samples", "batch.0.granted_ms", True),
    ("POST agent/samples", "batch.0.gpu_uuid", NUL),
    ("POST agent/samples", "batch.0.gpu_uuid", SURROGATE),
    ("PUT agent/host", "hostname", NUL),
    ("PUT agent/host", "hostname", SURROGATE),
    ("PUT agent/host", "boot_id", "no id"),
]


@pytest.fixture(scope="module")
def careless(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Party]:
    with kept(django_db_blocker) as made:
        party = found("careless")
        follow()
    yield party
    made.end()


@pytest.fixture
def party(careless: Party, db: None) -> Party:
    return careless


def good_body(route: str, party: Party) -> dict[str, Any]:
    """Return what the route accepts."""
    now = timezone.now().replace(microsecond=0)
    bodies: dict[str, Callable[[], dict[str, Any]]] = {
        "POST subscribers": lambda: {"title": "Research", "cost_centre": "R1"},
        "POST offers": lambda: {
            "host_id": str(party.ids["host_id"]),
            "gpu_uuids": ["GPU-careless-3"],
            "windows": [
                {
                    "starts_at": (now + timedelta(hours=1)).isoformat(),
                    "ends_at": (now + timedelta(hours=9)).isoformat(),
                }
            ],
            "floor": "1.00",
        },
        "POST bids": lambda: {
            "subscriber_id": str(party.ids["subscriber_id"]),
            "gpus": 1,
            "duration_seconds": 3_600,
            "limit": "1.00",
            "service_class": "on-demand",
            "workload": {"kind": "inference-7b"},
        },
        "POST agent/samples": lambda: {
            "boot_id": str(uuid4()),
            "batch": [
                {
                    "seq": 1,
                    "lease_id": str(party.ids["lease_id"]),
                    "gpu_uuid": "GPU-careless-1",
                    "start_ms": int(now.timestamp() * 1000) - 20_000,
                    "end_ms": int(now.timestamp() * 1000) - 10_000,
                    "granted_ms": 10_000,
                    "occupied_ms": 10_000,
                    "busy_ms": 10_000,
                    "memory_used_mib": 100,
                }
            ],
            "health": [],
        },
        "PUT agent/host": lambda: {
            "agent_version": "1",
            "boot_id": str(uuid4()),
            "hostname": "rack",
            "gpus": [],
        },
    }
    return bodies[route]()


def with_field(body: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    changed = deepcopy(body)
    *steps, last = path.split(".")
    inside: Any = changed
    for step in steps:
        inside = inside[int(step) if step.isdigit() else step]
    inside[last] = value
    return changed


def send(
    party: Party, route: str, body: bytes, content_type: str = "application/json"
) -> tuple[Any, int]:
    """Send `body`; return the answer and how many events were recorded meanwhile."""
    method, path = route.split(" ")
    caller = party.agent if path.startswith("agent/") else party.caller
    before = default_store().head()
    response = Client(raise_request_exception=False).generic(
        method,
        f"/api/v1/{path}",
        body,
        content_type=content_type,
        headers={"Authorization": f"Bearer {caller.token}"},
    )
    return response, default_store().head() - before


def codes(response: Any) -> set[str]:
    problem = response.json()
    return {problem["code"], *(each["code"] for each in problem.get("errors", ()))}


@pytest.mark.parametrize("route", ROUTES)
def test_the_unchanged_body_is_accepted(route: str, party: Party) -> None:
    response, _ = send(party, route, json.dumps(good_body(route, party)).encode())

    assert response.status_code < 300, response.content


@pytest.mark.parametrize("route", ROUTES)
def test_a_body_that_is_none_is_refused_and_records_nothing(route: str, party: Party) -> None:
    for name, body, status, code in BAD_BODIES:
        response, recorded = send(party, route, body)

        agent_says = "message-unreadable" if code == "body-invalid" else code
        said = agent_says if "agent/" in route else code
        assert (response.status_code, response.json()["code"]) == (status, said), name
        assert response["Content-Type"] == "application/problem+json"
        assert recorded == 0, name


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data"],
)
def test_another_content_type_is_refused_and_records_nothing(
    route: str, content_type: str, party: Party
) -> None:
    body = json.dumps(good_body(route, party)).encode()

    response, recorded = send(party, route, body, content_type)

    assert (response.status_code, response.json()["code"]) == (415, "unsupported-media-type")
    assert recorded == 0


@pytest.mark.parametrize(("route", "path", "value", "code"), BAD_FIELDS)
def test_a_field_that_makes_no_sense_is_refused_and_records_nothing(
    route: str, path: str, value: object, code: str, party: Party
) -> None:
    body = with_field(good_body(route, party), path, value)

    response, recorded = send(party, route, json.dumps(body).encode())

    assert response.status_code == 422, response.content
    assert code in codes(response), response.content
    assert recorded == 0


@pytest.mark.parametrize(("route", "path", "value"), BAD_MESSAGES)
def test_an_agents_message_that_makes_no_sense_is_refused_with_its_place(
    route: str, path: str, value: object, party: Party
) -> None:
    body = with_field(good_body(route, party), path, value)

    response, recorded = send(party, route, json.dumps(body).encode())

    problem = response.json()
    assert (response.status_code, problem["code"]) == (422, "message-unreadable"), problem
    assert path.rpartition(".")[2] in problem["details"]["place"] + problem["details"]["reason"]
    assert recorded == 0


def test_a_parameter_that_is_no_text_is_refused(party: Party) -> None:
    for path in ("market/prices?gpu_model=%00", "bids?state=a%00b", "leases?bid_id=%00"):
        response = party.caller.get(f"/api/v1/{path}")

        assert (response.status_code, response.json()["code"]) == (422, "parameter-no-text"), path
