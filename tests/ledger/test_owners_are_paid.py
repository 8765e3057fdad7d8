"""Owners are paid, over HTTP: from what was earned to the bank's word, with all rows beside."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest

from ledger import commands, paying
from ledger.access import Actor
from ledger.domain.account_ids import earnings_account
from ledger.domain.bank_files import Debtor
from ledger.domain.ids import TenantId
from ledger.domain.periods import Period
from ledger.domain.reconciling import unexplained, with_the_rest
from ledger.domain.settling import PayoutTerms
from ledger.eventstore.postgres import PostgresStore
from ledger.models import (
    AccountRow,
    BankDetailsValue,
    EarningRow,
    MemberRow,
    PayeeRow,
    PayoutRow,
    TenantRow,
    TokenRow,
)
from ledger.projections.money import MONEY
from ledger.queries import disagreements
from ledger.queries import payouts as queries
from ledger.queries.payouts_add_up import (
    files_and_bank,
    payouts_and_files,
    payouts_that_differ,
)
from ledger.rebuilding import fingerprint, rebuild
from tests.access.conftest import Caller, admit
from tests.conftest import NOON, SOMEBODY
from tests.ledger import busy_month, pain001
from tests.ledger import ledgerbook as book
from tests.ledger.camt054_files import entry, notice
from tests.ledger.ledgerbook import hours, usd

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.ledger.money_site")]
IBAN = "DE89370400440532013000"
TERMS = PayoutTerms(details_wait_seconds=0, alone_nanos_max=usd(1_000).nanos)


@pytest.fixture(autouse=True)
def platform_pays() -> Iterator[None]:
    kept = paying.terms(), paying.debtor()
    paying.install(TERMS, Debtor(name="Offpeak", iban=IBAN))
    yield
    paying.install(*kept)


@pytest.fixture
def owner(db: None) -> Caller:
    return admit("the-owner", "owner")


@pytest.fixture
def joan(db: None) -> Caller:
    caller = admit("the-platform", "finance")
    TenantRow.objects.filter(pk=caller.tenant_id).update(is_platform=True)
    MemberRow.objects.filter(tenant_id=caller.tenant_id).update(is_platform=True)
    return caller


@pytest.fixture
def oscar(joan: Caller) -> Caller:
    other = admit("somebody-else", "operator")
    of = {"tenant_id": joan.tenant_id}
    MemberRow.objects.filter(user_id=other.user_id).update(is_platform=True, **of)
    TokenRow.objects.filter(pk=other.token_id).update(**of)
    return replace(other, tenant_id=joan.tenant_id)


@pytest.fixture
def store(owner: Caller) -> PostgresStore:
    """Return books in which the owner earned for three hours and compensated once."""
    store = PostgresStore()
    tenant = TenantId(owner.tenant_id)
    book.open_everybody(store)
    commands.open_tenant_accounts(
        store,
        tenant_id=tenant,
        title="Lab",
        currency="USD",
        is_platform=False,
        by=SOMEBODY,
        now=NOON,
    )
    book.open_funds(store)
    book.fund(store, usd(1_000))
    book.hold(store, usd(500))
    for hour in range(3):
        book.capture(
            store,
            hours(hour),
            10 * 3_600_000,
            owners=((tenant, 7 * 3_600_000), (book.OTHER_OWNER, 3 * 3_600_000)),
        )
    commands.pay_compensation(
        store,
        account_id=book.FUNDS,
        lease_id=book.LEASE,
        owner_id=tenant,
        money=usd(1),
        by=SOMEBODY,
        now=NOON,
    )
    busy_month.follow(store)
    return store


def account_of(owner: Caller) -> str:
    return str(earnings_account(TenantId(owner.tenant_id), "USD"))


def asked(caller: Caller, path: str, status: int = 200) -> Any:
    answer = caller.get(f"/api/v1/{path}")
    assert answer.status_code == status, answer.content
    return answer.json()


def done(caller: Caller, path: str, body: Any = None, status: int = 200) -> Any:
    answer = caller.post(f"/api/v1/{path}", body)
    assert answer.status_code == status, answer.content
    busy_month.follow(PostgresStore())
    return answer.json()


def refused(caller: Caller, path: str, body: Any = None, *, code: str) -> None:
    answer = caller.post(f"/api/v1/{path}", body)
    assert answer.json()["code"] == code, answer.content


def with_details(owner: Caller) -> None:
    path = f"payees/{account_of(owner)}/bank-details"
    proposed = done(owner, path, {"name": "Lab", "iban": IBAN}, 201)["details_id"]
    done(owner, f"{path}/{proposed}/confirm")


def sent(owner: Caller, joan: Caller, oscar: Caller) -> tuple[str, str]:
    """Return a payout that is in a bank file, and the file."""
    with_details(owner)
    payout = done(joan, f"payees/{account_of(owner)}/settle", status=201)["payout_id"]
    done(oscar, f"payouts/{payout}/approve")
    written = done(joan, "bank-files", {"format": "pain.001", "currency": "USD"}, 201)
    return payout, written["file_id"]


def adds_up(store: PostgresStore) -> None:
    """Say that the rows of payees are those of the journal, and equal to their rebuild."""
    assert disagreements() == [] and payouts_that_differ() == []
    for payee in PayeeRow.objects.all():
        account = AccountRow.objects.get(pk=payee.account_id)
        assert payee.earned_nanos - payee.paid_nanos == account.total_nanos
    for payout in PayoutRow.objects.all():
        lines = sum(each.nanos for each in queries.statement_lines(payout))
        assert payout.opening_nanos + lines - payout.nanos == payout.closing_nanos
    before = fingerprint(MONEY.tables)
    rebuild(store, MONEY)
    assert fingerprint(MONEY.tables) == before


def test_an_owner_is_paid_from_hour_to_bank(
    owner: Caller, joan: Caller, oscar: Caller, store: PostgresStore
) -> None:
    payout, file_id = sent(owner, joan, oscar)
    loaded = done(joan, f"bank-files/{file_id}/content")
    data = loaded["content"].encode()
    assert sha256(data).hexdigest() == loaded["sha256"]
    root = pain001.read(data)
    assert pain001.texts(root, "IBAN") == [IBAN, IBAN]
    assert done(joan, f"bank-files/{file_id}/content") == loaded

    done(joan, f"payouts/{payout}/paid", {"reference": "TX-9", "paid_on": "2026-02-03"})
    shown = asked(owner, f"payouts/{payout}")
    assert (shown["state"], shown["reference"]) == ("paid", "TX-9")
    # 30 GPU-hours at 1.730000001, 92 % of it, seven tenths, less 1.00, in whole cents
    assert shown["amount"] == "32.42"
    assert pain001.texts(root, "InstdAmt") == ["32.42"]
    adds_up(store)


def test_a_statement_has_every_line_and_adds_up(
    owner: Caller, joan: Caller, oscar: Caller, store: PostgresStore
) -> None:
    payout, _ = sent(owner, joan, oscar)
    statement = asked(owner, f"payouts/{payout}/statement")
    kinds = {each["kind"]: each for each in statement["data"]}
    assert set(kinds) == {"usage", "compensation"}
    use = kinds["usage"]
    assert Decimal(use["gross"]) - Decimal(use["fee"]) == Decimal(use["amount"])
    assert use["gpu_milliseconds"] == 21 * 3_600_000
    total = sum(Decimal(each["amount"]) for each in statement["data"])
    left = Decimal(statement["opening"]) + total - Decimal(statement["payout"]["amount"])
    assert left == Decimal(statement["closing"]) and 0 <= left < Decimal("0.01")

    answer = owner.get(f"/api/v1/payouts/{payout}/statement/csv")
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert sum(Decimal(each["amount"]) for each in rows) == 0


def test_what_came_back_is_paid_with_the_next(
    owner: Caller, joan: Caller, oscar: Caller, store: PostgresStore
) -> None:
    payout, _ = sent(owner, joan, oscar)
    done(joan, f"payouts/{payout}/returned", {"reason": "account closed"})
    assert asked(owner, f"payouts/{payout}")["reason"] == "account closed"
    again = done(joan, f"payees/{account_of(owner)}/settle", status=201)["payout_id"]
    assert again != payout
    assert asked(owner, f"payouts/{again}")["amount"] == "32.42"
    lines = asked(owner, f"payouts/{again}/statement")["data"]
    assert [each["kind"] for each in lines] == ["payout-back"]
    adds_up(store)


def test_nobody_approves_their_own(
    owner: Caller, joan: Caller, oscar: Caller, store: PostgresStore
) -> None:
    payout = done(joan, f"payees/{account_of(owner)}/settle", status=201)["payout_id"]
    refused(joan, f"payouts/{payout}/approve", code="own-payout")
    member = MemberRow.objects.get(user_id=oscar.user_id)
    member.pk, member.tenant_id = owner.user_id, owner.tenant_id
    member.save(force_insert=True)
    refused(oscar, f"payouts/{payout}/approve", code="own-payout")
    refused(owner, f"payouts/{payout}/approve", code="payouts-by-platform-only")


def test_a_payout_needs_a_confirmed_bank_account_to_be_sent(
    owner: Caller, joan: Caller, oscar: Caller, store: PostgresStore
) -> None:
    payout = done(joan, f"payees/{account_of(owner)}/settle", status=201)["payout_id"]
    done(oscar, f"payouts/{payout}/approve")
    body = {"format": "csv", "currency": "USD"}
    refused(joan, "bank-files", body, code="nothing-to-send")
    refused(joan, "bank-files", {**body, "payouts": [payout]}, code="details-missing")
    with_details(owner)
    done(joan, "bank-files", {**body, "payouts": [payout]}, 201)
    refused(joan, "bank-files", {**body, "payouts": [payout]}, code="payout-state-otherwise")


def test_no_number_of_a_bank_account_is_kept_in_clear(
    owner: Caller, joan: Caller, oscar: Caller, store: PostgresStore
) -> None:
    sent(owner, joan, oscar)
    events = [str(each.event) for each in store.read_all(limit=10_000).events]
    # The platform's own account is in the file's event; the owner's is the same number here.
    assert sum(IBAN in text for text in events) == 1
    [value] = BankDetailsValue.objects.all()
    assert IBAN.encode() not in bytes(value.value)
    assert asked(owner, f"payees/{account_of(owner)}")["details"] == "DE… 3000"


def test_another_owner_sees_and_changes_nothing(
    owner: Caller, joan: Caller, oscar: Caller, store: PostgresStore
) -> None:
    payout, _ = sent(owner, joan, oscar)
    other = admit("another-owner", "owner")
    for path in ("payees", "payouts", "earnings", "bank-files"):
        assert asked(other, path)["data"] == []
    asked(other, f"payouts/{payout}", 404)
    asked(other, f"payees/{account_of(owner)}", 404)
    path = f"payees/{account_of(owner)}/bank-details"
    refused(other, path, {"name": "Mine", "iban": IBAN}, code="payee-unknown")


def test_the_schedule_settles_each_week_once(owner: Caller, store: PostgresStore) -> None:
    later = NOON + timedelta(days=21)
    assert paying.settle_due(store, now=later) == 2
    assert paying.settle_due(store, now=later) == 0
    busy_month.follow(store)
    assert paying.settle_due(store, now=later + timedelta(days=7)) == 0
    assert {row.period for row in PayoutRow.objects.all()} == {"2026-W04"}
    adds_up(store)


def test_what_was_earned_lately_is_held_back_in_part(owner: Caller, store: PostgresStore) -> None:
    row = PayeeRow.objects.get(pk=account_of(owner))
    gained = sum(each.nanos for each in EarningRow.objects.filter(account_id=row.pk, nanos__gt=0))
    soon = paying.estimate(row, now=NOON)
    assert soon.on == "2026-01-12"
    assert soon.payable.held_back == -(-gained // 10)
    assert soon.payable.nanos == (gained - usd(1).nanos - -(-gained // 10)) // 10**7 * 10**7


def test_an_owner_chooses_when_to_be_paid(owner: Caller, store: PostgresStore) -> None:
    body = {"schedule": "manual", "minimum": "5.00"}
    answer = owner.ask("PUT", f"/api/v1/payees/{account_of(owner)}/schedule", body)
    assert answer.status_code == 200, answer.content
    busy_month.follow(store)
    shown = asked(owner, f"payees/{account_of(owner)}")
    assert (shown["schedule"], shown["next"]["on"]) == ("manual", None)
    assert paying.settle_due(store, now=NOON + timedelta(days=21)) == 1  # the other owner
    assert not PayoutRow.objects.filter(tenant_id=owner.tenant_id).exists()


def test_earnings_are_told_by_month_kind_and_lease(owner: Caller, store: PostgresStore) -> None:
    rows = asked(owner, "earnings?period=2026-01")["data"]
    assert [(each["kind"], each["lease_id"]) for each in rows] == [
        ("usage", str(book.LEASE)),
        ("compensation", str(book.LEASE)),
    ]
    assert asked(owner, "earnings?period=2026-02")["data"] == []
    asked(owner, "earnings?period=soon", 422)


def test_finance_sees_all_payees_and_an_owner_its_own(
    owner: Caller, joan: Caller, store: PostgresStore
) -> None:
    assert [each["account_id"] for each in asked(owner, "payees")["data"]] == [account_of(owner)]
    assert len(asked(joan, "payees")["data"]) == PayeeRow.objects.count() >= 2
    actor = Actor(tenant_id=TenantId(owner.tenant_id), roles=frozenset({"owner"}))
    assert queries.bank_files(actor).count() == 0


def test_what_does_not_add_up_is_found(
    owner: Caller, joan: Caller, oscar: Caller, store: PostgresStore
) -> None:
    payout, _ = sent(owner, joan, oscar)
    row = PayoutRow.objects.get(pk=payout)
    PayoutRow.objects.filter(pk=payout).update(nanos=row.nanos + 1)
    found = payouts_that_differ()
    assert any("on its way" in each for each in found)
    assert any("bank file" in each for each in found)
    PayoutRow.objects.filter(pk=payout).update(nanos=row.nanos)
    PayeeRow.objects.filter(pk=row.account_id).update(earned_nanos=0)
    assert any("earnings" in each for each in payouts_that_differ())
    assert not paying.payouts_add_up(Period(2026, 1), NOON).passed


def test_payouts_files_and_bank_are_compared_and_differences_have_reasons(
    owner: Caller, joan: Caller, oscar: Caller, store: PostgresStore
) -> None:
    payout, _ = sent(owner, joan, oscar)
    other = str(earnings_account(book.OTHER_OWNER, "USD"))
    cancelled = done(joan, f"payees/{other}/settle", status=201)["payout_id"]
    done(joan, f"payouts/{cancelled}/cancel", {"reason": "asked by mistake"})
    waiting = done(joan, f"payees/{other}/settle", status=201)["payout_id"]
    month = Period.of(PayoutRow.objects.get(pk=payout).requested_at)
    now = month.window.ends_at

    def found() -> list[list[str]]:
        legs = (payouts_and_files(month, now), files_and_bank(month, now))
        assert unexplained([with_the_rest(leg) for leg in legs]) == []
        return [sorted(each.reason for each in leg.differences) for leg in legs]

    assert found() == [["correction", "in-flight"], ["in-flight"]]
    done(joan, f"payouts/{payout}/paid", {"reference": "TX-9", "paid_on": "2026-02-03"})
    assert found() == [["correction", "in-flight"], []]
    done(joan, f"payouts/{payout}/returned", {"reason": "account closed"})
    assert found() == [["correction", "in-flight"], ["correction"]]

    PayoutRow.objects.filter(pk=waiting).delete()
    wrong = unexplained([with_the_rest(payouts_and_files(month, now))])
    assert [each.subject for each in wrong] == [other]


def test_the_last_bank_account_that_was_entered_is_the_one_that_waits(
    owner: Caller, store: PostgresStore
) -> None:
    path = f"payees/{account_of(owner)}/bank-details"
    first = done(owner, path, {"name": "Lab", "iban": IBAN}, 201)["details_id"]
    other = {"name": "Lab", "iban": "GB82WEST12345698765432"}
    second = done(owner, path, other, 201)["details_id"]
    refused(owner, f"{path}/{first}/confirm", code="details-unknown")
    done(owner, f"{path}/{second}/confirm")
    assert asked(owner, f"payees/{account_of(owner)}")["details"] == "GB… 5432"
    assert BankDetailsValue.objects.count() == 2


def test_a_file_of_the_bank_marks_what_was_paid_and_what_came_back(
    owner: Caller, joan: Caller, oscar: Caller, store: PostgresStore
) -> None:
    payout, _ = sent(owner, joan, oscar)
    name = paying.end_to_end_id(UUID(payout))

    def told(*entries: str) -> list[tuple[str, str]]:
        found = done(joan, "bank-notices", {"content": notice(*entries)})["data"]
        return [(each["kind"], each["words"]) for each in found]

    other = entry(name, "32.41", currency="USD")
    assert told(
        entry("RENT", "900.00"), other, entry(name, "32.42", currency="USD", status="PDNG")
    ) == [
        ("not-ours", "no payout of ours has this reference"),
        ("amount", "the payout is 32.42 USD"),
        ("pending", "the bank has not booked it yet"),
    ]
    assert asked(owner, f"payouts/{payout}")["state"] == "sent"
    left = entry(name, "32.42", currency="USD", reference="B-77")
    assert [kind for kind, _ in told(left)] == ["paid"]
    shown = asked(owner, f"payouts/{payout}")
    assert (shown["state"], shown["reference"], shown["paid_on"]) == ("paid", "B-77", "2026-02-03")
    back = entry(name, "32.42", currency="USD", came=True, day="2026-02-05", code="AC04")
    assert [kind for kind, _ in told(left, back)] == ["known", "returned"]
    assert asked(owner, f"payouts/{payout}")["reason"] == "AC04: the account is closed"
    assert [kind for kind, _ in told(back, left)] == ["known", "known"]
    adds_up(store)


def test_only_the_platforms_finance_takes_files_of_the_bank(
    owner: Caller, joan: Caller, store: PostgresStore
) -> None:
    body = {"content": notice()}
    refused(owner, "bank-notices", body, code="payouts-by-platform-only")
    refused(joan, "bank-notices", {"content": "<x/>"}, code="bank-notice-unreadable")


def test_what_left_and_came_back_in_one_file_is_taken_in_that_order(
    owner: Caller, joan: Caller, oscar: Caller, store: PostgresStore
) -> None:
    payout, _ = sent(owner, joan, oscar)
    name = paying.end_to_end_id(UUID(payout))
    left = entry(name, "32.42", currency="USD", day="2026-02-03")
    back = entry(name, "32.42", currency="USD", day="2026-02-03", came=True, code="MS03")
    found = done(joan, "bank-notices", {"content": notice(back, left)})["data"]
    assert [each["kind"] for each in found] == ["returned", "paid"]
    assert asked(owner, f"payouts/{payout}")["state"] == "returned"
    adds_up(store)
