"""Quotas over HTTP: set by the platform, shared out by a tenant, seen by whom they concern."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from ledger.eventstore import default_store
from ledger.following import follow_projections
from ledger.models import MemberRow, SubscriberRow
from marketplace.projections.quotas import PROJECTIONS
from tests.access.conftest import Caller, admit

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.marketplace.support.routes")]


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

    follow_projections(default_store(), PROJECTIONS)
    kinds = [row["kind"] for row in dean.get("/api/v1/quotas/log").json()["data"]]
    assert kinds == ["quota-set", "unit-placed", "quota-set", "cohort-placed"]
    assert rival.get("/api/v1/quotas/log").json()["data"] == []


def test_a_rival_places_and_grants_nothing(rival: Caller, lab: str) -> None:
    assert rival.post("/api/v1/quotas/units", {"subscriber_id": lab}).status_code == 404
    refused = rival.post("/api/v1/quotas/cohorts", {"cohort": "mine"})
    assert (refused.status_code, refused.json()["code"]) == (403, "policy-not-yours")


def test_a_request_is_approved_by_a_token_and_taken_up_once(
    platform: Caller, dean: Caller, rival: Caller, lab: str
) -> None:
    grant = {"cohort": "uni", "tenant_id": str(dean.tenant_id)}
    assert platform.post("/api/v1/quotas/cohorts", grant).status_code == 201
    assert (
        dean.post("/api/v1/quotas/units", {"subscriber_id": lab, "cohort": "uni"}).status_code
        == 201
    )
    now = datetime.now(UTC)
    asked = {
        "subscriber_id": lab,
        "gpu_class": "H100",
        "nominal": 12,
        "starts_at": (now + timedelta(hours=1)).isoformat(),
        "ends_at": (now + timedelta(days=2)).isoformat(),
        "why": "the paper is due",
    }
    assert rival.post("/api/v1/quotas/requests", asked).status_code == 404
    made = dean.post("/api/v1/quotas/requests", asked)
    assert made.status_code == 201, made.content
    follow_projections(default_store(), PROJECTIONS)
    path = f"/api/v1/quotas/requests/{made.json()['id']}"
    assert dean.get(path).json()["state"] == "open"
    assert rival.get(path).status_code == 404
    assert dean.post(f"{path}/approve").status_code == 403, "nobody approves their own"

    approved = platform.post(f"{path}/approve").json()
    token = {"token_id": approved["token_id"]}
    wrong = dean.post(f"{path}/take-up", {"token_id": str(uuid4())})
    assert (wrong.status_code, wrong.json()["code"]) == (403, "escalation-token-wrong")
    assert rival.post(f"{path}/take-up", token).status_code == 404
    assert dean.post(f"{path}/take-up", token).status_code == 201
    again = dean.post(f"{path}/take-up", token)
    assert again.status_code == 201, "asked again it changes nothing"

    follow_projections(default_store(), PROJECTIONS)
    assert dean.get(path).json()["state"] == "taken-up"
    log = dean.get("/api/v1/quotas/log").json()["data"]
    assert [row["kind"] for row in log[:3]] == [
        "quota-overridden",
        "quota-request-approved",
        "quota-requested",
    ]
    assert log[2]["why"] == "the paper is due"
    assert approved["token_id"] not in str(log), "the log tells no token"


def test_every_policy_is_set_with_its_reason_and_tried_before(
    platform: Caller, dean: Caller, lab: str
) -> None:
    quota = {"kind": "quota", "node": lab, "gpu_class": "H100", "nominal": 4, "gpu_hours": 100}
    unit = {"kind": "unit", "subscriber_id": lab, "cohort": "uni"}
    cohort = {"kind": "cohort", "cohort": "uni", "tenant_id": str(dean.tenant_id)}
    tried = platform.post("/api/v1/quotas/trials", {"policies": [cohort, unit, quota]})
    assert tried.status_code == 200, tried.content
    [queue] = tried.json()["queues"]
    assert (queue["unit"], queue["place_before"], queue["place_after"]) == (lab, None, 1)
    assert queue["available_after"] == {"H100": 4}
    assert platform.get("/api/v1/quotas").json()["data"] == [], "nothing was written"

    for path, body in (
        ("cohorts", {"cohort": "uni", "tenant_id": str(dean.tenant_id), "why": "their grant"}),
        ("units", {"subscriber_id": lab, "cohort": "uni"}),
        ("", {"node": lab, "gpu_class": "H100", "nominal": 4, "gpu_hours": 100}),
        ("weights", {"node": lab, "weight_ppm": 2_000_000}),
        ("least-run", {"seconds": 7_200}),
        ("least-run", {"seconds": 0, "gpu_class": "H100"}),
        ("least-run", {"seconds": 60, "gpu_class": "L4"}),
        ("least-run", {"lift": True, "gpu_class": "L4"}),
        ("least-run", {"seconds": 172_800, "firm": True}),
        ("counting", {"counts": "parts"}),
        ("half-life", {"seconds": 86_400}),
        ("period", {"seconds": 604_800, "starts_at": "2026-01-05T00:00:00Z"}),
        ("uses", {"who": lab, "gpu_class": "B200", "what": "lease", "allowed": False}),
        ("listings", {"gpu_class": "B200", "allowed": False, "why": "export rules"}),
        ("limits", {"scope": "user", "gpus": 8, "money": "100.00", "currency": "USD"}),
    ):
        answer = platform.post(f"/api/v1/quotas/{path}".rstrip("/"), body)
        assert answer.status_code == 201, (path, answer.content)

    for nothing in ({}, {"gpu_class": "H100"}, {"lift": True}, {"lift": True, "seconds": 60}):
        answer = platform.post("/api/v1/quotas/least-run", nothing)
        assert answer.json()["code"] == "least-run-missing", answer.content

    for wrong, code in (
        ({"seconds": 60, "firm": True, "gpu_class": "H100"}, "firm-time-of-all"),
        ({"seconds": 172_800}, "figure-out-of-range"),
    ):
        answer = platform.post("/api/v1/quotas/least-run", wrong)
        assert answer.json()["code"] == code, answer.content

    [use] = dean.get("/api/v1/quotas/uses").json()["data"]
    assert use == {"who": lab, "what": "lease", "gpu_class": "B200", "allowed": False}
    [listing] = dean.get("/api/v1/quotas/listings").json()["data"]
    assert listing == {"who": None, "what": "list", "gpu_class": "B200", "allowed": False}

    assert dean.get("/api/v1/quotas/least-run").json() == {
        "seconds": 7_200,
        "firm_seconds": 172_800,
        "classes": [{"gpu_class": "H100", "seconds": 0}],
    }
    assert dean.get("/api/v1/quotas/counting").json() == {"counts": "parts"}
    shares = dean.get("/api/v1/quotas/shares").json()
    assert shares["half_life_seconds"] == 86_400
    [place] = shares["places"]
    assert (place["weight_ppm"], place["share"], place["entitled"]) == (2_000_000, 0.0, 1.0)
    nodes = {node["node"]: node for node in shares["classes"][0]["nodes"]}
    assert (nodes[lab]["gpu_hours"], nodes[lab]["borrowing"]) == (100, None)
    assert [(each["scope"], each["money"]) for each in shares["limits"]] == [("user", "100.00")]


def test_shares_are_told_level_by_level(
    platform: Caller, dean: Caller, rival: Caller, lab: str
) -> None:
    """A tenant sees its own grant and what is nobody's; of the grant of others not the name."""
    guest = str(
        SubscriberRow.objects.create(
            subscriber_id=uuid4(),
            tenant_id=rival.tenant_id,
            title="Guests",
            cost_centre="CC-2",
            registered_at=datetime(2026, 1, 1, tzinfo=UTC),
        ).subscriber_id
    )
    for path, body in (
        ("cohorts", {"cohort": "all"}),
        ("cohorts", {"cohort": "uni", "parent": "all", "tenant_id": str(dean.tenant_id)}),
        ("cohorts", {"cohort": "idle", "parent": "all"}),
        ("cohorts", {"cohort": "theirs", "parent": "all", "tenant_id": str(rival.tenant_id)}),
        ("units", {"subscriber_id": lab, "cohort": "uni"}),
        ("units", {"subscriber_id": guest, "cohort": "theirs"}),
        ("", {"node": "all", "gpu_class": "H100", "nominal": 4}),
        ("weights", {"node": "theirs", "weight_ppm": 3_000_000}),
    ):
        answer = platform.post(f"/api/v1/quotas/{path}".rstrip("/"), body)
        assert answer.status_code == 201, (path, answer.content)
    weighed = dean.post("/api/v1/quotas/weights", {"node": lab, "weight_ppm": 5_000_000})
    assert weighed.status_code == 201, "its own, within its own grant"
    assert dean.post("/api/v1/quotas/weights", {"node": "uni", "weight_ppm": 1}).status_code == 403

    found = platform.get("/api/v1/quotas/shares").json()
    levels = {each["node"]: each for each in found["levels"]}
    assert [each["node"] for each in found["levels"]] == ["all", "theirs", guest, "uni", lab]
    assert [each["node"] for each in found["places"]] == [guest, lab], "in the order of cohorts"
    assert found["places"][0]["before_the_next"] == "in all: theirs 0 = uni 0: as much, so by name"
    assert (levels["theirs"]["turn"], levels["theirs"]["beside"]) == (1, 2), "idle has no unit"
    assert [levels[each]["entitled"] for each in ("all", "theirs", guest)] == [1.0, 0.75, 0.75]
    assert (levels[lab]["weight_ppm"], levels[lab]["entitled"]) == (5_000_000, 0.25)
    assert (levels[lab]["within"], levels[lab]["depth"], levels["uni"]["units"]) == ("uni", 2, 1)

    seen = dean.get("/api/v1/quotas/shares").json()
    assert [each["node"] for each in seen["levels"]] == ["all", "uni", lab]
    assert "theirs" not in str(seen) and guest not in str(seen)

    trial = {"policies": [{"kind": "weight", "node": "theirs", "weight_ppm": 0}]}
    tried = platform.post("/api/v1/quotas/trials", trial).json()
    turns = {each["cohort"]: (each["turn_before"], each["turn_after"]) for each in tried["cohorts"]}
    assert turns == {"all": (1, 1), "theirs": (1, 2), "uni": (2, 1)}
    places = {q["unit"]: (q["place_before"], q["place_after"]) for q in tried["queues"]}
    assert places == {guest: (1, 2), lab: (2, 1)}


def test_an_override_is_lifted_and_bad_trials_are_refused(
    platform: Caller, dean: Caller, lab: str
) -> None:
    assert platform.post("/api/v1/quotas/cohorts", {"cohort": "all"}).status_code == 201
    now = datetime.now(UTC)
    override = {
        "node": "all",
        "gpu_class": "any",
        "nominal": 4,
        "starts_at": now.isoformat(),
        "ends_at": (now + timedelta(days=1)).isoformat(),
    }
    made = platform.post("/api/v1/quotas/overrides", override)
    assert made.status_code == 201, made.content
    path = f"/api/v1/quotas/overrides/{made.json()['id']}"
    [shown] = dean.get("/api/v1/quotas/overrides").json()["data"]
    assert (shown["id"], shown["nominal"], shown["lending"]) == (made.json()["id"], 4, None)
    assert dean.delete(path).status_code == 403
    assert platform.delete(path).status_code == 200
    assert platform.delete(path).status_code == 404

    for wrong in ([], [{"kind": "wish"}], [{"kind": "weight", "node": "all"}]):
        refused = platform.post("/api/v1/quotas/trials", {"policies": wrong})
        assert refused.status_code == 422, refused.content
    beyond = [{"kind": "weight", "node": "all", "weight_ppm": 1}]
    assert dean.post("/api/v1/quotas/trials", {"policies": beyond}).status_code == 403


def test_a_tenant_limits_its_own_people_only(
    platform: Caller, dean: Caller, rival: Caller, lab: str
) -> None:
    mine = {"scope": "subscriber", "subject": lab, "gpus": 2}
    assert rival.post("/api/v1/quotas/limits", mine).status_code == 404
    assert dean.post("/api/v1/quotas/limits", mine).status_code == 201
    everybody = {"scope": "user", "gpus": 2}
    assert dean.post("/api/v1/quotas/limits", everybody).status_code in (403, 404)
