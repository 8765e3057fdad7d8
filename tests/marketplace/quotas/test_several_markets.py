"""Quotas are of one market: each has its own, over HTTP as the home market's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.conf import LazySettings

from ledger.eventstore import default_store
from ledger.following import follow_projections
from ledger.models import MemberRow, SubscriberRow
from listings.domain.markets import read_markets
from marketplace.projections.quotas import PROJECTIONS
from tests.access.conftest import Caller, admit

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.marketplace.support.routes")]


def of_the_platform(slug: str) -> Caller:
    caller = admit(slug, "operator")
    MemberRow.objects.filter(tenant_id=caller.tenant_id).update(is_platform=True)
    return caller


@pytest.fixture
def platform(db: None, settings: LazySettings) -> Caller:
    settings.MARKETS = read_markets(settings.ENV.market, "eu=eu")
    return of_the_platform("platform")


@pytest.fixture
def lab(platform: Caller) -> str:
    unit = SubscriberRow.objects.create(
        subscriber_id=uuid4(),
        tenant_id=platform.tenant_id,
        title="Lab",
        cost_centre="CC-1",
        registered_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return str(unit.subscriber_id)


def govern(platform: Caller, lab: str, market: str) -> None:
    for path, body in (
        ("/cohorts", {"cohort": "science"}),
        ("/units", {"subscriber_id": lab, "cohort": "science"}),
        ("", {"node": lab, "gpu_class": "H100", "nominal": 4}),
        ("/uses", {"gpu_class": "B200", "what": "lease", "allowed": False}),
        ("/listings", {"gpu_class": "B200", "allowed": False}),
    ):
        said = platform.post(f"/api/v1/quotas{path}", {**body, "market": market})
        assert said.status_code == 201, said.content


def test_what_is_set_in_one_market_is_not_in_force_in_another(platform: Caller, lab: str) -> None:
    govern(platform, lab, "eu")
    follow_projections(default_store(), PROJECTIONS)

    for path in ("", "/log", "/uses", "/listings"):
        assert platform.get(f"/api/v1/quotas{path}").json()["data"] == [], path
        assert platform.get(f"/api/v1/quotas{path}?market=eu").json()["data"], path
    assert platform.get("/api/v1/quotas/shares").content == b"", "it has no policies"
    assert platform.get("/api/v1/quotas/shares?market=eu").json()["units"] == 1


def test_an_override_is_listed_and_lifted_in_its_market(platform: Caller, lab: str) -> None:
    govern(platform, lab, "eu")
    now = datetime.now(UTC)
    override = {
        "node": lab,
        "gpu_class": "H100",
        "nominal": 0,
        "starts_at": now.isoformat(),
        "ends_at": (now + timedelta(hours=2)).isoformat(),
        "market": "eu",
    }
    made = platform.post("/api/v1/quotas/overrides", override).json()["id"]
    path = f"/api/v1/quotas/overrides/{made}"

    assert platform.delete(path).status_code == 404, "the home market has none"
    assert len(platform.get("/api/v1/quotas/overrides?market=eu").json()["data"]) == 1
    assert platform.delete(f"{path}?market=eu").status_code == 200
    assert platform.get("/api/v1/quotas/overrides?market=eu").json()["data"] == []


def test_a_request_is_asked_approved_and_taken_up_in_its_market(platform: Caller, lab: str) -> None:
    govern(platform, lab, "eu")
    now = datetime.now(UTC)
    asked = {
        "subscriber_id": lab,
        "gpu_class": "H100",
        "nominal": 12,
        "starts_at": now.isoformat(),
        "ends_at": (now + timedelta(days=2)).isoformat(),
        "why": "the paper is due",
    }
    assert platform.post("/api/v1/quotas/requests", asked).status_code == 404, "no unit there"
    made = platform.post("/api/v1/quotas/requests", {**asked, "market": "eu"})
    path = f"/api/v1/quotas/requests/{made.json()['id']}"
    follow_projections(default_store(), PROJECTIONS)

    assert platform.get(path).status_code == 404
    assert platform.get(f"{path}?market=eu").json()["state"] == "open"
    assert platform.post(f"{path}/approve").status_code == 404
    somebody_else = of_the_platform("second")
    token = somebody_else.post(f"{path}/approve", {"market": "eu"}).json()["token_id"]
    taken = platform.post(f"{path}/take-up", {"token_id": token, "market": "eu"})
    assert taken.status_code == 201
    [override] = platform.get("/api/v1/quotas/overrides?market=eu").json()["data"]
    assert override["nominal"] == 12


def test_a_policy_is_tried_in_its_market(platform: Caller, lab: str) -> None:
    govern(platform, lab, "eu")
    quota = {"kind": "quota", "node": lab, "gpu_class": "H100", "nominal": 9}

    tried = platform.post("/api/v1/quotas/trials", {"policies": [quota], "market": "eu"})

    assert tried.json()["queues"][0]["available_after"] == {"H100": 9}
    home = platform.post("/api/v1/quotas/trials", {"policies": [quota]})
    assert (home.status_code, home.json()["code"]) == (404, "cohort-unknown")
    twice = platform.post("/api/v1/quotas/trials", {"policies": [{**quota, "market": "eu"}]})
    assert twice.status_code == 422


@pytest.mark.parametrize("path", ["quotas", "quotas/shares", "quotas/log", "market"])
def test_a_market_that_is_not_there_is_refused(platform: Caller, path: str) -> None:
    refused = platform.get(f"/api/v1/{path}?market=moon")

    assert refused.json()["code"] == "market-unknown"
    assert refused.json()["details"]["markets"] == ["main", "eu"]
