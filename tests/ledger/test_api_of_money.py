"""Money over HTTP, on the PostgreSQL store and real rows."""

from __future__ import annotations

import csv
import hashlib
import io
from typing import Any
from uuid import UUID, uuid5

import pytest

from ledger.domain.account_ids import funds_account
from ledger.domain.ids import AccountId, SubscriberId, TenantId
from ledger.eventstore.postgres import PostgresStore
from ledger.models import MemberRow, SubscriberRow, TenantRow
from tests.access.conftest import Caller, admit
from tests.conftest import NOON
from tests.ledger import busy_month
from tests.ledger import ledgerbook as book
from tests.ledger.ledgerbook import hours, usd

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.ledger.money_site")]

MILLIS = 3_600_000
PRICE = book.PRICE.charge(MILLIS).nanos


@pytest.fixture
def finance(db: None) -> Caller:
    return admit("ada-labs", "finance")


@pytest.fixture
def stranger(db: None) -> Caller:
    return admit("eve-works", "finance", "operator")


@pytest.fixture
def platform(db: None) -> Caller:
    caller = admit("the-platform", "finance")
    TenantRow.objects.filter(pk=caller.tenant_id).update(is_platform=True)
    MemberRow.objects.filter(tenant_id=caller.tenant_id).update(is_platform=True)
    return caller


@pytest.fixture
def wallet(finance: Caller) -> AccountId:
    """A prepaid account with two top-ups, three charged hours, and a hold."""
    store = PostgresStore()
    unit = SubscriberId(book.UNIT)
    account = book.open_funds(store, unit=unit, tenant=TenantId(finance.tenant_id))
    book.fund(store, usd(60), account=account, entry="1")
    book.fund(store, usd(40), account=account, entry="2")
    book.hold(store, usd(30), account=account)
    for hour in range(3):
        book.capture(store, hours(hour), MILLIS, account=account)
    busy_month.follow(store)
    return account


def asked(caller: Caller, path: str, status: int = 200) -> Any:
    answer = caller.get(f"/api/v1/{path}")
    assert answer.status_code == status, answer.content
    return answer.json()


def amount(nanos: int) -> str:
    text = f"{nanos / 10**9:.9f}".rstrip("0")
    return text if len(text.partition(".")[2]) >= 2 else f"{nanos / 10**9:.2f}"


def test_an_account_shows_total_held_and_available(finance: Caller, wallet: AccountId) -> None:
    said = asked(finance, f"accounts/{wallet}")

    assert said["total"] == amount(usd(100).nanos - 3 * PRICE)
    assert said["held"] == amount(usd(30).nanos - 3 * PRICE)
    assert said["available"] == "70.00"
    assert said["overdraft"] == "0.00"
    assert [each["account_id"] for each in asked(finance, "accounts")["data"]] == [str(wallet)]
    holds = asked(finance, f"accounts/{wallet}/holds")["data"]
    assert [(hold["amount"], hold["state"]) for hold in holds] == [("30.00", "placed")]


def test_a_statement_adds_up_over_its_pages(finance: Caller, wallet: AccountId) -> None:
    path = f"accounts/{wallet}/statement?period=2026-01&limit=2"
    pages = [asked(finance, path)]
    while pages[-1]["next"]:
        pages.append(asked(finance, f"{path}&cursor={pages[-1]['next']}"))

    lines = [line for page in pages for line in page["data"]]
    assert len(pages) == 3
    assert [line["kind"] for line in lines] == ["usage", "usage", "usage", "funds", "funds"]
    assert [line["balance"] for line in lines[-2:]] == ["100.00", "60.00"]
    assert lines[0]["balance"] == pages[0]["closing"]
    assert pages[0]["opening"] == "0.00"
    assert pages[0]["totals"] == {"funds": "100.00", "usage": amount(-3 * PRICE)}


def test_the_next_months_statement_opens_where_this_one_closed(
    finance: Caller, wallet: AccountId
) -> None:
    january = asked(finance, f"accounts/{wallet}/statement?period=2026-01")
    february = asked(finance, f"accounts/{wallet}/statement?period=2026-02")

    assert february["opening"] == january["closing"] == february["closing"]
    assert february["data"] == []


def test_spend_debts_and_trial_balance(finance: Caller, wallet: AccountId) -> None:
    spend = asked(finance, "spend?period=2026-01")["data"]
    debts = asked(finance, "debts?period=2026-01")["data"]
    balance = asked(finance, "trial-balance")

    assert [(row["cost_centre"], row["charged"], row["leases"]) for row in spend] == [
        ("CC-1001", amount(3 * PRICE), 1)
    ]
    assert {row["creditor_id"] for row in debts} == {str(book.OWNER), None}
    assert balance["others"] == {"USD": "-" + balance["data"][0]["total"]}


@pytest.mark.parametrize("name", ["focus", "beancount", "gl"])
def test_an_export_is_what_its_manifest_says(finance: Caller, wallet: AccountId, name: str) -> None:
    query = f"period=2026-01&format={name}"
    said = asked(finance, f"exports/manifest?{query}")

    answer = finance.get(f"/api/v1/exports?{query}&position={said['position']}")

    data = b"".join(answer.streaming_content)
    assert answer.status_code == 200
    assert hashlib.sha256(data).hexdigest() == said["sha256"]
    assert f"at-{said['position']}" in answer["Content-Disposition"]
    assert said["rows"] >= 3
    if name == "focus":
        rows = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
        assert len(rows) == said["rows"] == 5
        assert said["sums"] == {"USD": amount(3 * PRICE)}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("exports?format=focus", "period-unreadable"),
        ("exports?format=focus&period=2026-13", "period-unreadable"),
        ("exports?format=xls&period=2026-01", "export-format-unknown"),
        ("exports?period=2026-01", "export-format-unknown"),
        ("exports?format=gl&period=2026-01&position=99999999", "position-ahead"),
        ("exports?format=gl&period=2026-01&position=-1", "position-ahead"),
        ("spend", "period-unreadable"),
        ("debts?period=january", "period-unreadable"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    finance: Caller, wallet: AccountId, path: str, code: str
) -> None:
    assert asked(finance, path, 422)["code"] == code


@pytest.mark.parametrize("path", ["", "/statement?period=2026-01", "/holds"])
def test_nobody_sees_anothers_account(stranger: Caller, wallet: AccountId, path: str) -> None:
    assert asked(stranger, f"accounts/{wallet}{path}", 404)["code"] == "account-unknown"
    assert asked(stranger, "accounts")["data"] == []
    assert asked(stranger, "debts?period=2026-01")["data"] == []
    assert asked(stranger, "trial-balance")["data"] == []
    answer = stranger.get("/api/v1/exports?period=2026-01&format=focus")
    assert b"".join(answer.streaming_content).count(b"\n") == 1


def test_a_consumer_does_not_see_money(wallet: AccountId) -> None:
    consumer = admit("bob-works", "consumer")

    assert asked(consumer, "accounts", 403)["code"] == "role-missing"


def add(caller: Caller, account: UUID, **body: str) -> Any:
    terms = {"amount": "5.00", "currency": "USD", "reference": "wire 9", **body}
    return caller.post(
        f"/api/v1/accounts/{account}/funds", terms, Idempotency_Key="a-key-of-some-length"
    )


def test_funds_are_added_once_for_a_key(platform: Caller, wallet: AccountId) -> None:
    """akash console#3449: a retried top-up made a second payment."""
    first, again = add(platform, wallet), add(platform, wallet)
    other = add(platform, wallet, amount="6.00")

    assert first.status_code == again.status_code == 201
    assert first.json() == again.json()
    assert other.json()["code"] == "key-used-for-another"
    assert book.account(PostgresStore(), wallet).available == usd(75)


@pytest.mark.parametrize("key", [None, "another-key-of-some-length"])
@pytest.mark.parametrize(
    ("reference", "amount"),
    [
        ("wire 9", "5.00"),
        ("wire 9", "6.00"),
        ("  Wire   9 ", "5.00"),
        ("\uff37ire\u00a09", "5.00"),
    ],
)
def test_a_payment_is_credited_once_for_its_reference(
    platform: Caller, wallet: AccountId, key: str | None, reference: str, amount: str
) -> None:
    first = add(platform, wallet).json()
    terms = {"amount": amount, "currency": "USD", "reference": reference}
    headers = {} if key is None else {"Idempotency_Key": key}

    again = platform.post(f"/api/v1/accounts/{wallet}/funds", terms, **headers)

    assert again.status_code == 409
    told = again.json()
    assert (told["code"], told["details"]["entry_id"]) == ("payment-recorded", first["entry_id"])
    assert book.account(PostgresStore(), wallet).available == usd(75)


def test_another_reference_is_another_payment(platform: Caller, wallet: AccountId) -> None:
    add(platform, wallet)
    terms = {"amount": "5.00", "currency": "USD", "reference": "wire 10"}
    assert platform.post(f"/api/v1/accounts/{wallet}/funds", terms).status_code == 201
    assert book.account(PostgresStore(), wallet).available == usd(80)


def test_a_payment_that_was_credited_before_payments_named_their_entries_is_known(
    platform: Caller, wallet: AccountId
) -> None:
    book.fund(PostgresStore(), usd(5), account=wallet, entry="by request", reference="wire 9")
    told = add(platform, wallet).json()
    assert told["code"] == "payment-recorded"
    assert told["details"]["entry_id"] == str(uuid5(wallet, "by request"))


def test_nobody_gives_themselves_money(
    finance: Caller, stranger: Caller, wallet: AccountId
) -> None:
    assert add(finance, wallet).json()["code"] == "funds-by-platform-only"
    assert add(stranger, wallet).json()["code"] == "funds-by-platform-only"
    assert book.account(PostgresStore(), wallet).available == usd(70)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"amount": "0"}, 422),
        ({"amount": "NaN"}, 422),
        ({"amount": "-1"}, 422),
        ({"amount": "1.0000000001"}, 422),
        ({"amount": "9000000000.1"}, 422),
        ({"currency": "EUR"}, 422),
        ({"reference": ""}, 422),
        ({"reference": "\u00a0"}, 422),
        ({"gift": "yes"}, 422),
    ],
)
def test_funds_that_make_no_sense_are_refused(
    platform: Caller, wallet: AccountId, body: dict[str, str], status: int
) -> None:
    head = PostgresStore().head()

    assert add(platform, wallet, **body).status_code == status
    assert PostgresStore().head() == head


def test_funds_for_an_unknown_account_are_refused(platform: Caller, wallet: AccountId) -> None:
    unknown = funds_account(book.UNIT, "EUR")

    assert add(platform, unknown).status_code == 404


def open_account(caller: Caller, owner: Caller, unit: UUID, **body: Any) -> Any:
    terms = {
        "tenant_id": str(owner.tenant_id),
        "subscriber_id": str(unit),
        "kind": "prepaid",
        "title": "Render",
        "currency": "USD",
        "overdraft": "0",
        **body,
    }
    return caller.post("/api/v1/accounts", terms)


@pytest.fixture
def unit(finance: Caller) -> UUID:
    row = SubscriberRow.objects.create(
        subscriber_id=book.UNIT,
        tenant_id=finance.tenant_id,
        title="Render",
        cost_centre="CC-1",
        registered_at=NOON,
    )
    return UUID(str(row.pk))


def test_the_platform_opens_a_units_account(platform: Caller, finance: Caller, unit: UUID) -> None:
    opened = open_account(platform, finance, unit)
    busy_month.follow(PostgresStore())

    assert opened.status_code == 201
    assert asked(finance, f"accounts/{opened.json()['account_id']}")["kind"] == "prepaid"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"overdraft": None}, "prepaid-unlimited"),
        ({"subscriber_id": str(book.LEASE)}, "subscriber-unknown"),
        ({"currency": "usd"}, "currency-unknown"),
        ({"kind": "cash"}, "body-invalid"),
        ({"overdraft": 5}, "body-invalid"),
    ],
)
def test_an_account_that_makes_no_sense_is_refused(
    platform: Caller, finance: Caller, unit: UUID, body: dict[str, Any], code: str
) -> None:
    assert open_account(platform, finance, unit, **body).json()["code"] == code
    assert open_account(finance, finance, unit).json()["code"] == "funds-by-platform-only"
