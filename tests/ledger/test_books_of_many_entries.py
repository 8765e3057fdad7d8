"""Sixty thousand entries of every kind, checked by two programs that are not ours."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection

from ledger import exports
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Position
from ledger.models import InvoiceRow, JournalEntryRow
from tests.ledger import invoiced, simulated_month
from tests.ledger.busy_month import AUDITOR, JANUARY
from tests.ledger.simulated_month import KINDS

pytestmark = [pytest.mark.django_db, pytest.mark.soak]

ENTRIES = 60_000
GROW = """
INSERT INTO ledger_journalentryrow (entry_id, position, period, day, kind, account_id, lease_id,
    cost_centre, reference, currency, account_ids, nanos, at)
SELECT md5(entry_id::text || n)::uuid,
    %(head)s + row_number() OVER (ORDER BY n, position), '2026-01',
    least(day, date '2026-01-31'), kind, account_id, lease_id,
    cost_centre, reference, currency, account_ids,
    ARRAY(SELECT each * (1 + n %% 7) FROM unnest(nanos) WITH ORDINALITY AS t (each, place)
          ORDER BY place), at
FROM ledger_journalentryrow, generate_series(0, %(entries)s / %(few)s) AS n;
INSERT INTO ledger_postingrow (line_id, entry_id, account_id, tenant_id, position, period, kind,
    lease_id, cost_centre, reference, currency, nanos, at)
SELECT entry_id || ':' || line, entry_id, account_ids[line], NULL, position, period, kind, lease_id,
    cost_centre, reference, currency, nanos[line], at
FROM ledger_journalentryrow, generate_subscripts(account_ids, 1) AS line
WHERE position > %(head)s"""
"""Entries of every kind again and again, in other amounts, each with its lines."""

Check = Callable[[Path], tuple[int, str]]


def bean_check(file: Path) -> tuple[int, str]:
    return _run([str(Path(sys.executable).with_name("bean-check")), "--no-cache", str(file)])


def hledger(file: Path) -> tuple[int, str]:
    if shutil.which("hledger") is None:
        pytest.skip("hledger is not installed: tests/install-tools.sh")
    return _run(["hledger", "-f", str(file), "check", "--strict"])


def _run(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=550,
        env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "check", "line"),
    [("beancount", bean_check, "  Income:Fees"), ("hledger", hledger, "    Income:Fees")],
)
def test_a_program_of_others_accepts_the_books_and_refuses_a_planted_nano(
    store: MemoryStore, tmp_path: Path, name: str, check: Check, line: str
) -> None:
    simulated_month.trade(store)
    invoiced.credit(store, InvoiceRow.objects.get(account_id=simulated_month.CHEM))
    entries, head = JournalEntryRow.objects.filter(period=str(JANUARY)), store.head()
    with connection.cursor() as cursor:
        cursor.execute(
            GROW, {"head": head, "entries": ENTRIES, "few": JournalEntryRow.objects.count()}
        )
    position = Position(entries.latest("position").position)
    assert set(entries.values_list("kind", flat=True)) >= KINDS
    file = tmp_path / "books"
    with file.open("wb") as out:
        said = exports.manifest(AUDITOR, name, period=JANUARY, position=position, write=out.write)
    assert said.rows == entries.count() >= ENTRIES
    assert check(file) == (0, "")

    lines = file.read_text().splitlines(keepends=True)
    fees = [at for at, text in enumerate(lines) if text.startswith(line)]
    middle = fees[len(fees) // 2]
    head_of_line, figure, currency = lines[middle].rsplit(" ", 2)
    lines[middle] = f"{head_of_line} {figure[:-1]}{(int(figure[-1]) + 1) % 10} {currency}"
    file.write_text("".join(lines))

    status, words = check(file)
    assert status != 0
    assert "balance" in words
