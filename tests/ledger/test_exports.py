"""Exports: reproducible to the byte, equal to the ledger, balanced, and for the right eyes only."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ledger import exports, queries
from ledger.access import Actor
from ledger.domain.ids import AccountId
from ledger.domain.periods import Period
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Position
from ledger.exports import gl
from ledger.exports.cells import harmless
from ledger.models import AccountRow, PostingRow, UsageChargeRow
from ledger.projections.money import MONEY
from ledger.rebuilding import rebuild
from tests.ledger import busy_month
from tests.ledger import ledgerbook as book
from tests.ledger.busy_month import AUDITOR, FEBRUARY, FINANCE, JANUARY, OWNER_FINANCE
from tests.ledger.exported import nanos, rows_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def month(store: MemoryStore) -> MemoryStore:
    busy_month.live_through(store)
    busy_month.follow(store)
    return store


def written(
    name: str, store: MemoryStore, *, actor: Actor = AUDITOR, period: Period = JANUARY
) -> str:
    return at_position(name, store.head(), actor=actor, period=period)


def at_position(
    name: str, position: Position, *, actor: Actor = AUDITOR, period: Period = JANUARY
) -> str:
    return bytes_at(name, position, actor=actor, period=period).decode()


def bytes_at(
    name: str, position: Position, *, actor: Actor = AUDITOR, period: Period = JANUARY
) -> bytes:
    return b"".join(exports.export(actor, name, period=period, position=position))


@pytest.mark.parametrize("name", sorted(exports.FORMATS))
def test_an_export_at_a_position_stays_the_same_to_the_byte(month: MemoryStore, name: str) -> None:
    """I12: whatever is recorded later, and however often the tables are rebuilt."""
    position = month.head()
    before = bytes_at(name, position)

    book.fund(month, book.usd(3), account=prepaid(), entry="later")
    busy_month.follow(month)
    rebuild(month, MONEY)

    assert bytes_at(name, position) == before
    assert bytes_at(name, month.head()) != before


@pytest.mark.parametrize("name", ["focus", "gl"])
def test_no_name_is_a_formula_to_a_spreadsheet(month: MemoryStore, name: str) -> None:
    UsageChargeRow.objects.update(cost_centre='=HYPERLINK("http://127.0.0.1/")')
    AccountRow.objects.update(title="@SUM(1)")

    text = written(name, month)

    cells = {cell for row in rows_of(text) for cell in row.values() if cell}
    assert {cell[0] for cell in cells} & set("=+@\t\r") == set()
    assert all(nanos(cell) < 0 for cell in cells if cell.startswith("-"))
    assert '\'=HYPERLINK("http://127.0.0.1/")' in cells or "'@SUM(1)" in cells


@pytest.mark.parametrize(
    ("cell", "safe"),
    [
        ("-12.500000000", "-12.500000000"),
        ("-1+1", "'-1+1"),
        ("=1", "'=1"),
        ("\t=1", "'\t=1"),
        ("a=1", "a=1"),
        ("", ""),
    ],
)
def test_numbers_below_zero_stay_numbers(cell: str, safe: str) -> None:
    assert harmless([cell]) == [safe]


def prepaid() -> AccountId:
    return AccountId(AccountRow.objects.get(kind="prepaid").pk)


@pytest.mark.parametrize("name", sorted(exports.FORMATS))
def test_a_manifest_describes_the_very_bytes(month: MemoryStore, name: str) -> None:
    position = month.head()

    said = exports.manifest(AUDITOR, name, period=JANUARY, position=position)

    data = bytes_at(name, position)
    assert said.sha256 == hashlib.sha256(data).hexdigest()
    assert (said.bytes, said.position, said.period) == (len(data), position, "2026-01")
    assert said.rows > busy_month.LEASES
    assert said.sums_nanos["USD"] > 0


def test_effective_cost_equals_what_the_ledger_took_from_payers(month: MemoryStore) -> None:
    rows = rows_of(written("focus", month))

    cost: Counter[str] = Counter()
    for row in rows:
        cost[row["BillingCurrency"]] += nanos(row["EffectiveCost"])
    taken: Counter[str] = Counter()
    payers = AccountRow.objects.filter(kind__in=("prepaid", "chargeback")).values("account_id")
    for line in PostingRow.objects.filter(
        account_id__in=payers, kind__in=("usage", "storage", "compensation"), period="2026-01"
    ):
        taken[line.currency] -= line.nanos
    assert cost == taken
    said = exports.manifest(AUDITOR, "focus", period=JANUARY, position=month.head())
    assert said.sums_nanos == dict(taken)


def test_prepaid_accounts_are_billed_when_they_pay_in(month: MemoryStore) -> None:
    rows = rows_of(written("focus", month))

    mine = [row for row in rows if row["SubAccountName"] == "Astro"]
    paid = PostingRow.objects.filter(account_id=prepaid(), kind="funds")
    assert sum(nanos(row["BilledCost"]) for row in mine) == sum(line.nanos for line in paid)
    assert {row["ChargeCategory"] for row in mine} == {"Usage", "Purchase", "Credit"}


def test_usage_counts_in_the_month_in_which_it_began(month: MemoryStore) -> None:
    january = rows_of(written("focus", month))
    february = rows_of(written("focus", month, period=FEBRUARY))

    assert len(february) == UsageChargeRow.objects.filter(period="2026-02").count() > 0
    assert all(row["ChargePeriodStart"] < "2026-02" for row in january)
    assert all(row["ChargePeriodStart"] >= "2026-02" for row in february)


@pytest.mark.parametrize("actor", [AUDITOR, FINANCE, OWNER_FINANCE])
@pytest.mark.parametrize("period", [JANUARY, FEBRUARY, Period(2026, 3)])
def test_bean_check_accepts_the_books(
    month: MemoryStore, tmp_path: Path, actor: Actor, period: Period
) -> None:
    text = written("beancount", month, actor=actor, period=period)

    assert bean_check(text, tmp_path) == (0, "")


def test_bean_check_finds_a_planted_nano(month: MemoryStore, tmp_path: Path) -> None:
    lines = written("beancount", month).splitlines(keepends=True)
    leg = next(i for i, line in enumerate(lines) if line.startswith("  Income:Fees"))
    account, figure, currency = lines[leg].split()
    lines[leg] = f"  {account}  {figure[:-1]}{(int(figure[-1]) + 1) % 10} {currency}\n"

    status, said = bean_check("".join(lines), tmp_path)

    assert status != 0
    assert "balance" in said


def test_bean_check_finds_a_closing_balance_off_by_a_nano(
    month: MemoryStore, tmp_path: Path
) -> None:
    lines = written("beancount", month).splitlines(keepends=True)
    last = next(i for i, line in enumerate(lines) if " balance Income:Fees" in line)
    head, figure = lines[last].split(" ~ ")[0].rsplit(" ", 1)
    changed = f"{figure[:-1]}{(int(figure[-1]) + 1) % 10}"
    lines[last] = lines[last].replace(f"{head} {figure}", f"{head} {changed}")

    status, _ = bean_check("".join(lines), tmp_path)

    assert status != 0


def bean_check(text: str, folder: Path) -> tuple[int, str]:
    book_file = folder / "books.beancount"
    book_file.write_text(text)
    tool = Path(sys.executable).with_name("bean-check")
    done = subprocess.run(
        [tool, "--no-cache", book_file], capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def test_every_journal_for_the_general_ledger_balances_in_cents(month: MemoryStore) -> None:
    rows = rows_of(written("gl", month))

    sums: Counter[tuple[str, str]] = Counter()
    for row in rows:
        amount = nanos(row["credit"] or "0") - nanos(row["debit"] or "0")
        sums[row["entry_no"], row["currency"]] += amount
        assert (row["debit"] == "") != (row["credit"] == "")
        assert amount % 10**7 == 0
    assert len(sums) > 5
    assert set(sums.values()) == {0}


def test_cents_are_within_one_of_the_exact_amount() -> None:
    nanos = [-10_004_999_999, 5_000_000_001, 5_004_999_998]

    cents = gl.in_minor_units(nanos, digits=2)

    assert sum(cents) == 0
    assert all(abs(c * 10**7 - n) < 10**7 for c, n in zip(cents, nanos, strict=True))
    assert gl.in_minor_units([3, -3], digits=0) == [0, 0]


def test_a_tenants_export_shows_nothing_of_another(month: MemoryStore) -> None:
    focus, beans = (
        written("focus", month, actor=FINANCE),
        written("beancount", month, actor=FINANCE),
    )
    ledger = written("gl", month, actor=FINANCE)

    others = [str(row.pk) for row in AccountRow.objects.exclude(tenant_id=book.CONSUMER)]
    for text in (focus, beans, ledger):
        assert not any(other in text or other.upper() in text for other in others)
        assert "Render" not in text
    assert {row["BillingAccountId"] for row in rows_of(focus)} == {
        f"offpeak:tenant/{book.CONSUMER}"
    }
    assert "Equity:Others" in beans


def test_an_owner_is_not_shown_who_used_its_gpus(month: MemoryStore) -> None:
    assert rows_of(written("focus", month, actor=OWNER_FINANCE)) == []
    assert "Liabilities:Earnings" in written("beancount", month, actor=OWNER_FINANCE)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(exports.ExportFormatUnknown):
        exports.export(AUDITOR, "xls", period=JANUARY, position=Position(1))


def test_nothing_disagrees(month: MemoryStore) -> None:
    assert queries.disagreements() == []
