"""The same month in each form: the same figures, the same bytes each time, read by its own tool."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from ledger import exports
from ledger.access import Actor
from ledger.domain.gl_mapping import GlMapping
from ledger.domain.periods import Period
from ledger.eventstore.memory import MemoryStore
from ledger.exports import focus_csv, focus_parquet, gl_forms, xlsx
from ledger.exports.cells import harmless
from ledger.exports.charges import charges
from ledger.exports.entries import Books
from ledger.exports.focus import row_of
from ledger.exports.focus_columns import COLUMNS_1_2, COLUMNS_1_3
from tests.ledger import busy_month
from tests.ledger.busy_month import AUDITOR, FEBRUARY, FINANCE, JANUARY, OWNER_FINANCE
from tests.ledger.exported import nanos, rows_of, sheets_of

pytestmark = pytest.mark.django_db

needs_hledger = pytest.mark.skipif(
    shutil.which("hledger") is None, reason="hledger is not installed: tests/install-tools.sh"
)


@pytest.fixture
def month(store: MemoryStore) -> MemoryStore:
    busy_month.live_through(store)
    busy_month.follow(store)
    return store


def data_of(
    name: str, store: MemoryStore, *, actor: Actor = AUDITOR, period: Period = JANUARY
) -> bytes:
    return b"".join(exports.export(actor, name, period=period, position=store.head()))


# --- FOCUS ---------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [COLUMNS_1_2, COLUMNS_1_3])
@pytest.mark.parametrize("actor", [AUDITOR, FINANCE])
def test_lines_are_those_that_csv_itself_writes(
    month: MemoryStore, actor: Actor, columns: Sequence[str]
) -> None:
    told = list(charges(actor, period=JANUARY, position=month.head()))

    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    for charge in told:
        row = row_of(charge, period=JANUARY)
        writer.writerow(harmless(row.get(column, "") for column in columns))
    made = focus_csv.lines(iter(told), period=JANUARY, columns=columns)
    assert "".join(made) == out.getvalue()


def test_terms_that_are_many_are_not_all_held(
    month: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = data_of("focus", month)
    monkeypatch.setattr("ledger.exports.focus_csv.LINES_KNOWN", 1)
    monkeypatch.setattr("ledger.exports.charges.TERMS_KNOWN", 1)

    assert data_of("focus", month) == before


@pytest.mark.parametrize(
    ("form", "plain"), [("focus-parquet", "focus"), ("focus-1.3-parquet", "focus-1.3")]
)
def test_parquet_says_what_the_csv_says(
    month: MemoryStore, monkeypatch: pytest.MonkeyPatch, form: str, plain: str
) -> None:
    monkeypatch.setattr(focus_parquet, "GROUP", 17)
    table = pyarrow.parquet.read_table(io.BytesIO(data_of(form, month)))
    rows = rows_of(data_of(plain, month).decode())

    assert table.num_rows == len(rows)
    assert table.column_names == list(rows[0])
    for name in table.column_names:
        told = [row[name] or None for row in rows]
        assert [_text(name, each) for each in table[name].to_pylist()] == [
            _rounded(name, each) for each in told
        ]


def test_decimals_are_decimals_and_moments_moments(month: MemoryStore) -> None:
    schema = pyarrow.parquet.read_schema(io.BytesIO(data_of("focus-parquet", month)))

    assert schema.field("BilledCost").type == pyarrow.decimal128(38, 12)
    assert schema.field("PricingQuantity").type == pyarrow.decimal128(38, 12)
    assert schema.field("ChargePeriodStart").type == pyarrow.timestamp("us", "UTC")
    assert schema.field("x_GpuMilliseconds").type == pyarrow.int64()


def test_a_month_without_charges_is_a_file_without_rows(month: MemoryStore) -> None:
    empty = data_of("focus-parquet", month, period=Period(2031, 1))

    assert pyarrow.parquet.read_table(io.BytesIO(empty)).num_rows == 0


def _text(name: str, value: Any) -> str | None:
    if isinstance(value, Decimal):
        return str(value.normalize())
    if value is None or isinstance(value, str):
        return value.removeprefix("'") if value else value
    return f"{value:%Y-%m-%dT%H:%M:%SZ}" if hasattr(value, "year") else str(value)


def _rounded(name: str, text: str | None) -> str | None:
    if text is None:
        return None
    if name.endswith(focus_parquet.DECIMALS):
        places = Decimal(1).scaleb(-focus_parquet.PLACES)
        return str(Decimal(text).quantize(places, "ROUND_HALF_UP").normalize())
    return text.removeprefix("'")


# --- workbook ------------------------------------------------------------------------------


def test_a_workbook_has_each_amount_exactly_and_as_a_number(month: MemoryStore) -> None:
    sheets = sheets_of(data_of("xlsx", month))
    rows = rows_of(data_of("focus", month).decode())

    head, *told = sheets["Charges"]
    exact, number = head.index("Cost, exact"), head.index("Cost")
    assert [row[exact] for row in told] == [row["EffectiveCost"] for row in rows]
    assert all(abs(Decimal(row[number]) - Decimal(row[exact])) < Decimal("1e-9") for row in told)
    assert len(sheets["Journal"]) > len(told)


def test_a_workbook_goes_on_in_another_sheet(
    month: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sheets_of(data_of("xlsx", month))["Charges"]
    monkeypatch.setattr(xlsx, "ROWS_MAX", 30)
    parts = [rows for name, rows in sheets_of(data_of("xlsx", month)).items() if "Charges" in name]

    assert len(parts) > 1
    assert [row for part in parts for row in part[1:]] == whole[1:]
    assert {tuple(part[0]) for part in parts} == {tuple(whole[0])}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.730000000", 1.73),
        ("-0.000000001", -1e-9),
        ("9000000000.123456789", 9000000000.12346),
        ("0.000000000", 0.0),
    ],
)
def test_a_number_has_no_more_digits_than_a_spreadsheet_keeps(text: str, number: float) -> None:
    assert xlsx.number(text) == number


# --- hledger -------------------------------------------------------------------------------


@needs_hledger
@pytest.mark.parametrize("actor", [AUDITOR, FINANCE, OWNER_FINANCE])
@pytest.mark.parametrize("period", [JANUARY, FEBRUARY, Period(2026, 3)])
def test_hledger_accepts_the_books(
    month: MemoryStore, tmp_path: Path, actor: Actor, period: Period
) -> None:
    text = data_of("hledger", month, actor=actor, period=period).decode()

    assert hledger(text, tmp_path) == (0, "")


@needs_hledger
@pytest.mark.parametrize("place", ["  Income:Fees", "0 USD = "])
def test_hledger_finds_a_planted_nano(month: MemoryStore, tmp_path: Path, place: str) -> None:
    lines = data_of("hledger", month).decode().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if place in line and line.startswith("  "))
    head, figure, currency = lines[at].rsplit(" ", 2)
    lines[at] = f"{head} {figure[:-1]}{(int(figure[-1]) + 1) % 10} {currency}"

    status, said = hledger("".join(lines), tmp_path)

    assert status != 0
    assert "balance" in said


def hledger(text: str, folder: Path) -> tuple[int, str]:
    file = folder / "books.journal"
    file.write_text(text)
    done = subprocess.run(
        ["hledger", "-f", file, "check", "--strict"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )
    return done.returncode, done.stdout + done.stderr


# --- general ledgers -----------------------------------------------------------------------

MAPPING = GlMapping({"prepaid": "210000", "fees": "400100"}, company="2000", document_type="ZB")
Written = Callable[[Books, GlMapping], Any]


def mapped(form: Written, store: MemoryStore, actor: Actor = AUDITOR) -> str:
    books = Books(actor, period=JANUARY, position=store.head())
    return "".join(form(books, MAPPING))


def test_sap_gets_documents_that_balance_in_its_own_fields(month: MemoryStore) -> None:
    rows = rows_of(mapped(gl_forms.sap, month))

    sums: Counter[tuple[str, str]] = Counter()
    for row in rows:
        sums[row["XBLNR"], row["WAERS"]] += {"S": -1, "H": 1}[row["SHKZG"]] * nanos(row["WRBTR"])
    assert set(sums.values()) == {0}
    assert {row["BUKRS"] for row in rows} == {"2000"}
    assert {row["HKONT"] for row in rows} >= {"210000", "400100", "Offpeak earnings"}
    assert rows[0]["BUDAT"] == "20260131"


def test_netsuite_gets_entries_that_balance(month: MemoryStore) -> None:
    rows = rows_of(mapped(gl_forms.netsuite, month))

    sums: Counter[str] = Counter()
    for row in rows:
        sums[row["External ID"]] += nanos(row["Credit"] or "0") - nanos(row["Debit"] or "0")
        assert row["Posting Period"] == "Jan 2026"
    assert set(sums.values()) == {0}


def test_quickbooks_gets_transactions_that_balance(month: MemoryStore) -> None:
    lines = [line.split("\t") for line in mapped(gl_forms.iif, month).splitlines()]

    assert [line[0] for line in lines[:3]] == ["!TRNS", "!SPL", "!ENDTRNS"]
    assert len(lines[0]) == len(lines[1]) == 8
    total = 0
    for line in lines[3:]:
        if line == ["ENDTRNS"]:
            assert total == 0
            continue
        assert len(line) == 8
        assert line[2] == "01/31/2026"
        total += nanos(line[5])
    assert lines[-1] == ["ENDTRNS"]
    assert "210000 USD" in {line[3] for line in lines[3:-1] if len(line) > 1}


@pytest.mark.parametrize("name", ["gl-sap", "gl-netsuite", "gl-iif"])
def test_every_form_books_the_same_cents(month: MemoryStore, name: str) -> None:
    generic = rows_of(data_of("gl", month).decode())
    debits = sum(nanos(row["debit"] or "0") for row in generic)

    text = data_of(name, month).decode()
    match name:
        case "gl-sap":
            found = [nanos(row["WRBTR"]) for row in rows_of(text) if row["SHKZG"] == "S"]
        case "gl-netsuite":
            found = [nanos(row["Debit"] or "0") for row in rows_of(text)]
        case _:
            cells = [line.split("\t") for line in text.splitlines()[3:]]
            found = [nanos(each[5]) for each in cells if len(each) > 1 and each[5][0] != "-"]
    assert sum(found) == debits
