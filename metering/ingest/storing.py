"""Batches of samples into the tables: what is new of them, all in one transaction.

In this order: the runs' numbers are locked; what was taken before is compared; the cutoffs of the
leases are shared, so that no window is added up meanwhile; rows go in by one COPY; watermarks and
numbers move on. Every lock is taken in the order of its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ledger.domain.ids import HostId, TenantId
from ledger.domain.refusal import Refusal
from metering.agent.wire import Health
from metering.domain.instants import millis_down
from metering.domain.numbers import Spans, all_new, is_taken, taken_with
from metering.ingest.rows import FIELDS, Row

KIND_LENGTH_MAX = 20
"""Of a kind of health event that only a later version knows; a longer one is kept cut."""
COMPARED_WITHIN = timedelta(days=36)
"""A repeat that is older may have been dropped: what is not there any more is not compared."""

Run = tuple[UUID, UUID]
"""A host and a boot id: what numbers are counted in."""

_COPY_INTERVALS = f"""
COPY metering_interval (host_id, boot_id, received_at, {", ".join(FIELDS)}, late_ms) FROM STDIN
"""
_KNOWN_INTERVALS = f"""
SELECT {", ".join(FIELDS)} FROM metering_interval
WHERE host_id = %s AND boot_id = %s AND seq = ANY (%s::bigint[])
    AND lease_id = ANY (%s::uuid[]) AND end_ms BETWEEN %s AND %s
"""
_TAKEN = """
SELECT taken.host_id, taken.boot_id, taken.spans FROM metering_taken taken
JOIN unnest(%s::uuid[], %s::uuid[]) AS sent (host_id, boot_id)
    ON taken.host_id = sent.host_id AND taken.boot_id = sent.boot_id
ORDER BY 1, 2 FOR UPDATE OF taken
"""
_BEGIN_RUNS = """
INSERT INTO metering_taken (host_id, boot_id, spans)
SELECT host_id, boot_id, '{}' FROM unnest(%s::uuid[], %s::uuid[]) AS sent (host_id, boot_id)
ORDER BY 1, 2 ON CONFLICT DO NOTHING
"""
_TAKE = """
UPDATE metering_taken AS taken SET spans = sent.spans::bigint[]
FROM unnest(%s::uuid[], %s::uuid[], %s::text[]) AS sent (host_id, boot_id, spans)
WHERE taken.host_id = sent.host_id AND taken.boot_id = sent.boot_id
"""
_PUT_HEALTH = """
INSERT INTO metering_healthevent
    (host_id, boot_id, seq, tenant_id, gpu_uuid, kind, at, detail, received_at)
SELECT %s, %s, sent.seq, %s, sent.gpu_uuid, sent.kind, sent.at, sent.detail, %s
FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::timestamptz[], %s::text[])
    AS sent (seq, gpu_uuid, kind, at, detail)
"""
_KNOWN_HEALTH = """
SELECT seq, gpu_uuid, kind, at, detail
FROM metering_healthevent WHERE host_id = %s AND boot_id = %s AND seq = ANY (%s)
"""
_MOVE_WATERMARKS = """
INSERT INTO metering_watermark AS known (lease_id, host_id, gpu_uuid, seen_ms)
SELECT sent.lease_id, sent.host_id, sent.gpu_uuid, sent.seen_ms
FROM unnest(%s::uuid[], %s::uuid[], %s::text[], %s::bigint[])
    AS sent (lease_id, host_id, gpu_uuid, seen_ms)
ORDER BY 1, 2, 3
ON CONFLICT (lease_id, host_id, gpu_uuid)
    DO UPDATE SET seen_ms = EXCLUDED.seen_ms WHERE known.seen_ms < EXCLUDED.seen_ms
"""
_HOLD_CUTOFFS = """
INSERT INTO metering_cutoff (lease_id, through_ms)
SELECT each, 0 FROM unnest(%s::uuid[]) AS each ORDER BY 1 ON CONFLICT DO NOTHING
"""
_SHARE_CUTOFFS = """
SELECT lease_id, through_ms FROM metering_cutoff
WHERE lease_id = ANY (%s::uuid[]) ORDER BY lease_id FOR SHARE
"""
_NOTE_LATE = """
INSERT INTO metering_lateuse AS known (lease_id, start_ms, end_ms, arrived_at, arrivals)
SELECT lease_id, start_ms, end_ms, %s, 1
FROM unnest(%s::uuid[], %s::bigint[], %s::bigint[]) AS late (lease_id, start_ms, end_ms)
ORDER BY lease_id
ON CONFLICT (lease_id) DO UPDATE SET
    start_ms = least(known.start_ms, EXCLUDED.start_ms),
    end_ms = greatest(known.end_ms, EXCLUDED.end_ms),
    arrivals = known.arrivals + 1
"""


class SampleConflict(Refusal):
    """A sample with this number is stored with another content.

    Nothing of the batch was stored. The host's spool was copied, or its boot id is used twice.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A batch as one host sent it: intervals as rows (`columns.FIELDS`), and health events."""

    host_id: HostId
    tenant_id: TenantId
    boot_id: UUID
    rows: Sequence[Row]
    health: Sequence[Health] = ()

    @property
    def run(self) -> Run:
        """Return what its numbers are counted in."""
        return self.host_id, self.boot_id

    def last(self) -> int:
        """Return its last number; 0 for an empty batch."""
        return max(self.rows[-1][0] if self.rows else 0, self.health[-1].seq if self.health else 0)

    def seqs(self) -> list[int]:
        """Return its numbers in order."""
        found = [row[0] for row in self.rows]
        return sorted([*found, *(each.seq for each in self.health)]) if self.health else found


def put(cursor: Any, sent: Sequence[Sent], now: datetime) -> list[Refusal | None]:
    """Store batches of different runs; return of each why it is refused.

    cursor: in a transaction.
    """
    known = _hold_numbers(cursor, sent)
    refused: list[Refusal | None] = []
    fresh: list[Sent] = []
    for each in sent:
        try:
            fresh.append(_without_known(cursor, each, known[each.run], now))
            refused.append(None)
        except SampleConflict as conflict:
            refused.append(conflict)
    _put_rows(cursor, [each for each in fresh if each.rows], now)
    for each in fresh:
        if each.health:
            columns = zip(*map(_health, each.health), strict=True)
            given = [each.host_id, each.boot_id, each.tenant_id, now, *map(list, columns)]
            cursor.execute(_PUT_HEALTH, given)
    _take_numbers(cursor, [(each.run, known[each.run], each.seqs()) for each in fresh])
    return refused


def _hold_numbers(cursor: Any, sent: Sequence[Sent]) -> dict[Run, Spans]:
    """Lock which numbers were taken of each run, and return them."""
    runs = sorted(each.run for each in sent)
    arrays = [_array(host for host, _ in runs), _array(boot for _, boot in runs)]
    cursor.execute(_TAKEN, arrays)
    found = {(host, boot): spans for host, boot, spans in cursor.fetchall()}
    if len(found) < len(runs):
        cursor.execute(_BEGIN_RUNS, arrays)
        cursor.execute(_TAKEN, arrays)
        found = {(host, boot): spans for host, boot, spans in cursor.fetchall()}
    return found


def _take_numbers(cursor: Any, taken: Sequence[tuple[Run, Spans, list[int]]]) -> None:
    taken = [each for each in taken if each[2]]
    if not taken:
        return
    hosts, boots = (_array(run[half] for run, _, _ in taken) for half in (0, 1))
    spans = [_array(taken_with(spans, seqs)) for _, spans, seqs in taken]
    cursor.execute(_TAKE, [hosts, boots, spans])


def _without_known(cursor: Any, sent: Sent, spans: Spans, now: datetime) -> Sent:
    """Return what of a batch was not taken before.

    Raises: SampleConflict, where what was taken is not the same.
    """
    if all_new(spans, sent.seqs()):
        return sent
    rows = [row for row in sent.rows if is_taken(spans, row[0])]
    if rows:
        _compare_rows(cursor, sent, rows, now)
    health = [each for each in sent.health if is_taken(spans, each.seq)]
    if health:
        cursor.execute(_KNOWN_HEALTH, [sent.host_id, sent.boot_id, [each.seq for each in health]])
        stored = {row[0]: tuple(row) for row in cursor.fetchall()}
        for each in health:
            if stored.get(each.seq) != _health(each):
                raise SampleConflict(boot_id=sent.boot_id, seq=each.seq)
    return Sent(
        host_id=sent.host_id,
        tenant_id=sent.tenant_id,
        boot_id=sent.boot_id,
        rows=[row for row in sent.rows if not is_taken(spans, row[0])],
        health=[each for each in sent.health if not is_taken(spans, each.seq)],
    )


def _compare_rows(cursor: Any, sent: Sent, rows: Sequence[Row], now: datetime) -> None:
    """Compare intervals whose numbers were taken with what is stored of them."""
    seqs, leases, _, _, ends, *_ = zip(*rows, strict=True)
    span = min(ends), max(ends)
    given = [sent.host_id, sent.boot_id, _array(seqs), _array(set(leases)), *span]
    cursor.execute(_KNOWN_INTERVALS, given)
    stored = {row[0]: tuple(row) for row in cursor.fetchall()}
    kept_from_ms = millis_down(now - COMPARED_WITHIN)
    for row in rows:
        known = stored.get(row[0])
        if known is None and row[4] < kept_from_ms:
            continue
        if known != tuple(row):
            raise SampleConflict(boot_id=sent.boot_id, seq=row[0])


def _put_rows(cursor: Any, sent: Sequence[Sent], now: datetime) -> None:
    """Put new intervals in, note which of them came late, and move the watermarks on."""
    if not sent:
        return
    leases = sorted({lease_id for each in sent for lease_id in {row[1] for row in each.rows}})
    closed = _share_cutoffs(cursor, leases)
    lines: list[str] = []
    late: dict[UUID, tuple[int, int]] = {}
    seen: dict[tuple[UUID, UUID, str], int] = {}
    received = now.isoformat()
    for each in sent:
        head = f"{each.host_id}\t{each.boot_id}\t{received}\t"
        lines += _lines(head, each.rows, closed, late)
        ends: dict[tuple[UUID, str], int] = {}
        for _, lease_id, gpu_uuid, _, end_ms, *_ in each.rows:
            if ends.get((lease_id, gpu_uuid), 0) < end_ms:
                ends[lease_id, gpu_uuid] = end_ms
        for (lease_id, gpu_uuid), end_ms in ends.items():
            key = lease_id, each.host_id, gpu_uuid
            seen[key] = max(seen.get(key, 0), end_ms)
    with cursor.cursor.copy(_COPY_INTERVALS) as copy:
        copy.write("".join(lines))
    if late:
        spans = [_array(span[at] for span in late.values()) for at in (0, 1)]
        cursor.execute(_NOTE_LATE, [now, _array(late), *spans])
    marked = [_array(key[0] for key in seen), _array(key[1] for key in seen)]
    gpus = [gpu_uuid for _, _, gpu_uuid in seen]
    cursor.execute(_MOVE_WATERMARKS, [*marked, gpus, _array(seen.values())])


def _lines(
    head: str,
    rows: Sequence[Row],
    closed: Mapping[UUID, int],
    late: dict[UUID, tuple[int, int]],
) -> list[str]:
    """Return rows as COPY reads them; note of which spans they come late."""
    names = _Texts()
    found = []
    last_closed = max(closed.values())
    for seq, lease_id, gpu_uuid, start_ms, end_ms, *rest in rows:
        late_ms = 0
        if start_ms < last_closed:
            late_ms = max(0, min(end_ms, closed[lease_id]) - start_ms)
            if late_ms:
                span = late.get(lease_id, (start_ms, start_ms + late_ms))
                late[lease_id] = min(span[0], start_ms), max(span[1], start_ms + late_ms)
        said = "\t".join(["\\N" if value is None else str(value) for value in rest])
        found.append(
            f"{head}{seq}\t{names[lease_id, gpu_uuid]}\t{start_ms}\t{end_ms}\t{said}\t{late_ms}\n"
        )
    return found


def _share_cutoffs(cursor: Any, leases: Sequence[UUID]) -> dict[UUID, int]:
    """Let no window of these leases be closed before this is committed; return their cutoffs."""
    names = _array(leases)
    cursor.execute(_SHARE_CUTOFFS, [names])
    found = dict(cursor.fetchall())
    if len(found) < len(leases):
        cursor.execute(_HOLD_CUTOFFS, [names])
        cursor.execute(_SHARE_CUTOFFS, [names])
        found = dict(cursor.fetchall())
    return found


class _Texts(dict[tuple[UUID, str], str]):
    """A lease and GPU as COPY reads them, each put so once."""

    def __missing__(self, key: tuple[UUID, str]) -> str:
        lease_id, gpu_uuid = key
        name = gpu_uuid.replace("\\", "\\\\").replace("\t", "\\t")
        name = name.replace("\n", "\\n").replace("\r", "\\r")
        found = self[key] = f"{lease_id}\t{name}"
        return found


def _health(each: Health) -> tuple[Any, ...]:
    return (each.seq, each.gpu_uuid, each.kind[:KIND_LENGTH_MAX], each.at, each.detail)


def _array(values: Iterable[int | UUID]) -> str:
    """Write numbers or ids as PostgreSQL reads an array: a third faster than the driver's way."""
    return "{" + ",".join(map(str, values)) + "}"
