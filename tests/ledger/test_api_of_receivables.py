"""What is owed over HTTP: read by who pays, settled and given up by the platform's finance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger.domain.ids import TenantId
from ledger.domain.parties import PLATFORM_ID
from ledger.eventstore.postgres import PostgresStore
from ledger.models import MemberRow, TenantRow, TokenRow
from tests.access.conftest import Caller, admit
from tests.ledger import invoiced
from tests.ledger import ledgerbook as book
from tests.ledger.ledgerbook import hours, usd

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.ledger.money_site")]
NUMBER = "INV-2026-0001"
PLACE = f"invoices/{NUMBER}"


def platform_person(name: str, role: Any) -> Caller:
    caller = admit(name, role)
    own = {"tenant_id": PLATFORM_ID}
    TenantRow.objects.filter(pk=caller.tenant_id).update(is_platform=True)
    MemberRow.objects.filter(user_id=caller.user_id).update(is_platform=True, **own)
    TokenRow.objects.filter(pk=caller.token_id).update(**own)
    return replace(caller, tenant_id=PLATFORM_ID)


@pytest.fixture
def joan(db: None) -> Caller:
    return platform_person("joan", "finance")


@pytest.fixture
def payer(db: None) -> Caller:
    return admit("ada-labs", "finance")


@pytest.fixture(autouse=True)
def books(payer: Caller) -> PostgresStore:
    """Issue an invoice of 1.73 to another organisation."""
    store, tenant_id = PostgresStore(), TenantId(payer.tenant_id)
    book.open_everybody(store)
    book.open_funds(store, kind="chargeback", overdraft_nanos=10**12, tenant=tenant_id)
    invoiced.details(store, tenant_id, name="Ada", country="FR")
    book.hold(store, usd(30))
    book.capture(store, hours(0), 3_600_000)
    invoiced.soft_close(store)
    invoiced.issue(store)
    return store


def owed(caller: Caller, query: str = "") -> list[Any]:
    answer = caller.get(f"/api/v1/receivables{query}")
    assert answer.status_code == 200, answer.content
    found: list[Any] = answer.json()["data"]
    return found


def done(caller: Caller, path: str, status: int, **body: Any) -> Any:
    answer = caller.post(f"/api/v1/{path}", body or None)
    assert answer.status_code == status, answer.content
    invoiced.follow(PostgresStore())
    return answer.json()


def test_who_pays_sees_what_is_owed_and_strangers_do_not(payer: Caller, joan: Caller) -> None:
    [row] = owed(payer)

    assert (row["number"], row["state"], row["left"]) == (NUMBER, "open", "1.73")
    assert row["write_off"] is None and row["blocks_new_bids"] is False
    assert owed(joan) == [row] and owed(payer, "?state=overdue") == []
    assert owed(admit("somebody", "finance")) == []


def test_a_transfer_is_entered_in_parts_by_the_platform_alone(payer: Caller, joan: Caller) -> None:
    refused = done(payer, f"{PLACE}/payments", 403, reference="TX 1")
    assert refused["code"] == "invoices-by-platform-only"
    done(joan, f"{PLACE}/payments", 201, reference="TX 1", amount="1.00")
    assert done(joan, f"{PLACE}/payments", 409, reference="TX 2", amount="1.00")["code"] == (
        "pays-too-much"
    )
    done(joan, f"{PLACE}/payments", 201, reference="TX 2")

    [row] = owed(payer, "?state=paid")
    assert (row["paid"], row["left"], row["paid_by"]) == ("1.73", "0.00", "TX 2")
    assert done(joan, f"{PLACE}/payments", 409, reference="TX 3")["code"] == "nothing-owed"


def test_a_write_off_needs_somebody_else(payer: Caller, joan: Caller) -> None:
    oscar = platform_person("oscar", "operator")
    done(joan, f"{PLACE}/write-off", 201, reason="insolvent")
    assert owed(payer)[0]["write_off"]["amount"] == "1.73"
    assert done(joan, f"{PLACE}/write-off/approve", 403)["code"] == "second-person-needed"
    done(oscar, f"{PLACE}/write-off/decline", 200)
    assert done(oscar, f"{PLACE}/write-off/approve", 404)["code"] == "write-off-unknown"
    done(joan, f"{PLACE}/write-off", 201, reason="insolvent after all")
    done(oscar, f"{PLACE}/write-off/approve", 200)

    assert owed(payer)[0]["state"] == "written-off"


def test_an_invoice_that_is_not_there_is_unknown(joan: Caller) -> None:
    assert done(joan, "invoices/INV-1/payments", 404, reference="x")["code"] == "invoice-unknown"
