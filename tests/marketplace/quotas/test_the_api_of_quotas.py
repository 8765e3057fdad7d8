"""Quotas over HTTP: set by the platform, shared out by a tenant, seen by whom they concern."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from ledger.models import MemberRow, SubscriberRow
from tests.access.conftest import Caller, admit

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.marketplace.routes")]


@pytest.fixture
def platform(db: None) -> Caller:
    caller = admit("platform", "operator")
    MemberRow.objects.filter(tenant_id=caller.tenant_id).update(is_platform=True)
    return caller


@pytest.fixture
def dean(db: None) -> Caller:
    return admit("uni", "operator")


@pytest.fixture
def rival(db: None) -> Caller:
    return admit("rivals", "operator")


@pytest.fixture
def lab(dean: Caller) -> str:
    unit = SubscriberRow.objects.create(
        subscriber_id=uuid4(),
        tenant_id=dean.tenant_id,
        title="Lab",
        cost_centre="CC-1",
        registered_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return str(unit.subscriber_id)


def test_a_grant_is_shared_out_and_only_seen_by_its_tenant(
    platform: Caller, dean: Caller, rival: Caller, lab: str
) -> None:
    grant = {"cohort": "uni", "tenant_id": str(dean.tenant_id)}
    assert platform.post("/api/v1/quotas/cohorts", grant).status_code == 201
    given = {"node": "uni", "gpu_class": "H100", "nominal": 8}
    assert platform.post("/api/v1/quotas", given).status_code == 201
    placed = dean.post("/api/v1/quotas/units", {"subscriber_id": lab, "cohort": "uni"})
    assert placed.status_code == 201
    share = {"node": lab, "gpu_class": "H100", "nominal": 6}
    assert dean.post("/api/v1/quotas", share).status_code == 201
    too_much = dean.post("/api/v1/quotas", {**share, "nominal": 9})
    assert (too_much.status_code, too_much.json()["code"]) == (409, "grant-exceeded")

    seen = {row["node"]: row for row in dean.get("/api/v1/quotas").json()["data"]}
    assert (seen[lab]["nominal"], seen[lab]["borrowing"], seen[lab]["used"]) == (6, None, 0)
    assert seen["uni"]["nominal"] == 2, "what is left in the pot"
    assert rival.get("/api/v1/quotas").json()["data"] == []

    kinds = [row["kind"] for row in dean.get("/api/v1/quotas/log").json()["data"]]
    assert kinds == ["quota-set", "unit-placed", "quota-set", "cohort-placed"]
    assert rival.get("/api/v1/quotas/log").json()["data"] == []


def test_a_rival_places_and_grants_nothing(rival: Caller, lab: str) -> None:
    assert rival.post("/api/v1/quotas/units", {"subscriber_id": lab}).status_code == 404
    refused = rival.post("/api/v1/quotas/cohorts", {"cohort": "mine"})
    assert (refused.status_code, refused.json()["code"]) == (403, "policy-not-yours")
