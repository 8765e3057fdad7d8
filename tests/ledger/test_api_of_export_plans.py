"""Plans of exports over HTTP: the platform's finance people make and end them."""

from __future__ import annotations

import pytest

from ledger.eventstore.postgres import PostgresStore
from ledger.models import MemberRow, TenantRow
from tests.access.conftest import Caller, admit
from tests.ledger import busy_month

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.ledger.money_site")]
WANTED = {"every": "day", "formats": ["focus", "gl"], "folder": "lake"}


@pytest.fixture
def platform(db: None) -> Caller:
    caller = admit("the-platform", "finance")
    TenantRow.objects.filter(pk=caller.tenant_id).update(is_platform=True)
    MemberRow.objects.filter(tenant_id=caller.tenant_id).update(is_platform=True)
    return caller


def test_a_plan_is_made_listed_and_ended(platform: Caller) -> None:
    made = platform.post("/api/v1/exports/plans", WANTED)
    busy_month.follow(PostgresStore())

    assert made.status_code == 201, made.content
    [plan] = platform.get("/api/v1/exports/plans").json()["data"]
    assert plan["plan_id"] == made.json()["plan_id"]
    assert {name: plan[name] for name in WANTED} == WANTED
    assert (plan["due"], plan["brought_at"], plan["failed_at"]) == ("", None, None)

    ended = platform.delete(f"/api/v1/exports/plans/{plan['plan_id']}")
    busy_month.follow(PostgresStore())

    assert ended.status_code == 200, ended.content
    assert platform.get("/api/v1/exports/plans").json()["data"] == []


def test_others_neither_see_nor_make_nor_end_one(platform: Caller) -> None:
    made = platform.post("/api/v1/exports/plans", WANTED).json()
    busy_month.follow(PostgresStore())
    other = admit("ada-labs", "finance")

    assert other.get("/api/v1/exports/plans").json()["data"] == []
    assert other.post("/api/v1/exports/plans", WANTED).status_code == 403
    assert other.delete(f"/api/v1/exports/plans/{made['plan_id']}").status_code == 403


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"formats": ["no-such-form"]}, "export-format-unknown"),
        ({"folder": "../up"}, "folder-unreadable"),
        ({"formats": []}, "body-invalid"),
        ({"every": "hour"}, "body-invalid"),
    ],
)
def test_a_plan_that_is_wrong_is_refused(
    platform: Caller, wrong: dict[str, object], code: str
) -> None:
    answer = platform.post("/api/v1/exports/plans", WANTED | wrong)

    assert answer.status_code in (400, 404, 422)
    assert answer.json()["code"] == code
    assert platform.get("/api/v1/exports/plans").json()["data"] == []
