"""A month of a million charges as FOCUS, CSV and Parquet, beside a raw COPY of the same rows.

Each is written by a process of its own, as a child of a web server would, and its bytes are
counted and dropped: what is measured is reading the rows, making the file, and the most memory
that the process ever had.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

from django.db import connection

from ledger.models import UsageChargeRow
from tests.benchmarks.figures import Figure

CHARGES = 1_000_000
MONTH_HOURS = 720
LEASE_HOURS = 20
"""Windows of a lease; each lease has a price of its own, so terms of its own."""
ACCOUNTS = 200
MEBIBYTES_MAX = 200
FORMS = ("focus", "focus-parquet")

FILL_ACCOUNTS = """
INSERT INTO ledger_accountrow (account_id, tenant_id, subscriber_id, kind, title, currency,
    overdraft_nanos, total_nanos, held_nanos, available_nanos, short_nanos, opened_at)
SELECT md5('account' || n)::uuid, md5('tenant' || n %% 20)::uuid, md5('unit' || n)::uuid,
    CASE WHEN n %% 2 = 0 THEN 'prepaid' ELSE 'chargeback' END, 'Unit ' || n, 'USD',
    NULL, 0, 0, 0, 0, now()
FROM generate_series(0, %(accounts)s - 1) AS n"""
FILL_CHARGES = """
INSERT INTO ledger_usagechargerow (entry_id, position, period, account_id, tenant_id,
    subscriber_id, lease_id, starts_at, ends_at, gpu_millis, energy_mj, price_nanos,
    list_price_nanos, fee_ppm, charged_nanos, fee_nanos, currency, cost_centre, sku, region,
    service_class, provider, shares, at)
SELECT md5('entry' || n)::uuid, n + 1, '2026-01', md5('account' || lease %% %(accounts)s)::uuid,
    md5('tenant' || lease %% %(accounts)s %% 20)::uuid,
    md5('unit' || lease %% %(accounts)s)::uuid, md5('lease' || lease)::uuid,
    hour, hour + interval '1 hour', millis, millis * 300, price, price + 400000000, 50000,
    price * millis / 3600000, price * millis / 3600000 / 20, 'USD', 'CC-' || lease %% 40,
    CASE lease %% 3 WHEN 0 THEN 'H100-80G' WHEN 1 THEN 'A100-80G' ELSE 'L4' END, 'campus-b',
    'on-demand', '', '', hour + interval '1 hour'
FROM (
    SELECT n, lease, 1000000000::bigint + lease * 7919 AS price,
        timestamptz '2026-01-01 00:00Z' + n / at_once * interval '1 hour' AS hour,
        3600000 - n %% 17 * 1000 AS millis
    FROM (
        SELECT n, at_once, n %% at_once + n / at_once / %(lease_hours)s * at_once AS lease
        FROM generate_series(0, %(charges)s - 1) AS n,
            (SELECT %(charges)s / %(hours)s + 1 AS at_once) AS width
    ) AS windows
) AS rated"""


def run() -> Iterator[Figure]:
    """Fill the tables, then write each form."""
    with connection.cursor() as cursor:
        told = {"accounts": ACCOUNTS, "charges": CHARGES}
        told |= {"hours": MONTH_HOURS, "lease_hours": LEASE_HOURS}
        cursor.execute(FILL_ACCOUNTS, told)
        cursor.execute(FILL_CHARGES, told)
        cursor.execute(
            "INSERT INTO ledger_checkpoint (name, position, error) VALUES"
            " ('ledger.money', %(charges)s, ''), ('ledger.exports', %(charges)s, '')"
            " ON CONFLICT (name) DO UPDATE SET position = EXCLUDED.position",
            told,
        )
        cursor.execute("ANALYZE ledger_usagechargerow")
    raw = _raw_copy()
    yield Figure("raw COPY of the rows, ordered, dropped", raw, "rows/s", digits=0)
    for form in FORMS:
        said = _alone(form)
        rate, goal = said["rows"] / said["seconds"], "≥ 50,000" if form == "focus" else ""
        yield Figure(f"{form}, {said['rows']:,} rows", rate, "rows/s", raw, "COPY", goal, 0)
        yield Figure("  it took", said["seconds"], "s")
        yield Figure(
            "  a second of its own work", said["rows"] / said["cpu_seconds"], "rows", digits=0
        )
        yield Figure("  its size", said["bytes"] / 2**20, "MiB", digits=0)
        peak = said["peak_kib"] / 1024
        yield Figure("  most memory", peak, "MiB", goal=f"< {MEBIBYTES_MAX}", digits=0)


def _raw_copy() -> float:
    table = UsageChargeRow._meta.db_table
    connection.ensure_connection()
    began, size = time.perf_counter(), 0
    with connection.cursor() as cursor:
        asked = f"COPY (SELECT * FROM {table} ORDER BY position) TO STDOUT WITH (FORMAT csv)"
        with cursor.copy(asked) as copied:
            for piece in copied:
                size += len(piece)
    assert size
    return CHARGES / (time.perf_counter() - began)


def _alone(form: str) -> dict[str, float]:
    """Write a form in a process of its own; return what it said."""
    name = connection.settings_dict["NAME"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.export_alone", form, str(name)],
        capture_output=True,
        text=True,
        check=False,
        timeout=550,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said: dict[str, float] = json.loads(done.stdout)
    return said
