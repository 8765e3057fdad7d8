"""Closing months over HTTP: who may, what is refused, and what stays for whoever only reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger import closing
from ledger.domain.closing import Check
from ledger.eventstore.postgres import PostgresStore
from ledger.models import MemberRow, TenantRow, TokenRow
from tests.access.conftest import Caller, admit
from tests.ledger import busy_month
from tests.ledger import ledgerbook as book
from tests.ledger.ledgerbook import hours, usd

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.ledger.money_site")]
MONTH = "periods/2026-01"


@pytest.fixture(autouse=True)
def no_other_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the books alone: what other apps look at is theirs to test."""
    monkeypatch.setattr(closing, "_installed", ())


@pytest.fixture
def platform(db: None) -> Caller:
    caller = admit("the-platform", "finance")
    TenantRow.objects.filter(pk=caller.tenant_id).update(is_platform=True)
    MemberRow.objects.filter(tenant_id=caller.tenant_id).update(is_platform=True)
    return caller


@pytest.fixture
def books(db: None) -> PostgresStore:
    store = PostgresStore()
    book.open_everybody(store)
    book.open_funds(store)
    book.fund(store, usd(100))
    book.hold(store, usd(30))
    book.capture(store, hours(0), 3_600_000)
    busy_month.follow(store)
    return store


def colleague_of(caller: Caller) -> Caller:
    """Return another person of the same organisation."""
    other = admit("somebody-else", "operator")
    of = {"tenant_id": caller.tenant_id}
    MemberRow.objects.filter(user_id=other.user_id).update(is_platform=True, **of)
    TokenRow.objects.filter(pk=other.token_id).update(**of)
    return replace(other, tenant_id=caller.tenant_id)


def asked(caller: Caller, path: str) -> Any:
    answer = caller.get(f"/api/v1/{path}")
    assert answer.status_code == 200, answer.content
    return answer.json()


def done(caller: Caller, step: str, status: int = 200, **body: str) -> Any:
    answer = caller.post(f"/api/v1/{MONTH}/{step}", body or None)
    assert answer.status_code == status, answer.content
    busy_month.follow(PostgresStore())
    return answer.json()


def test_a_month_is_closed_and_everybody_sees_it(platform: Caller, books: PostgresStore) -> None:
    shown = asked(platform, MONTH)
    assert shown["state"] == "open"
    assert [(each["name"], each["passed"]) for each in shown["checks"]] == [("trial-balance", True)]

    done(platform, "soft-close")
    done(platform, "close")

    shown = asked(platform, MONTH)
    assert shown["state"] == "closed" and shown["closed_at"] and shown["checks"] == []
    reader = admit("ada-labs", "finance")
    listed = asked(reader, "periods")["data"]
    assert listed[-1]["period"] == "2026-01" and listed[-1]["state"] == "closed"
    assert listed[0]["state"] == "open"


def test_what_is_left_to_do_is_named(platform: Caller, books: PostgresStore) -> None:
    left = Check(name="use-rated", title="Use and gaps", passed=False, words="2 leases wait")
    closing.install([lambda period, now: left])
    done(platform, "soft-close")

    problem = done(platform, "close", 409)

    assert problem["code"] == "period-not-ready"
    assert problem["details"]["checks"] == ["Use and gaps: 2 leases wait"]
    assert asked(platform, MONTH)["state"] == "soft-closed"


def test_it_takes_two_people_to_open_a_month_again(platform: Caller, books: PostgresStore) -> None:
    done(platform, "soft-close")
    done(platform, "close")

    done(platform, "reopening", reason="the rate of one lease was wrong")
    assert asked(platform, MONTH)["reopening"]["reason"] == "the rate of one lease was wrong"
    assert done(platform, "reopening/approve", 403)["code"] == "second-person-needed"
    done(colleague_of(platform), "reopening/approve")

    shown = asked(platform, MONTH)
    assert shown["state"] == "open" and shown["reopening"] is None and shown["exports"] == []


def test_nobody_else_closes_months(books: PostgresStore) -> None:
    caller = admit("eve-works", "finance", "operator")

    for step in ("soft-close", "close", "reopening/approve", "reopening/decline"):
        assert done(caller, step, 403)["code"] == "periods-by-platform-only"
    assert done(caller, "reopening", 403, reason="x")["code"] == "periods-by-platform-only"
    shown = asked(caller, MONTH)
    assert (shown["state"], shown["checks"], shown["exports"]) == ("open", [], [])


@pytest.mark.parametrize("month", ["2026-13", "1999-01", "january", "2026-1"])
def test_a_month_that_is_none_is_refused(platform: Caller, month: str) -> None:
    answer = platform.post(f"/api/v1/periods/{month}/soft-close", None)

    assert (answer.status_code, answer.json()["code"]) == (422, "period-unreadable")


def test_the_present_month_is_not_closed(platform: Caller) -> None:
    answer = platform.post("/api/v1/periods/2199-12/soft-close", None)

    assert (answer.status_code, answer.json()["code"]) == (409, "period-not-over")
