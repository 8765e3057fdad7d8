"""Sixty thousand entries, checked by two programs that are not ours, to the nano-unit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection

from ledger import exports
from ledger.eventstore.port import Position
from tests.ledger.busy_month import AUDITOR, JANUARY

pytestmark = [pytest.mark.django_db, pytest.mark.soak]

ENTRIES = 60_000
FILL = """
INSERT INTO ledger_accountrow (account_id, tenant_id, subscriber_id, kind, title, currency,
    overdraft_nanos, total_nanos, held_nanos, available_nanos, short_nanos, opened_at)
SELECT md5(kind || n)::uuid, md5('tenant')::uuid, NULL, kind, kind || ' ' || n, 'USD',
    NULL, 0, 0, 0, 0, now()
FROM generate_series(0, 19) AS n, (VALUES ('chargeback'), ('earnings'), ('fees')) AS kinds (kind)
WHERE kind <> 'fees' OR n = 0;
INSERT INTO ledger_journalentryrow (entry_id, position, period, day, kind, account_id, lease_id,
    cost_centre, reference, currency, account_ids, nanos, at)
SELECT md5('entry' || n)::uuid, n + 1, '2026-01', date '2026-01-01' + (n % 31)::int, 'usage', payer,
    md5('lease' || n / 20)::uuid, 'CC-' || n % 40, 'H100-80G', 'USD', ARRAY[payer, owner, fees],
    ARRAY[-paid, paid - paid / 20, paid / 20], timestamptz '2026-01-01 00:00Z'
FROM (SELECT n, md5('chargeback' || n % 20)::uuid AS payer, md5('earnings' || n % 7)::uuid AS owner,
    md5('fees0')::uuid AS fees, 1234567891 + n * 1000003 AS paid
    FROM generate_series(0::bigint, 59999) AS n) AS used;
INSERT INTO ledger_postingrow (line_id, entry_id, account_id, tenant_id, position, period, kind,
    lease_id, cost_centre, reference, currency, nanos, at)
SELECT entry_id || ':' || line, entry_id, account_ids[line], NULL, position, period, kind, lease_id,
    cost_centre, reference, currency, nanos[line], at
FROM ledger_journalentryrow, generate_series(1, 3) AS line"""

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
    tmp_path: Path, name: str, check: Check, line: str
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(FILL)
    file = tmp_path / "books"
    with file.open("wb") as out:
        said = exports.manifest(
            AUDITOR, name, period=JANUARY, position=Position(ENTRIES), write=out.write
        )
    assert said.rows == ENTRIES
    assert check(file) == (0, "")

    lines = file.read_text().splitlines(keepends=True)
    middle = [at for at, text in enumerate(lines) if text.startswith(line)][ENTRIES // 2]
    head, figure, currency = lines[middle].rsplit(" ", 2)
    lines[middle] = f"{head} {figure[:-1]}{(int(figure[-1]) + 1) % 10} {currency}"
    file.write_text("".join(lines))

    status, words = check(file)
    assert status != 0
    assert "balance" in words
