"""The FOCUS export keeps the rules of FOCUS 1.2, and the rules notice when a file does not."""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.eventstore.memory import MemoryStore
from ledger.exports import export, focus
from ledger.exports.focus_columns import COLUMNS_1_2 as COLUMNS
from tests.ledger import busy_month
from tests.ledger.busy_month import AUDITOR, JANUARY
from tests.ledger.focus_rules import judge

pytestmark = pytest.mark.django_db

VALIDATOR = os.environ.get("OFFPEAK_FOCUS_VALIDATOR", "")
CRITERIA = Path(judge.__file__).with_name("criteria.txt").read_text().split()
KNOWN_FALSE_ALARMS = {
    "InvoiceId-C-003-C",
    "InvoiceId-C-004-C",
    "InvoiceId-C-005-C",
    "InvoiceId-C-000-O",
}
"""Rules of the official validator that fail on correct files (FOCUS_Spec#2394)."""

Rows = list[dict[str, str]]


@pytest.fixture
def exported(store: MemoryStore) -> str:
    busy_month.live_through(store)
    busy_month.follow(store)
    data = export(AUDITOR, "focus", period=JANUARY, position=store.head())
    return b"".join(data).decode()


def changed(text: str, change: Callable[[Rows], None]) -> str:
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    change(rows)
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=[*rows[0]])
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def usage(rows: Rows) -> dict[str, str]:
    """Return a charge for use that is large enough for every planted error to matter."""
    return next(
        row for row in rows if row["ChargeCategory"] == "Usage" and row["ListCost"] > "0.01"
    )


def test_an_export_breaks_no_rule(exported: str) -> None:
    assert judge.judge(exported) == []
    assert len(exported.splitlines()) > busy_month.LEASES


def test_the_columns_are_those_of_the_specification_then_ours() -> None:
    known = [name for name in COLUMNS if name in judge.RULES["columns"]]
    ours = list(COLUMNS[len(known) :])

    assert (len(known), len(ours)) == (49, 6)
    assert tuple(known + ours) == COLUMNS
    assert all(name.startswith("x_") for name in ours)


def put(**values: str) -> Callable[[Rows], None]:
    return lambda rows: usage(rows).update(values)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (put(ContractedCost="0.000000001"), "ContractedUnitPrice-C-011-C"),
        (put(ListCost="9.990000000"), "ListUnitPrice-C-010-C"),
        (put(ServiceCategory="GPU"), "ServiceCategory-C-003-M"),
        (put(ChargeCategory="Usagee"), "ChargeCategory-C-003-M"),
        (put(PricingCategory="Auction"), "PricingCategory-C-007-M"),
        (put(ChargeFrequency="Sometimes"), "ChargeFrequency-C-003-M"),
        (put(ChargePeriodStart="2026-01-04 00:00:00"), "ChargePeriodStart-C-001-M"),
        (put(BillingCurrency="usd"), "BillingCurrency-C-003-M"),
        (put(PricingUnit=""), "PricingUnit-C-006-C"),
        (put(Tags="{'a': 1}"), "Tags-C-001-M"),
        (put(EffectiveCost="1,73"), "EffectiveCost-C-001-M"),
        (put(ConsumedUnit="GPU-Fortnights"), "ConsumedUnit-C-003-O"),
        (put(BilledCost=""), "BilledCost-C-003-M"),
        (put(PublisherName=""), "PublisherName-C-003-M"),
    ],
)
def test_a_planted_error_is_found(exported: str, change: Callable[[Rows], None], rule: str) -> None:
    broken = {each.rule for each in judge.judge(changed(exported, change))}

    assert rule in broken


def test_costs_rounded_to_six_places_are_found(exported: str) -> None:
    def round_all(rows: Rows) -> None:
        for row in rows:
            for name in ("ContractedCost", "ListCost"):
                row[name] = row[name][:-3]

    broken = judge.must_rules_broken(changed(exported, round_all))

    assert {"ContractedUnitPrice-C-011-C", "ListUnitPrice-C-010-C"} <= broken


def test_a_missing_and_a_strange_column_are_found(exported: str) -> None:
    header, rest = exported.split("\r\n", 1)
    without = header.replace("BilledCost", "Billed", 1) + "\r\n" + rest

    broken = judge.must_rules_broken(without)

    assert "ColumnHandling-A-010-M" in broken
    assert any(name.startswith("CostAndUsage-D-") for name in broken)


def test_hours_are_written_so_that_products_hold() -> None:
    assert focus.gpu_hours(3_600_000) == "1.000000000000000000"
    assert focus.gpu_hours(1) == "0.000000277777777778"
    assert focus.amount(-1) == "-0.000000001"


def official_validator_finds_nothing_but_its_false_alarms(exported: str, tmp_path: Path) -> None:
    """Its exit status is 0 whatever it finds, so what it prints is read."""
    (tmp_path / "export.csv").write_text(exported, newline="")
    program = Path(VALIDATOR)
    (package,) = program.parent.parent.glob("lib/python3*/site-packages/focus_validator")
    (tmp_path / "focus_validator").symlink_to(package)  # it opens a file of its own by this path

    done = subprocess.run(
        [
            *(program, "--data-file", "export.csv", "--validate-version", "1.2.0.1"),
            *("--block-download", "--applicability-criteria", ",".join(CRITERIA)),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    said = done.stdout + done.stderr
    assert re.search(r"Total: *\d+", said), said[-2000:]
    assert set(re.findall(r"❌ ([A-Za-z]+-[A-Z]-\d{3}-[A-Z])", said)) <= KNOWN_FALSE_ALARMS


if VALIDATOR:
    # Needs Python 3.12 and packages that clash with ours, so it is asked for, never skipped.
    test_the_official_validator = official_validator_finds_nothing_but_its_false_alarms
