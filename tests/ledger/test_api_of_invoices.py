"""Invoices over HTTP: who may issue and credit, what is answered, and whose they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from ledger import invoicing
from ledger.domain.ids import TenantId
from ledger.domain.parties import PLATFORM_ID
from ledger.eventstore.postgres import PostgresStore
from ledger.models import MemberRow, TenantRow, TokenRow
from tests.access.conftest import Caller, admit
from tests.ledger import invoiced
from tests.ledger import ledgerbook as book
from tests.ledger.ledgerbook import hours, usd

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.ledger.money_site")]


@pytest.fixture
def platform(db: None) -> Caller:
    caller = admit("platform", "finance")
    own = {"tenant_id": PLATFORM_ID}
    TenantRow.objects.filter(pk=caller.tenant_id).update(is_platform=True, **own)
    MemberRow.objects.filter(tenant_id=caller.tenant_id).update(is_platform=True, **own)
    TokenRow.objects.filter(pk=caller.token_id).update(**own)
    return replace(caller, tenant_id=PLATFORM_ID)


def colleague_of(caller: Caller) -> Caller:
    """Return another person of the platform's."""
    other = admit("somebody-else", "operator")
    own = {"tenant_id": caller.tenant_id}
    MemberRow.objects.filter(user_id=other.user_id).update(is_platform=True, **own)
    TokenRow.objects.filter(pk=other.token_id).update(**own)
    return replace(other, tenant_id=caller.tenant_id)


@pytest.fixture
def payer(db: None) -> Caller:
    return admit("ada-labs", "finance")


@pytest.fixture
def books(payer: Caller) -> PostgresStore:
    """Return a month that is soft-closed, in which a cost centre of the payer used an hour."""
    store = PostgresStore()
    book.open_everybody(store)
    book.open_funds(
        store, kind="chargeback", overdraft_nanos=None, tenant=TenantId(payer.tenant_id)
    )
    book.hold(store, usd(30))
    book.capture(store, hours(0), 3_600_000)
    invoiced.soft_close(store)
    return store


def asked(caller: Caller, path: str, status: int = 200) -> Any:
    answer = caller.get(f"/api/v1/{path}")
    assert answer.status_code == status, answer.content
    return answer.json()


def done(caller: Caller, path: str, status: int = 200, **body: Any) -> Any:
    answer = caller.post(f"/api/v1/{path}", body or None)
    assert answer.status_code == status, answer.content
    invoiced.follow(PostgresStore())
    return answer.json()


def test_a_month_is_invoiced_and_the_payer_reads_it(
    platform: Caller, payer: Caller, books: PostgresStore
) -> None:
    said = done(platform, "invoices", 201, period="2026-01")

    assert len(said["issued"]) == 1 and said["refused"] == [] and said["left"] == 0
    [listed] = asked(payer, "invoices?period=2026-01")["data"]
    assert (listed["number"], listed["total"], listed["exact"]) == (
        "INT-2026-0001", "1.73", "1.730000001",
    )  # fmt: skip
    shown = asked(payer, "invoices/INT-2026-0001")
    assert [(each["sku"], each["amount"], each["quantity"]) for each in shown["lines"]] == [
        ("H100-80G", "1.73", "1.000")
    ]
    assert asked(platform, "invoices?kind=internal")["data"] == [listed]
    assert asked(platform, "invoices?kind=receipt")["data"] == []


def test_an_invoice_of_one_account_is_asked_for_once(
    platform: Caller, books: PostgresStore
) -> None:
    only = {"period": "2026-01", "account_id": str(book.FUNDS)}
    done(platform, "invoices", 201, **only)

    problem = done(platform, "invoices", 409, **only)
    assert problem["code"] == "invoice-issued-before"
    assert problem["details"]["number"] == "INT-2026-0001"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"period": "2026-02"}, 409, "month-open-still"),
        ({"period": "2026-13"}, 422, "period-unreadable"),
        (
            {"period": "2026-01", "account_id": "00000000-0000-4000-8000-000000000001"},
            404,
            "account-unknown",
        ),
    ],
)
def test_what_cannot_be_invoiced_is_refused(
    platform: Caller, books: PostgresStore, body: dict[str, str], status: int, code: str
) -> None:
    book.hold(books, usd(30), hold_id=book.hold_named("later"))
    book.capture(
        books, hours(30 * 24), 3_600_000, hold_id=book.hold_named("later"),
        lease_id=book.lease_named("later"),
    )  # fmt: skip
    invoiced.follow(books)

    assert done(platform, "invoices", status, **body)["code"] == code


def test_the_file_is_the_same_before_and_after_it_was_put_away(
    platform: Caller, payer: Caller, books: PostgresStore
) -> None:
    done(platform, "invoices", 201, period="2026-01")
    first = payer.get("/api/v1/invoices/INT-2026-0001/pdf")
    assert invoicing.archive_documents(books, now=invoiced.LATER) == 1
    invoiced.follow(books)

    second = payer.get("/api/v1/invoices/INT-2026-0001/pdf")

    assert first["Content-Type"] == "application/pdf" and first.content.startswith(b"%PDF-")
    assert first.content == second.content
    assert asked(payer, "invoices/INT-2026-0001")["sha256"]
    assert invoicing.archive_documents(books, now=invoiced.LATER) == 0
    assert invoicing.documents_that_differ() == []


def test_a_credit_note_takes_two_people(
    platform: Caller, payer: Caller, books: PostgresStore
) -> None:
    done(platform, "invoices", 201, period="2026-01")
    path = "invoices/INT-2026-0001/credit-notes"
    lines = [{"line_id": "001", "amount": "0.73"}]
    said = done(platform, path, 201, reason="a fault of ours", lines=lines)
    note = f"credit-notes/{said['credit_id']}"
    assert asked(payer, "credit-notes")["data"] == []
    assert asked(payer, note, 404)["code"] == "credit-note-unknown"
    assert asked(platform, note)["state"] == "asked"

    assert done(platform, f"{note}/approve", 403)["code"] == "second-person-needed"
    done(colleague_of(platform), f"{note}/approve")

    shown = asked(payer, note)
    assert (shown["number"], shown["state"], shown["total"]) == ("CN-2026-0001", "issued", "0.73")
    assert asked(payer, "invoices/INT-2026-0001")["credited"] == "0.73"
    assert payer.get(f"/api/v1/{note}/pdf").content.startswith(b"%PDF-")
    more = [{"line_id": "001", "amount": "1.01"}]
    assert done(platform, path, 409, reason="x", lines=more)["code"] == "credit-exceeds-line"
    assert done(platform, f"{note}/decline", 404)["code"] == "credit-note-unknown"


def test_nobody_else_issues_or_credits(
    payer: Caller, platform: Caller, books: PostgresStore
) -> None:
    done(platform, "invoices", 201, period="2026-01")

    assert done(payer, "invoices", 403, period="2026-01")["code"] == "invoices-by-platform-only"
    credit = done(payer, "invoices/INT-2026-0001/credit-notes", 403, reason="mine")
    assert credit["code"] == "invoices-by-platform-only"
    stranger = admit("eve-works", "finance")
    assert asked(stranger, "invoices")["data"] == []
    assert asked(stranger, "invoices/INT-2026-0001", 404)["code"] == "invoice-unknown"
    assert asked(stranger, "invoices/INT-2026-0001/pdf", 404)["code"] == "invoice-unknown"


def test_a_party_says_how_it_is_named(
    payer: Caller, platform: Caller, books: PostgresStore
) -> None:
    said = {
        "name": "Ada Labs S.A.", "address": ["1 rue Lovelace", "75001 Paris"], "country": "FR",
        "vat_id": "FR 123 456 789 01", "email": "invoices@ada.example", "scheme": "eu-vat",
    }  # fmt: skip
    answer = payer.ask("PUT", "/api/v1/billing-details", said)
    assert answer.status_code == 200, answer.content
    invoiced.follow(books)

    [row] = asked(payer, "billing-details")["data"]
    assert row["details"]["vat_id"] == "FR12345678901"
    assert row["scheme"] == "none", "taxes are those of who issues"
    done(platform, "invoices", 201, period="2026-01")
    assert asked(payer, "invoices/INV-2026-0001")["payer"]["name"] == "Ada Labs S.A."


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("name", " ", None),
        ("country", "F1", "country-unreadable"),
        ("vat_id", "nonsense!", "vat-id-unreadable"),
        ("email", "nobody", "email-unreadable"),
        ("address", ["x"] * 7, "address-too-long"),
        ("subscriber_id", "00000000-0000-4000-8000-000000000001", "subscriber-unknown"),
    ],
)
def test_details_that_cannot_be_printed_are_refused(
    payer: Caller, field: str, value: Any, code: str | None
) -> None:
    answer = payer.ask("PUT", "/api/v1/billing-details", {"name": "Ada", field: value})

    assert answer.status_code in (400, 404, 422), answer.content
    assert code is None or answer.json()["code"] == code


def test_who_is_not_signed_in_reads_nothing(db: None) -> None:
    assert Client().get("/api/v1/invoices").status_code == 401
