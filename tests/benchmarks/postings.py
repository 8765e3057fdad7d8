"""Postings a second, one by one and in bulk, beside raw COPY and django-hordak on the same server.

A posting is one charge: an entry of three lines, from who pays to an owner and the platform. Ours
asks the rule, appends the event and writes its rows; hordak, in an environment of its own that is
made from PyPI in a temporary folder, a transaction and its legs. Without PyPI it is left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

from django.db import connection

from ledger.domain.accounts import Account
from ledger.domain.events import OwnerUse
from ledger.domain.holds import Usage
from ledger.domain.ids import HoldId, LeaseId
from ledger.eventstore.port import NewEvent, load, stream_name
from ledger.eventstore.postgres import PostgresStore
from ledger.following import follow_projections
from ledger.models import JournalEntryRow
from ledger.projections.money import MONEY
from tests.benchmarks.figures import Figure
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book

SINGLE, BULK, BATCH = 300, 20_000, 1_000
LEASES = 100
INSTALL_SECONDS_MAX, RUN_SECONDS_MAX = 180, 300
HORDAK = "django-hordak==2.0.0"


def run() -> Iterator[Figure]:
    """Measure single and bulk postings."""
    store = PostgresStore()
    book.open_everybody(store)
    book.open_funds(store)
    book.fund(store, book.usd(1_000_000))
    copied = _raw_copy()
    yield Figure("raw COPY of an entry and its three lines", copied, "/s")
    hordak = _hordak()
    yield Figure("one posting at a time: rule, event, rows", _single(store), "/s")
    if hordak:
        yield Figure("  django-hordak, one at a time", hordak[0], "/s")
    posted, seen = _bulk(store)
    yield Figure(f"{BATCH} postings at a time: rules and events", posted, "/s", copied, "COPY")
    yield Figure("  and their rows: statements, charges, debts", seen, "/s", copied, "COPY")
    if hordak:
        yield Figure("  django-hordak, bulk_create", hordak[1], "/s", copied, "COPY")
        yield Figure("  posted, ours to hordak", posted / hordak[1], "×", goal="≥ 4")
        yield Figure("  with rows, ours to hordak", seen / hordak[1], "×")


def _single(store: PostgresStore) -> float:
    book.hold(store, book.usd(10_000))
    _follow(store)
    started = time.perf_counter()
    for hour in range(SINGLE):
        book.capture(store, book.hours(hour), 3_600_000)
        _follow(store)
    return SINGLE / (time.perf_counter() - started)


def _bulk(store: PostgresStore) -> tuple[float, float]:
    """Return how many a second are posted, and posted and written to every read model of money."""
    leases = [(HoldId(uuid4()), LeaseId(uuid4())) for _ in range(LEASES)]
    for hold_id, _ in leases:
        book.hold(store, book.usd(1_000), hold_id=hold_id)
    _follow(store)
    before = JournalEntryRow.objects.count()
    started = time.perf_counter()
    account = load(store, Account, book.FUNDS)
    assert account is not None
    stream = stream_name(Account, book.FUNDS)
    version = store.read_last([stream])[stream].version
    for first in range(0, BULK, BATCH):
        events = list[NewEvent]()
        for number in range(first, first + BATCH):
            [captured] = account.capture(
                _usage(*leases[number % LEASES], hour=number // LEASES),
                platform_id=book.PLATFORM,
                now=NOON,
            )
            account = Account.evolve(account, captured)
            events.append(NewEvent(uuid4(), captured))
        version = store.append(stream, events, expected=version, by=SOMEBODY).version
    posted = time.perf_counter() - started
    _follow(store)
    seen = time.perf_counter() - started
    assert JournalEntryRow.objects.count() == before + BULK
    return BULK / posted, BULK / seen


def _usage(hold_id: HoldId, lease_id: LeaseId, *, hour: int) -> Usage:
    return Usage(
        hold_id=hold_id,
        lease_id=lease_id,
        window=book.hours(hour),
        gpu_millis=3_600_000,
        price=book.PRICE,
        fee_ppm=book.FEE_PPM,
        owners=(OwnerUse(book.OWNER, 3_600_000),),
        cost_centre="CC-1001",
        item=book.H100,
    )


def _follow(store: PostgresStore) -> None:
    while follow_projections(store, [MONEY]):
        pass


def _raw_copy() -> float:
    """Return how many entries of three lines a COPY puts into bare tables, 1,000 a commit."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE bench_entry (id uuid PRIMARY KEY, at timestamptz, what text)")
        cursor.execute("CREATE TABLE bench_line (entry uuid, account uuid, nanos bigint)")
        started = time.perf_counter()
        for _batch in range(BULK // BATCH):
            ids = [uuid4() for _ in range(BATCH)]
            with cursor.cursor.copy("COPY bench_entry FROM STDIN") as copy:
                for entry_id in ids:
                    copy.write_row((entry_id, NOON, "usage"))
            with cursor.cursor.copy("COPY bench_line FROM STDIN") as copy:
                for entry_id in ids:
                    for nanos in (-1_730_000_001, 138_400_000, 1_591_600_001):
                        copy.write_row((entry_id, book.FUNDS, nanos))
    return BULK / (time.perf_counter() - started)


def _hordak() -> Sequence[float]:
    """Return hordak's postings a second, single and in bulk; nothing where it cannot be had."""
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "v" / "bin" / "python"
        uv = str(Path(sys.executable).with_name("uv"))
        try:
            for command in (
                [uv, "venv", "-q", "--python", sys.executable, str(python.parents[1])],
                [uv, "pip", "install", "-q", "--python", str(python), HORDAK, "psycopg[binary]"],
            ):
                subprocess.run(
                    command, check=True, capture_output=True, timeout=INSTALL_SECONDS_MAX
                )
        except (OSError, subprocess.SubprocessError) as lost:
            print(f"  django-hordak is left out: it could not be installed ({lost})")
            return ()
        database = f"bench_hordak_{os.getpid()}"
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {database}")
        try:
            out = subprocess.run(
                [str(python), "-c", _SCRIPT.format(batch=BATCH, bulk=BULK // 4, single=SINGLE)],
                env={**os.environ, **_to_database(database), "DJANGO_SETTINGS_MODULE": ""},
                capture_output=True,
                text=True,
                timeout=RUN_SECONDS_MAX,
                check=False,
            )
        finally:
            with connection.cursor() as cursor:
                cursor.execute(f"DROP DATABASE {database} WITH (FORCE)")
    if out.returncode:
        print(f"  django-hordak is left out: {out.stderr.strip().splitlines()[-1]}")
        return ()
    return [float(word) for word in out.stdout.split()[-2:]]


def _to_database(name: str) -> dict[str, str]:
    parameters = connection.get_connection_params()
    return {
        "BENCH_DB": name,
        "BENCH_HOST": str(parameters["host"]),
        "BENCH_PORT": str(parameters.get("port", "")),
        "BENCH_USER": str(parameters["user"]),
        "BENCH_PASSWORD": str(parameters.get("password", "")),
    }


_SCRIPT = """
import os, time
import django
from django.conf import settings

env = os.environ
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "mptt", "hordak"],
    DATABASES=dict(default=dict(
        ENGINE="django.db.backends.postgresql", NAME=env["BENCH_DB"], HOST=env["BENCH_HOST"],
        PORT=env["BENCH_PORT"], USER=env["BENCH_USER"], PASSWORD=env["BENCH_PASSWORD"],
    )),
    DEFAULT_AUTO_FIELD="django.db.models.AutoField", USE_TZ=True,
    CURRENCIES=("USD",), DEFAULT_CURRENCY="USD", HORDAK_INTERNAL_CURRENCY="USD",
)
django.setup()
from django.core.management import call_command
from django.db import transaction
from hordak.models import Account, Leg, Transaction
from moneyed import Money

call_command("migrate", verbosity=0)
payer, owner, fees = (
    Account.objects.create(name=name, type=kind, code=code, currencies=["USD"])
    for name, kind, code in (("payer", "AS", "1"), ("owner", "LI", "2"), ("fees", "IN", "3"))
)
WHOLE, REST, FEE = Money("1.73", "USD"), Money("1.59", "USD"), Money("0.14", "USD")


def legs(of):
    return [
        Leg(transaction=of, account=payer, credit=WHOLE),
        Leg(transaction=of, account=owner, debit=REST),
        Leg(transaction=of, account=fees, debit=FEE),
    ]


started = time.perf_counter()
for _ in range({single}):
    with transaction.atomic():
        for leg in legs(Transaction.objects.create()):
            leg.save()
single = {single} / (time.perf_counter() - started)
started = time.perf_counter()
for _ in range({bulk} // {batch}):
    with transaction.atomic():
        made = Transaction.objects.bulk_create([Transaction() for _ in range({batch})])
        Leg.objects.bulk_create([leg for each in made for leg in legs(each)])
print(single, {bulk} / (time.perf_counter() - started))
"""
