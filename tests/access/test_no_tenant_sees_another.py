"""Nobody sees or changes anything of another organisation: every route, by id and by list.

The routes are read from the URL conf, so a new one is asked at once. What it needs to be asked
properly is declared below: a name of an id that no route had before in `world.py`, the body of a
write in `BODIES`. The test fails with what to declare.

Each attack has its control: the organisation that owns the thing asks the same, and is not told
that there is no such thing. So a route that refuses everybody does not pass for a safe one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django.plugin import DjangoDbBlocker

from config.site.live.relay import render_fragment
from config.web.sockets import socket_urls
from ledger.eventstore import default_store
from ledger.eventstore.port import Position
from ledger.models import Person
from tests.access.routes import Route, all_routes
from tests.access.world import MARK, Party, follow, found
from tests.kept import kept

API = "api/v1/"

UNPROVED = {"api/openapi.json"}
"""Answers the same to everybody, without any row: the description of the API itself."""

PUBLIC_READS: Mapping[str, frozenset[str]] = {
    "api/v1/listings": frozenset({"offer_id"}),
}
"""What the market shows to everybody, and which ids of others are in it by design."""

BY_CODE = {"POST agent/enrolment"}
"""Asked with a code in place of a token: with one, it knows nobody."""

UNDERSTOOD_NOTHING = {"body-invalid", "body-unreadable", "message-unreadable"}
"""Codes of a refusal that never looked at whose things are meant."""

PLATFORM_ONLY = {
    "POST tenants",
    "POST accounts",
    "POST accounts/<uuid:account_id>/funds",
    "POST accounts/<uuid:account_id>/refunds/<uuid:refund_id>/approve",
    "POST lab",
    "POST quotas",
    "POST quotas/counting",
    "POST quotas/half-life",
    "POST quotas/least-run",
    "POST quotas/listings",
    "POST documents",
    "POST invoices",
    "POST invoices/<str:number>/credit-notes",
    "POST invoices/<str:number>/payments",
    "POST invoices/<str:number>/write-off",
    "POST invoices/<str:number>/write-off/approve",
    "POST invoices/<str:number>/write-off/decline",
    "POST credit-notes/<uuid:credit_id>/approve",
    "POST credit-notes/<uuid:credit_id>/decline",
    "POST periods/<str:period>/soft-close",
    "POST periods/<str:period>/close",
    "POST periods/<str:period>/reopening",
    "POST periods/<str:period>/reopening/approve",
    "POST periods/<str:period>/reopening/decline",
    "POST disputes/<uuid:dispute_id>/uphold",
    "POST disputes/<uuid:dispute_id>/dismiss",
    "PUT exports/mapping",
    "POST exports/plans",
    "DELETE exports/plans/<uuid:plan_id>",
    "POST bank-files",
    "POST bank-notices",
    "POST bank-files/<uuid:file_id>/content",
    "POST payees/<uuid:payee_id>/settle",
    "POST payouts/<uuid:payout_id>/approve",
    "POST payouts/<uuid:payout_id>/cancel",
    "POST payouts/<uuid:payout_id>/paid",
    "POST payouts/<uuid:payout_id>/returned",
    "POST payouts/<uuid:payout_id>/reversals",
    "POST quotas/overrides",
    "DELETE quotas/overrides/<uuid:override_id>",
    "POST quotas/period",
    "POST quotas/requests/<uuid:request_id>/approve",
    "POST quotas/requests/<uuid:request_id>/decline",
    "POST quotas/policies",
    "POST quotas/trials",
    "POST quotas/uses",
    "POST quotas/weights",
    "POST quotas/cohorts",
    "POST quotas/units",
}
"""Writes that no organisation but the platform's own may do, so their control is refused too."""

CHOSEN_KEYS = {"PUT hosts/<uuid:host_id>"}
"""Writes that make a thing under a key of the caller's choice: one that another uses is free."""

WORDS = {"name", "market", "round_id", "kind", "stream", "period", "topic"}
"""Parameters of routes that are no ids of anybody's: names, and what the market shows to all."""

QUERIES: Mapping[str, str] = {
    "accounts/<uuid:account_id>/statement": "period={month}",
    "spend": "period={month}",
    "debts": "period={month}",
    "exports": "period={month}&format=focus",
    "exports/manifest": "period={month}&format=focus",
}
"""What a read must be asked with, by route."""

SITE_ONLY = (
    "accounts/",
    "docs/",
    "healthz",
    "readyz",
    "metrics",
    "demo/",
    "gallery/",
    "invitations/",
)
"""Addresses without rows of any organisation: log-in pages, documents, health;
and the links of invitations, which name nothing but a secret of their own."""


def _moment(**ahead: float) -> str:
    moment = (timezone.now() + timedelta(**ahead)).replace(microsecond=0)
    return moment.isoformat().replace("+00:00", "Z")


def _interval(its: Party) -> dict[str, Any]:
    """What a GPU did for a lease in ten seconds that are over.

    The clock is read once: what is granted is the end less the start, to the millisecond.
    """
    end_ms = int(timezone.now().timestamp() * 1000) - 10_000
    return {
        "seq": 1,
        "lease_id": str(its.ids["lease_id"]),
        "gpu_uuid": f"GPU-{its.slug}-1",
        "start_ms": end_ms - 10_000,
        "end_ms": end_ms,
        "granted_ms": 10_000,
        "occupied_ms": 10_000,
        "busy_ms": 10_000,
        "memory_used_mib": 100,
    }


def _bid(its: Party) -> dict[str, Any]:
    return {
        "subscriber_id": str(its.ids["subscriber_id"]),
        "gpus": 1,
        "duration_seconds": 3_600,
        "limit": "1.00",
        "service_class": "on-demand",
        "workload": {"kind": "batch"},
    }


def _budget(its: Party, own: Party) -> dict[str, Any]:
    return {
        "title": "All",
        "scope": "unit",
        "subject": str(its.ids["subscriber_id"]),
        "amount": "50.00",
        "period": "year",
        "thresholds": [{"at_percent": 80, "action": "notify"}],
    }


Body = Callable[[Party, Party], dict[str, Any]]

BODIES: Mapping[str, Body] = {
    "POST tenants": lambda its, own: {"slug": its.slug, "title": "Mine", "currency": "USD"},
    "POST subscribers": lambda its, own: {"title": "Research", "cost_centre": "R1"},
    "POST members": lambda its, own: {
        "email": "eve@elsewhere.example",
        "roles": ["consumer"],
        "subscriber_id": str(its.ids["subscriber_id"]),
    },
    "POST tenants/<uuid:tenant_id>/subscribers": lambda its, own: {
        "title": "Research",
        "cost_centre": "R1",
    },
    "POST tenants/<uuid:tenant_id>/members": lambda its, own: {
        "email": "eve@elsewhere.example",
        "roles": ["operator"],
    },
    "PATCH tenants/<uuid:tenant_id>/members/<uuid:user_id>": lambda its, own: {
        "roles": ["operator"],
    },
    "PATCH members/<uuid:user_id>": lambda its, own: {"roles": ["operator"]},
    "POST tenants/<uuid:tenant_id>/invitations": lambda its, own: {
        "email": "eve@elsewhere.example",
        "roles": ["operator"],
    },
    "PUT accounts/<uuid:account_id>/budget": lambda its, own: {"overdraft": "0.00"},
    "POST folders": lambda its, own: {"manifest": its.ids["folder_id"].hex * 2},
    "POST folders/missing": lambda its, own: {"blobs": {its.ids["folder_id"].hex * 2: 1}},
    "POST folders/<uuid:folder_id>/links": lambda its, own: {"blobs": []},
    "PUT secrets/<str:name>": lambda its, own: {"value": "v4lue-of-mine"},
    "POST volumes": lambda its, own: {
        "name": "mine",
        "size_gib": 1,
        "subscriber_id": str(its.ids["subscriber_id"]),
    },
    "PATCH volumes/<str:volume>": lambda its, own: {"size_gib": 2},
    "POST volumes/<str:volume>/links": lambda its, own: {"blobs": []},
    "POST volumes/<str:volume>/missing": lambda its, own: {
        "blobs": {its.ids["folder_id"].hex * 2: 1}
    },
    "POST volumes/<str:volume>/versions": lambda its, own: {
        "manifest": its.ids["folder_id"].hex * 2,
        "base": 0,
    },
    "PUT notices/digest": lambda its, own: {"hour": 7, "zone": "Europe/Berlin"},
    "PUT notices/wishes/<str:topic>": lambda its, own: {"in_inbox": True, "by_mail": False},
    "POST webhooks": lambda its, own: {"url": "https://hooks.example/mine", "topics": ["money"]},
    "POST tokens": lambda its, own: {"title": "mine", "scopes": ["market:read"]},
    "POST hosts": lambda its, own: {"title": "rack", "region": "eu"},
    "PUT hosts/<uuid:host_id>": lambda its, own: {"title": "rack", "region": "eu"},
    "POST hosts/<uuid:host_id>/tokens": lambda its, own: {"title": "agent"},
    "POST hosts/<uuid:host_id>/maintenance": lambda its, own: {
        "ends_at": _moment(hours=2),
        "reason": "new fans",
    },
    "PATCH hosts/<uuid:host_id>/maintenance/<uuid:maintenance_id>": lambda its, own: {
        "ends_at": _moment(hours=3)
    },
    "POST offers": lambda its, own: {
        "host_id": str(its.ids["host_id"]),
        "gpu_uuids": [f"GPU-{its.slug}-3"],
        "windows": [{"starts_at": _moment(hours=1), "ends_at": _moment(hours=9)}],
        "floor": "1.00",
    },
    "POST offers/preview": lambda its, own: {
        "gpu_uuids": [f"GPU-{its.slug}-3"],
        "windows": [{"starts_at": _moment(hours=1), "ends_at": _moment(hours=9)}],
        "floor": "1.00",
    },
    "PATCH offers/<uuid:offer_id>": lambda its, own: {"floor": "1.50", "currency": "USD"},
    "POST leases/<uuid:lease_id>/checkpoint": lambda its, own: {},
    "POST leases/<uuid:lease_id>/extension": lambda its, own: {"ends_at": _moment(hours=4)},
    "POST leases/<uuid:lease_id>/prices": lambda its, own: {
        "price": "9.00",
        "since": _moment(hours=1),
    },
    "POST leases/<uuid:lease_id>/resale": lambda its, own: {"floor": "9.00"},
    "POST quotas": lambda its, own: {"node": "research", "gpu_class": "any", "nominal": 4},
    "POST quotas/cohorts": lambda its, own: {
        "cohort": "research",
        "tenant_id": str(its.ids["tenant_id"]),
    },
    "POST quotas/units": lambda its, own: {"subscriber_id": str(its.ids["subscriber_id"])},
    "POST quotas/half-life": lambda its, own: {"seconds": 86_400},
    "POST quotas/counting": lambda its, own: {"counts": "parts"},
    "POST quotas/least-run": lambda its, own: {"seconds": 3_600},
    "POST quotas/limits": lambda its, own: {
        "scope": "subscriber",
        "subject": str(its.ids["subscriber_id"]),
        "gpus": 4,
    },
    "POST quotas/listings": lambda its, own: {
        "tenant_id": str(its.ids["tenant_id"]),
        "gpu_class": "any",
        "allowed": False,
    },
    "POST quotas/overrides": lambda its, own: {
        "node": str(its.ids["subscriber_id"]),
        "gpu_class": "any",
        "nominal": 4,
        "starts_at": _moment(hours=1),
        "ends_at": _moment(hours=9),
    },
    "POST exports/runs": lambda its, own: {"format": "gl", "period": f"{timezone.now():%Y-%m}"},
    "POST exports/plans": lambda its, own: {
        "every": "day",
        "formats": ["gl"],
        "folder": "lake",
    },
    "PUT exports/mapping": lambda its, own: {
        "accounts": {"prepaid": "mine"},
        "company": "mine",
        "document_type": "SA",
    },
    "POST periods/<str:period>/reopening": lambda its, own: {"reason": "mine"},
    "POST leases/<uuid:lease_id>/heartbeats": lambda its, own: {
        "spans": [{"from_ms": 1_767_614_400_000, "until_ms": 1_767_614_460_000}]
    },
    "POST disputes": lambda its, own: {
        "entry_id": str(its.ids["entry_id"]),
        "used_millis": 0,
        "reason": "mine",
    },
    "POST disputes/<uuid:dispute_id>/statements": lambda its, own: {"text": "mine"},
    "POST disputes/<uuid:dispute_id>/uphold": lambda its, own: {"reason": "mine"},
    "POST disputes/<uuid:dispute_id>/dismiss": lambda its, own: {"reason": "mine"},
    "POST bank-notices": lambda its, own: {"content": "<mine/>"},
    "POST bank-files": lambda its, own: {"format": "csv", "currency": "USD"},
    "PUT self-billing": lambda its, own: {"agreed": False},
    "PUT payees/<uuid:payee_id>/schedule": lambda its, own: {"schedule": "monthly"},
    "POST payees/<uuid:payee_id>/bank-details": lambda its, own: {
        "name": "mine",
        "iban": "DE89370400440532013000",
    },
    "POST payouts/<uuid:payout_id>/cancel": lambda its, own: {"reason": "mine"},
    "POST payouts/<uuid:payout_id>/paid": lambda its, own: {
        "reference": "mine",
        "paid_on": "2026-01-05",
    },
    "POST payouts/<uuid:payout_id>/returned": lambda its, own: {"reason": "mine"},
    "POST payouts/<uuid:payout_id>/reversals": lambda its, own: {
        "number": 1,
        "amount": "1.00",
        "reason": "mine",
    },
    "PUT payees/<uuid:payee_id>/channel": lambda its, own: {"channel": "stripe"},
    "POST documents": lambda its, own: {"period": "2026-01"},
    "POST invoices": lambda its, own: {
        "period": "2026-01",
        "account_id": str(its.ids["account_id"]),
    },
    "POST invoices/<str:number>/credit-notes": lambda its, own: {"reason": "mine"},
    "POST invoices/<str:number>/payments": lambda its, own: {"reference": "mine"},
    "POST invoices/<str:number>/write-off": lambda its, own: {"reason": "mine"},
    "PUT billing-details": lambda its, own: {
        "name": "Mine",
        "subscriber_id": str(its.ids["subscriber_id"]),
    },
    "POST quotas/period": lambda its, own: {
        "seconds": 86_400,
        "starts_at": "2026-01-05T00:00:00Z",
    },
    "POST quotas/policies": lambda its, own: {
        "policies": [
            {"kind": "weight", "node": str(its.ids["subscriber_id"]), "weight_ppm": 1_000_000}
        ]
    },
    "POST budgets": _budget,
    "PUT budgets/<uuid:budget_id>": _budget,
    "POST budgets/<uuid:budget_id>/grants": lambda its, own: {
        "amount": "1.00",
        "until": _moment(minutes=1),
        "why": "more",
    },
    "POST quotas/requests": lambda its, own: {
        "subscriber_id": str(its.ids["subscriber_id"]),
        "gpu_class": "any",
        "nominal": 4,
        "starts_at": _moment(hours=1),
        "ends_at": _moment(hours=9),
        "why": "more",
    },
    "POST quotas/requests/<uuid:request_id>/decline": lambda its, own: {"why": "no"},
    "POST quotas/requests/<uuid:request_id>/take-up": lambda its, own: {
        "token_id": str(its.ids["request_id"]),
    },
    "POST quotas/trials": lambda its, own: {
        "policies": [
            {"kind": "weight", "node": str(its.ids["subscriber_id"]), "weight_ppm": 1_000_000}
        ]
    },
    "POST quotas/uses": lambda its, own: {
        "who": str(its.ids["subscriber_id"]),
        "gpu_class": "any",
        "what": "lease",
        "allowed": False,
    },
    "POST quotas/weights": lambda its, own: {
        "node": str(its.ids["subscriber_id"]),
        "weight_ppm": 1_000_000,
    },
    "POST bids": lambda its, own: _bid(its),
    "POST bids/preview": lambda its, own: _bid(its),
    "POST accounts": lambda its, own: {
        "tenant_id": str(its.ids["tenant_id"]),
        "subscriber_id": str(its.ids["subscriber_id"]),
        "kind": "chargeback",
        "title": "mine",
        "currency": "EUR",
        "overdraft": None,
    },
    "POST accounts/<uuid:account_id>/funds": lambda its, own: {
        "amount": "5.00",
        "currency": "USD",
        "reference": "a gift",
    },
    "POST accounts/<uuid:account_id>/top-ups": lambda its, own: {
        "amount": "5.00",
        "currency": "USD",
    },
    "POST accounts/<uuid:account_id>/refunds": lambda its, own: {
        "amount": "1.00",
        "currency": "USD",
        "reason": "mine",
    },
    "PUT accounts/<uuid:account_id>/automatic-top-up": lambda its, own: {
        "below": "5.00",
        "amount": "50.00",
        "most_per_day": "100.00",
        "method": str(its.ids["method"]),
    },
    "PATCH bids/<uuid:bid_id>": lambda its, own: {"limit": "1.50"},
    "PUT agent/host": lambda its, own: {
        "agent_version": "1",
        "boot_id": str(its.round_id),
        "hostname": "rack",
        "gpus": [],
    },
    "POST agent/token": lambda its, own: {"nonce": its.round_id.hex},
    "POST agent/token/taken": lambda its, own: {},
    "PUT bids/<uuid:bid_id>/idle-rule": lambda its, own: {"after_seconds": 1800},
    "PUT burst/home-policy": lambda its, own: {"moves": False},
    "PUT idle-rule": lambda its, own: {"after_seconds": 1800},
    "POST agent/reports": lambda its, own: {
        "boot_id": str(its.round_id),
        "reports": [
            {
                "report_id": str(its.round_id),
                "lease_id": str(its.ids["lease_id"]),
                "what": "started",
                "at": _moment(),
                "exit_code": None,
                "detail": "",
            }
        ],
    },
    "POST agent/logs": lambda its, own: {
        "pieces": [
            {
                "lease_id": str(its.ids["lease_id"]),
                "attempt": 1,
                "stream": "stdout",
                "offset": 0,
                "data": "",
            }
        ],
    },
    "POST leases/<uuid:lease_id>/access": lambda its, own: {"what": "port", "port": 8888},
    "POST agent/secrets": lambda its, own: {
        "lease_id": str(its.ids["lease_id"]),
        "attempt_id": str(its.round_id),
        "public_key": "A" * 43 + "=",
    },
    "POST agent/samples": lambda its, own: {
        "boot_id": str(its.round_id),
        "batch": [_interval(its)],
        "health": [],
    },
}
"""What a write is sent, by method and route: `its` is whose things are asked for."""


@dataclass
class Scene:
    """victim: has something of every kind. attacker: the same, elsewhere."""

    victim: Party
    attacker: Party


@pytest.fixture(scope="module")
def parties(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Scene]:
    with kept(django_db_blocker) as made:
        scene = Scene(found("victim"), found("attacker"))
        follow()
    yield scene
    made.end()


@pytest.fixture
def scene(parties: Scene, db: None) -> Scene:
    return parties


def ids_in(route: Route) -> list[str]:
    return [name for name in route.parameters if name not in WORDS]


ROUTES = all_routes()


def _methods(route: Route) -> list[str]:
    return sorted(route.endpoint.scopes) if route.endpoint else []


API_ROUTES = [route for route in ROUTES if route.is_api and route.text not in UNPROVED]
READS = [route for route in API_ROUTES if "GET" in _methods(route)]
WRITES = [
    pytest.param(method, route, id=f"{method} {route.text}")
    for route in API_ROUTES
    for method in _methods(route)
    if method != "GET"
]
PAGES = [route for route in ROUTES if not route.is_api and not route.text.startswith(SITE_ONLY)]


def text_of(route: Route) -> str:
    return route.text


def speaker(route: Route, party: Party) -> Any:
    """Return who asks: the agent where only agents may, the person otherwise."""
    assert route.endpoint is not None
    only_agents = set(route.endpoint.scopes.values()) == {"agent"}
    return party.agent if only_agents else party.caller


def path_of(route: Route, party: Party, *, strange: bool = False) -> str:
    """Return the address of a thing of `party`; strange: of a thing that nobody has."""
    words: dict[str, UUID | str] = {
        "name": "focus",
        "period": "2026-01",
        "topic": "money",
        "market": "main",
        "kind": "quota",
        "stream": "stdout",
        "round_id": party.round_id,
    }
    known = {**words, **party.ids}
    unknown = [name for name in route.parameters if name not in known]
    assert not unknown, f"say in tests/access/world.py which thing {unknown} of {route.text} is"
    if strange:
        known |= {name: uuid4() for name in ids_in(route)}
    return route.path(known)


def told(response: Any) -> tuple[int, str]:
    """Return what an answer says, whatever it was asked of."""
    is_problem = "problem+json" in response.headers.get("Content-Type", "")
    return response.status_code, response.json()["code"] if is_problem else ""


def test_the_walk_meets_the_whole_api() -> None:
    """If the URL conf were empty, everything below would pass."""
    texts = {route.text for route in API_ROUTES}

    assert {f"{API}tenants/<uuid:tenant_id>", f"{API}offers", f"{API}tokens"} <= texts
    assert len(texts) >= 20


def test_every_route_of_the_api_is_an_endpoint() -> None:
    """What is none proves nobody and may show anything."""
    others = [route.text for route in API_ROUTES if route.endpoint is None]

    assert not others, "derive it from ledger.rest.Endpoint"


@pytest.mark.parametrize("route", READS, ids=text_of)
def test_a_read_shows_nothing_of_another(route: Route, scene: Scene) -> None:
    victim, attacker = scene.victim, scene.attacker
    path = f"{path_of(route, victim)}?{query_of(route)}"

    seen = speaker(route, attacker).get(path)
    own = speaker(route, victim).get(path)

    assert own.status_code == 200, (own.status_code, own.content)
    if ids_in(route):
        assert seen.status_code == 404, (seen.status_code, seen.content)
        nobodys = f"{path_of(route, victim, strange=True)}?{query_of(route)}"
        assert told(seen) == told(speaker(route, attacker).get(nobodys))
    else:
        assert seen.status_code == 200, (seen.status_code, seen.content)
    shared = {str(victim.ids[name]) for name in PUBLIC_READS.get(route.text, ())}
    asked = {str(victim.ids[name]) for name in ids_in(route)}
    private = [text for text in victim.private if text not in shared | asked]
    assert leaks(private, content_of(seen)) == []


@pytest.mark.parametrize("route", READS, ids=text_of)
def test_a_read_needs_a_proof(route: Route, scene: Scene) -> None:
    response = Client().get(path_of(route, scene.victim))

    assert response.status_code == 401
    assert leaks([MARK], response.content) == []


@pytest.mark.parametrize(("method", "route"), WRITES)
def test_a_write_touches_nothing_of_another(method: str, route: Route, scene: Scene) -> None:
    victim, attacker = scene.victim, scene.attacker
    path, body = path_of(route, victim), body_of(method, route, scene)
    before = default_store().head()

    refused = speaker(route, attacker).ask(method, path, body)
    recorded = recorded_after(before)
    own = speaker(route, victim).ask(method, path, body)

    wrong = own.status_code in (400, 422) and own.json()["code"] in UNDERSTOOD_NOTHING
    assert not wrong, f"declare its body in BODIES: {own.content.decode()}"
    assert refused.status_code < 500, refused.content
    name = f"{method} {route.text.removeprefix(API)}"
    if leaks([str(each) for each in victim.ids.values()], json.dumps(body).encode()):
        assert refused.status_code >= 400, (refused.status_code, refused.content)
    if ids_in(route):
        nobodys = path_of(route, victim, strange=True)
        follow()  # nothing is called missing while what the victim has just done is not read
        unknown = speaker(route, attacker).ask(method, nobodys, body)
        assert told(refused) == told(unknown), "the answer tells that somebody has such a thing"
    if ids_in(route) and name not in CHOSEN_KEYS:
        assert refused.status_code in {403, 404}, (refused.status_code, refused.content)
        assert recorded == ""
    if name in BY_CODE:
        assert (refused.status_code, own.status_code, recorded) == (401, 401, "")
    elif name not in PLATFORM_ONLY:
        assert own.status_code not in (401, 403, 404, 405, 500), (own.status_code, own.content)
    assert leaks(victim.marks, refused.content) == []
    assert leaks([str(each) for each in victim.ids.values()], recorded.encode()) == []


@pytest.mark.parametrize(("method", "route"), WRITES)
def test_a_write_needs_a_proof(method: str, route: Route, scene: Scene) -> None:
    before = default_store().head()

    path, body = path_of(route, scene.victim), body_of(method, route, scene)
    response = Client().generic(method, path, json.dumps(body), content_type="application/json")

    assert response.status_code == 401
    assert default_store().head() == before


@pytest.mark.parametrize("route", PAGES, ids=text_of)
def test_a_page_shows_nothing_of_another(route: Route, scene: Scene) -> None:
    path = path_of(route, scene.victim)
    client = signed_in(scene.attacker)

    response = client.get(path, follow=True)

    assert response.status_code < 500
    if ids_in(route):
        assert response.status_code in (403, 404, 405), path
    assert leaks(scene.victim.marks, response.content) == []


@pytest.mark.parametrize("route", [each for each in PAGES if ids_in(each)], ids=text_of)
def test_a_form_sent_to_another_s_page_records_nothing(route: Route, scene: Scene) -> None:
    path = path_of(route, scene.victim)
    before = default_store().head()

    response = signed_in(scene.attacker).post(path, {"ends_at": _moment(hours=4), "floor": "1"})

    assert response.status_code in (403, 404, 405), (response.status_code, path)
    assert recorded_after(before) == ""


def signed_in(party: Party) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(Person.objects.get(id=party.caller.user_id))
    return client


def body_of(method: str, route: Route, scene: Scene) -> dict[str, Any]:
    make = BODIES.get(f"{method} {route.text.removeprefix(API)}")
    return make(scene.victim, scene.attacker) if make else {}


def query_of(route: Route) -> str:
    text = QUERIES.get(route.text.removeprefix(API), "")
    return text.format(month=timezone.now().strftime("%Y-%m"))


def content_of(response: Any) -> bytes:
    """Return the whole answer, also of one that is sent in parts."""
    content: bytes = response.getvalue()
    return content


def recorded_after(position: Position) -> str:
    """Return all that was recorded since, as one text."""
    page = default_store().read_all(after=position)
    return "\n".join(f"{each.stream} {each.data.decode()}" for each in page.events)


def leaks(private: list[str], content: bytes) -> list[str]:
    text = content.decode()
    return [each for each in private if each in text]


SOCKETS = {"ws/market", "ws/lab"}
"""Sockets. What the first says is made by `render_fragment`, for everybody alike; the second is for
who governs the platform (`tests/pages/test_the_lab_in_a_browser.py`)."""


def test_every_socket_is_declared() -> None:
    assert {str(each.pattern) for each in socket_urls} == SOCKETS


def test_what_a_socket_sends_names_nobody(scene: Scene) -> None:
    events = default_store().read_all().events

    told = render_fragment(events)

    assert "Leased 1" in told
    assert leaks([*scene.victim.private, *scene.attacker.private], told.encode()) == []
