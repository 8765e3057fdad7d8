"""One account at two lengths: what it costs to load it, to bid, to charge and to show a page.

The long one has `BENCH_ACCOUNT_ENTRIES` entries, five million unless said otherwise, written by
COPY: some minutes and ten gigabytes. Each hold is charged 24 times and released. Then holds are
placed on one wallet from several processes at once, which is where they meet.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from hashlib import blake2b
from itertools import islice
from multiprocessing.synchronize import Barrier
from uuid import UUID, uuid4

from django.db import connection

from ledger import carrying, queries
from ledger.closing import EVERYTHING
from ledger.commands.money import placing_hold
from ledger.domain import journal
from ledger.domain.accounts import Account
from ledger.domain.event import Event
from ledger.domain.events import HoldPlaced, HoldReleased, UsageCaptured
from ledger.domain.ids import AccountId, EntryId, HoldId, LeaseId
from ledger.domain.money import Money
from ledger.domain.periods import Period
from ledger.eventstore import codec, folds
from ledger.eventstore.port import load, stream_name
from ledger.eventstore.postgres import PostgresStore
from ledger.eventstore.together import Part, record_each
from ledger.models import AccountRow, PostingRow
from ledger.queries.statements import page_of_lines
from tests.benchmarks.figures import Figure, percentile
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book

ENTRIES = int(os.environ.get("BENCH_ACCOUNT_ENTRIES", "5000000"))
SHORT = 20_000
PER_HOLD = 24
TIMES = 200
PROCESSES, OF_EACH = 8, 100
START_SECONDS_MAX = 60.0
PAGE = 50
TOGETHER = 50

_INDEXES = (
    "ALTER TABLE es_event ADD PRIMARY KEY (position)",
    "ALTER TABLE es_event ADD CONSTRAINT es_event_event_id_key UNIQUE (event_id)",
    "ALTER TABLE es_event ADD CONSTRAINT es_event_stream_version_key UNIQUE (stream, version)",
)


def run() -> Iterator[Figure]:
    """Measure a short account, a long one, and a busy one."""
    store = PostgresStore()
    book.open_everybody(store)
    for entries in (SHORT, ENTRIES):
        yield from _of_length(store, entries)
    yield from _busy(store)


def _of_length(store: PostgresStore, entries: int) -> Iterator[Figure]:
    name = f"{entries:,} entries"
    account_id = _written(store, entries)
    started, steps = time.perf_counter(), 0
    while made := carrying.carry_one_forward(store, account_id, now=NOON):
        steps += made
    took = time.perf_counter() - started
    yield Figure(f"{name}: carried forward, once", entries / took, "events/s")
    yield Figure("  in steps", steps, "", digits=0)

    def fold() -> None:
        folds._memories.pop(store, None)
        assert load(store, Account, account_id) is not None

    yield _median(f"{name}: load, nothing remembered", fold, times=20)
    hold_id = book.hold_named(f"kept {entries}")
    book.hold(store, book.usd(10_000), account=account_id, hold_id=hold_id)
    yield _median(f"{name}: set money aside for a bid", lambda: _bid(store, account_id))
    hours = iter(range(TIMES + 1))

    def capture() -> None:
        _charge(store, account_id, hold_id, next(hours))

    yield _median(f"{name}: charge a usage window", capture)
    first = list(islice(store.read_stream(stream_name(Account, account_id)), 4))[3].event
    assert isinstance(first, UsageCaptured)
    yield _median(f"{name}: find a charge of long ago", lambda: _find(store, account_id, first))
    yield from _pages(account_id, entries, name)


def _bid(store: PostgresStore, account_id: AccountId) -> None:
    book.hold(store, Money(1), account=account_id, hold_id=HoldId(uuid4()))


def _charge(store: PostgresStore, account_id: AccountId, hold_id: HoldId, hour: int) -> None:
    book.capture(
        store,
        book.hours(hour),
        3_600_000,
        account=account_id,
        hold_id=hold_id,
        lease_id=book.lease_named(account_id),
    )


def _find(store: PostgresStore, account_id: AccountId, charged: UsageCaptured) -> None:
    """Ask as the rule does for a charge that comes again, with nothing remembered of it."""
    folds._memories.pop(store, None)
    account = load(store, Account, account_id)
    assert account is not None
    assert account.entries[charged.entry_id] == charged
    assert account.holds[charged.hold_id].released


def _pages(account_id: AccountId, entries: int, name: str) -> Iterator[Figure]:
    """Measure statement pages: the figures of the month and its newest and middle lines."""
    period = Period.of(NOON)
    _post(account_id, entries, str(period))
    middle = PostingRow.objects.get(line_id=f"{_uuid(account_id, entries // 2)}:0").line_id

    def page(before: str = "") -> None:
        said = queries.statement(EVERYTHING, account_id, period)
        assert said.lines == entries
        rows = queries.statement_lines(EVERYTHING, account_id, period)
        lines = page_of_lines(rows, size=PAGE, before=before)
        shown = list(queries.with_balances(EVERYTHING, account_id, lines.rows))
        assert len(shown) == PAGE
        assert before or shown[0].balance_nanos == said.closing_nanos

    yield _median(f"{name}: newest page of the statement", page, times=20, goal="≤ 200")
    yield _median("  a page in the middle of it", lambda: page(middle), times=20, goal="≤ 200")


def _median(name: str, work: Callable[[], None], *, times: int = TIMES, goal: str = "") -> Figure:
    took = []
    for _each in range(times):
        started = time.perf_counter()
        work()
        took.append(time.perf_counter() - started)
    return Figure(name, percentile(took, 0.5) * 1e3, "ms", goal=goal, digits=2)


def _uuid(account_id: AccountId, number: int) -> UUID:
    name = blake2b(number.to_bytes(8, "big"), digest_size=16, key=account_id.bytes)
    return UUID(bytes=name.digest())


def _written(store: PostgresStore, entries: int) -> AccountId:
    """Write an account of so many charges, as its commands would have, but by COPY."""
    unit = uuid4()
    account_id = book.open_funds(store, unit=unit, title=f"{entries}")  # type: ignore[arg-type]
    book.fund(store, Money(9 * 10**18), account=account_id)
    stream = stream_name(Account, account_id)
    head = int(store.head())
    kinds = _templates(account_id)
    meta = codec.encode(SOMEBODY).hex()
    with connection.cursor() as cursor:
        if entries > SHORT:
            _drop_indexes()
        with cursor.cursor.copy("COPY es_event FROM STDIN") as copy:
            for number in range(_events(entries)):
                hold, step = divmod(number, PER_HOLD + 2)
                kind, data = kinds[0 if step == 0 else 2 if step > PER_HOLD else 1]
                text = data.replace(b"HOLD", str(_uuid(account_id, hold | 1 << 62)).encode())
                text = text.replace(b"ENTRY", str(_uuid(account_id, number)).encode())
                place = f"{head + 1 + number}\t{stream}\t{3 + number}\t{_uuid(account_id, number)}"
                rest = f"{kind.name}\t{kind.schema_version}\t\\\\x{text.hex()}\t\\\\x{meta}"
                copy.write(f"{place}\t{rest}\t{NOON.isoformat()}\t\\\\x00\n")
        if entries > SHORT:
            for statement in (*_INDEXES, *_found_by()):
                cursor.execute(statement)
        cursor.execute("ANALYZE es_event")
    return account_id


def _events(entries: int) -> int:
    return entries // PER_HOLD * (PER_HOLD + 2)


def _found_by() -> list[str]:
    return [
        "CREATE INDEX es_event_type_position ON es_event (type, position)",
        *(
            f'CREATE INDEX es_event_{name} ON es_event (es_id_in(data, \'"{name}_id":"\'))'
            " WHERE stream >= 'account-' AND stream < 'account.'"
            f' AND es_id_in(data, \'"{name}_id":"\') IS NOT NULL'
            for name in ("entry", "hold")
        ),
    ]


def _drop_indexes() -> None:
    """Drop what would be filled row by row; it is made anew in one go."""
    with connection.cursor() as asked:
        asked.execute("ALTER TABLE es_event DROP CONSTRAINT es_event_pkey")
        asked.execute("ALTER TABLE es_event DROP CONSTRAINT es_event_event_id_key")
        asked.execute("ALTER TABLE es_event DROP CONSTRAINT es_event_stream_version_key")
        asked.execute("DROP INDEX es_event_type_position, es_event_entry, es_event_hold")


def _templates(account_id: AccountId) -> list[tuple[type[Event], bytes]]:
    """Return a hold's placing, a charge and its release, with words for what differs."""
    hold_id, lease_id = HoldId(UUID(int=1)), LeaseId(UUID(int=2))
    price = book.PRICE
    charged = price.charge(3_600_000)
    placed = HoldPlaced(
        account_id=account_id,
        hold_id=hold_id,
        money=Money(charged.nanos * PER_HOLD),
        purpose="bid:1",
        at=NOON,
    )
    entry_id = EntryId(UUID(int=3))
    captured = UsageCaptured(
        account_id=account_id,
        hold_id=hold_id,
        entry_id=entry_id,
        lease_id=lease_id,
        window=book.hours(0),
        gpu_millis=3_600_000,
        price=price,
        fee_ppm=book.FEE_PPM,
        owners=(),
        item=book.H100,
        charged=charged,
        fee=Money(0),
        cost_centre="CC-1001",
        postings=journal.transfer(source=account_id, target=book.FUNDS, money=charged),
        at=NOON + timedelta(hours=1),
    )
    released = HoldReleased(account_id=account_id, hold_id=hold_id, money=Money(0), at=NOON)
    return [
        (type(each), _worded(codec.encode(each), hold_id, entry_id))
        for each in (placed, captured, released)
    ]


def _worded(data: bytes, hold_id: UUID, entry_id: UUID) -> bytes:
    return data.replace(str(hold_id).encode(), b"HOLD").replace(str(entry_id).encode(), b"ENTRY")


def _post(account_id: AccountId, entries: int, period: str) -> None:
    """Write the account's lines, with the sums that a projection would have kept."""
    AccountRow.objects.create(
        account_id=account_id,
        tenant_id=book.CONSUMER,
        kind="prepaid",
        title="long",
        currency="USD",
        total_nanos=0,
        held_nanos=0,
        available_nanos=0,
    )
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")  # its other lines are not written
        columns = "line_id, entry_id, account_id, tenant_id, position, period, kind, lease_id,"
        columns += " cost_centre, reference, currency, nanos, at"
        charged = book.PRICE.charge(3_600_000).nanos
        with cursor.cursor.copy(f"COPY ledger_postingrow ({columns}) FROM STDIN") as copy:
            for number in range(entries):
                entry = _uuid(account_id, number)
                copy.write(
                    f"{entry}:0\t{entry}\t{account_id}\t{book.CONSUMER}\t{100 + number}\t{period}"
                    f"\tusage\t\\N\tCC-1001\tH100\tUSD\t{-charged}\t{NOON.isoformat()}\n"
                )
        cursor.execute(
            "INSERT INTO ledger_postingsumrow (sum_id, account_id, period, block, kind, nanos,"
            " lines) SELECT account_id || ':' || position / 16384, account_id, period,"
            " position / 16384, kind, sum(nanos), count(*) FROM ledger_postingrow"
            " WHERE account_id = %s GROUP BY account_id, period, position / 16384, kind",
            [account_id],
        )
        cursor.execute("SET session_replication_role = origin")
        cursor.execute("ANALYZE ledger_postingrow, ledger_postingsumrow")


def _busy(store: PostgresStore) -> Iterator[Figure]:
    """Measure holds on one wallet: one process alone, then several that meet on its stream."""
    account_id = book.open_funds(store, unit=uuid4(), title="busy")  # type: ignore[arg-type]
    book.fund(store, book.usd(1_000_000), account=account_id)
    started = time.perf_counter()
    for _each in range(OF_EACH):
        _bid(store, account_id)
    alone = OF_EACH / (time.perf_counter() - started)
    yield Figure("one wallet: holds by one process", alone, "/s")
    connection.close()  # it can be nobody's but its maker's
    forking = multiprocessing.get_context("fork")
    begin = forking.Barrier(PROCESSES + 1)
    working = [
        forking.Process(target=_many, args=(store, account_id, begin)) for _ in range(PROCESSES)
    ]
    for process in working:
        process.start()
    begin.wait(START_SECONDS_MAX)
    started = time.perf_counter()
    for process in working:
        process.join()
    rate = PROCESSES * OF_EACH / (time.perf_counter() - started)
    failed = sum(bool(process.exitcode) for process in working)
    yield Figure(f"one wallet: holds by {PROCESSES} processes at once", rate, "/s", alone, "alone")
    yield Figure("  processes of these that were refused", failed, "", digits=0, goal="0")
    started = time.perf_counter()
    for _batch in range(OF_EACH // 10):
        record_each(store, [[_part(account_id)] for _ in range(TOGETHER)])
    rate = OF_EACH // 10 * TOGETHER / (time.perf_counter() - started)
    name = f"one wallet: holds that come together, {TOGETHER} at a time"
    yield Figure(name, rate, "/s", alone, "alone")


def _part(account_id: AccountId) -> Part:
    return placing_hold(
        account_id=account_id,
        hold_id=HoldId(uuid4()),
        money=Money(1),
        purpose="bid:1",
        by=SOMEBODY,
        now=NOON,
    )


def _many(store: PostgresStore, account_id: AccountId, begin: Barrier) -> None:
    _bid(store, account_id)  # connected, and its server warm, before the time runs
    begin.wait(START_SECONDS_MAX)
    for _each in range(OF_EACH):
        _bid(store, account_id)
    connection.close()
