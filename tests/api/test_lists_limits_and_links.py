"""What lists, limits and links promise holds on every route that has them."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest
from django.test import Client

from config.site.manual.reference import refusals_page
from tests.access.world import Party, follow, found

pytestmark = pytest.mark.django_db

WORKED_OUT = (
    "quotas",
    "workloads",
    "agents",
    "market",
    "market/depth",
    "quotas/limits",
    "quotas/uses",
)


@pytest.fixture
def party() -> Party:
    party = found("lists")
    follow()
    return party


def test_lists_that_are_worked_out_are_paged_too(party: Party) -> None:
    for path in WORKED_OUT:
        whole = party.caller.get(f"/api/v1/{path}").json()
        paged, cursor = [], ""
        for _ in range(len(whole["data"]) + 1):
            page = party.caller.get(f"/api/v1/{path}?limit=1{cursor}").json()
            assert len(page["data"]) <= 1
            paged += page["data"]
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
        assert len(paged) == len(whole["data"]), path
        wrong = party.caller.get(f"/api/v1/{path}?cursor=WyJ4Il0")
        assert wrong.json()["code"] == "cursor-unreadable", path
        assert party.caller.get(f"/api/v1/{path}?limit=0").status_code == 422, path


def test_a_statement_is_paged(party: Party) -> None:
    path = f"/api/v1/accounts/{party.ids['account_id']}/statement?period=2026-11&limit=1"

    assert party.caller.get(path).status_code == 200


def test_a_limit_that_is_set_can_be_read_back(party: Party) -> None:
    subject = str(party.ids["subscriber_id"])
    asked = {"scope": "subscriber", "subject": subject, "gpus": 4, "money": "500.00"}

    done = party.caller.post("/api/v1/quotas/limits", {**asked, "why": "the term"})
    assert done.status_code == 201, done.content

    (found_again,) = [
        each
        for each in party.caller.get("/api/v1/quotas/limits").json()["data"]
        if each["subject"] == subject
    ]
    assert {name: found_again[name] for name in asked} == asked
    assert (found_again["gpu_hours"], found_again["why"]) == (None, "the term")


def test_a_stale_version_comes_before_what_a_rule_says(party: Party) -> None:
    bid = f"/api/v1/offers/{party.ids['offer_id']}"
    etag = party.caller.get(bid)["ETag"]
    assert party.caller.post(f"{bid}/withdraw").status_code == 200
    follow()

    stale = party.caller.post(f"{bid}/withdraw", None, **{"If-Match": etag})
    fresh = party.caller.post(
        f"{bid}/withdraw", None, **{"If-Match": party.caller.get(bid)["ETag"]}
    )

    assert (stale.status_code, stale.json()["code"]) == (412, "version-moved")
    assert fresh.status_code == 200


def test_the_use_of_an_unknown_lease_is_an_unknown_lease(party: Party) -> None:
    answer = party.caller.get(f"/api/v1/leases/{uuid4()}/usage")

    assert (answer.status_code, answer.json()["code"]) == (404, "lease-unknown")


def test_the_type_of_a_problem_leads_to_its_explanation(party: Party) -> None:
    problems = [
        party.caller.get("/api/v1/nothing"),
        party.caller.get(f"/api/v1/bids/{uuid4()}"),
        party.caller.post("/api/v1/bids", {}),
        party.caller.post("/api/v1/bids", b"{", content_type="application/json"),
        party.caller.post("/api/v1/bids", b"{}", content_type="text/plain"),
        party.caller.delete("/api/v1/bids"),
        party.caller.get("/api/v1/bids", Accept="text/csv"),
        Client().get("/api/v1/bids"),
    ]
    page = Client().get("/docs/problems/").content.decode()

    for answer in problems:
        assert answer.status_code >= 400
        address, _, code = answer.json()["type"].partition("#")
        assert Client().get(address, follow=True).status_code == 200
        assert f'id="{code}"' in page, code


def test_the_page_of_problems_lists_what_the_api_itself_refuses() -> None:
    codes = re.findall(r"^\| `([a-z0-9-]+)` \|", refusals_page(), re.MULTILINE)

    assert set(codes) >= {"not-found", "body-invalid", "method-not-allowed", "not-acceptable"}
    assert set(codes) >= {"unsupported-media-type", "parameter-unknown", "position-unreadable"}
