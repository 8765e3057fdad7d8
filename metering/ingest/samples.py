"""Batches of samples in, exactly once.

The key (host, boot, seq) is claimed by the very insert that stores the sample, in one transaction
with the watermarks: a crash between claim and write cannot happen, and a resend changes nothing.
The same key with another content is refused whole and raises an alarm, because one of the two is
wrong and nobody knows which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from ledger.domain.ids import HostId, LeaseId, TenantId
from ledger.domain.refusal import Invalid, Refusal
from ledger.eventstore.port import EventStore
from metering.agent.wire import Health, SampleBatch
from metering.agent.wire import Interval as SentInterval
from metering.domain.instants import millis_down
from metering.ingest.grants import Grants, LeaseNotHere

AHEAD_MAX_MS = 60_000
"""How far a host's clock may run ahead of the server's."""

KIND_LENGTH_MAX = 20
"""Of a kind of health event that only a later version knows; a longer one is kept cut."""

_PUT_INTERVALS = """
INSERT INTO metering_interval (host_id, boot_id, seq, lease_id, gpu_uuid, start_ms, end_ms,
    occupied_ms, busy_ms, memory_used_mib, cpu_ms, io_bytes, net_bytes, energy_mj, late_ms,
    received_at)
SELECT %s, %s, sent.seq, sent.lease_id, sent.gpu_uuid, sent.start_ms, sent.end_ms,
    sent.occupied_ms, sent.busy_ms, sent.memory_used_mib,
    sent.cpu_ms, sent.io_bytes, sent.net_bytes, sent.energy_mj,
    greatest(0, least(sent.end_ms, coalesce(cut.through_ms, 0)) - sent.start_ms), %s
FROM unnest(%s::bigint[], %s::uuid[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[],
    %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
    AS sent (seq, lease_id, gpu_uuid, start_ms, end_ms, occupied_ms, busy_ms, memory_used_mib,
        cpu_ms, io_bytes, net_bytes, energy_mj)
LEFT JOIN metering_cutoff cut USING (lease_id)
ON CONFLICT DO NOTHING
"""
_KNOWN_INTERVALS = """
SELECT seq, lease_id, gpu_uuid, start_ms, end_ms, occupied_ms, busy_ms, memory_used_mib,
    cpu_ms, io_bytes, net_bytes, energy_mj
FROM metering_interval WHERE host_id = %s AND boot_id = %s AND seq = ANY (%s)
"""
_PUT_HEALTH = """
INSERT INTO metering_healthevent
    (host_id, boot_id, seq, tenant_id, gpu_uuid, kind, at, detail, received_at)
SELECT %s, %s, sent.seq, %s, sent.gpu_uuid, sent.kind, sent.at, sent.detail, %s
FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::timestamptz[], %s::text[])
    AS sent (seq, gpu_uuid, kind, at, detail)
ON CONFLICT DO NOTHING
"""
_KNOWN_HEALTH = """
SELECT seq, gpu_uuid, kind, at, detail
FROM metering_healthevent WHERE host_id = %s AND boot_id = %s AND seq = ANY (%s)
"""
_MOVE_WATERMARKS = """
INSERT INTO metering_watermark AS known (lease_id, host_id, gpu_uuid, seen_ms)
SELECT sent.lease_id, %s, sent.gpu_uuid, sent.seen_ms
FROM unnest(%s::uuid[], %s::text[], %s::bigint[]) AS sent (lease_id, gpu_uuid, seen_ms)
ORDER BY 1, 3
ON CONFLICT (lease_id, host_id, gpu_uuid)
    DO UPDATE SET seen_ms = EXCLUDED.seen_ms WHERE known.seen_ms < EXCLUDED.seen_ms
"""
_HOLD_CUTOFFS = """
INSERT INTO metering_cutoff (lease_id, through_ms)
SELECT each, 0 FROM unnest(%s::uuid[]) AS each ORDER BY 1 ON CONFLICT DO NOTHING
"""
_SHARE_CUTOFFS = """
SELECT lease_id, through_ms FROM metering_cutoff
WHERE lease_id = ANY (%s) ORDER BY lease_id FOR SHARE
"""
_NOTE_LATE = """
INSERT INTO metering_lateuse AS known (lease_id, start_ms, end_ms, arrived_at, arrivals)
SELECT lease_id, min(start_ms), max(start_ms + late_ms), %s, 1
FROM metering_interval
WHERE host_id = %s AND boot_id = %s AND seq = ANY (%s) AND late_ms > 0
GROUP BY lease_id ORDER BY lease_id
ON CONFLICT (lease_id) DO UPDATE SET
    start_ms = least(known.start_ms, EXCLUDED.start_ms),
    end_ms = greatest(known.end_ms, EXCLUDED.end_ms),
    arrivals = known.arrivals + 1
"""


class SampleConflict(Refusal):
    """A sample with this number is stored with another content.

    Nothing of the batch was stored. The host's spool was copied, or its boot id is used twice.
    """


class SampleTooEarly(Refusal):
    """The interval ends in the future: the host's clock runs ahead.

    Set the host's clock; the batch is taken when its time has come.
    """

    # Not refused for good: an agent keeps what is too early, and gives up what is wrong.
    status = 425


class SampleBeforeLease(Invalid):
    """The interval ends before its lease starts."""


def take_samples(
    store: EventStore,
    grants: Grants,
    batch: SampleBatch,
    *,
    host_id: HostId,
    tenant_id: TenantId,
    now: datetime,
) -> int:
    """Store a batch of one host, all or nothing.

    Returns: the number up to which everything of this boot is stored; 0 for an empty batch.
    Raises: LeaseNotHere, SampleTooEarly, SampleBeforeLease, SampleConflict.
    """
    _check(store, grants, batch.batch, host_id=host_id, now=now)
    with transaction.atomic(), connection.cursor() as cursor:
        if batch.batch:
            _put_intervals(cursor, batch, host_id=host_id, now=now)
        if batch.health:
            _put_health(cursor, batch, host_id=host_id, tenant_id=tenant_id, now=now)
    last_interval = batch.batch[-1].seq if batch.batch else 0
    return max(last_interval, batch.health[-1].seq if batch.health else 0)


def _check(
    store: EventStore,
    grants: Grants,
    intervals: Sequence[SentInterval],
    *,
    host_id: HostId,
    now: datetime,
) -> None:
    latest_ms = millis_down(now) + AHEAD_MAX_MS
    lease_id, gpus, starts_ms = None, frozenset[str](), 0
    for each in intervals:
        if each.lease_id != lease_id:
            lease_id = each.lease_id
            grant = grants.of(store, LeaseId(lease_id))
            gpus, starts_ms = grant.on(host_id), grant.starts_ms
        if each.gpu_uuid not in gpus:
            raise LeaseNotHere(lease_id=lease_id, gpu_uuid=each.gpu_uuid, seq=each.seq)
        if each.end_ms > latest_ms:
            raise SampleTooEarly(seq=each.seq, end_ms=each.end_ms, server_time=now)
        if each.end_ms <= starts_ms:
            raise SampleBeforeLease(seq=each.seq, end_ms=each.end_ms, starts_ms=starts_ms)


def _put_intervals(cursor: Any, batch: SampleBatch, *, host_id: HostId, now: datetime) -> None:
    sent = batch.batch
    leases = sorted({each.lease_id for each in sent})
    cursor.execute(_HOLD_CUTOFFS, [leases])
    cursor.execute(_SHARE_CUTOFFS, [leases])
    closed = dict(cursor.fetchall())
    seqs, lease_ids, gpu_uuids, *numbers = zip(*map(_interval, sent), strict=True)
    arrays = [_array(seqs), _array(lease_ids), list(gpu_uuids), *map(_array, numbers)]
    cursor.execute(_PUT_INTERVALS, [host_id, batch.boot_id, now, *arrays])
    if cursor.rowcount < len(sent):
        rows = {each.seq: _interval(each) for each in sent}
        _refuse_other_content(cursor, _KNOWN_INTERVALS, rows, host_id, batch.boot_id)
    _refuse_taken(cursor, _KNOWN_HEALTH, [each.seq for each in sent], host_id, batch.boot_id)
    if any(each.start_ms < closed[each.lease_id] for each in sent):
        cursor.execute(_NOTE_LATE, [now, host_id, batch.boot_id, [each.seq for each in sent]])
    seen: dict[tuple[UUID, str], int] = {}
    for each in sent:
        key = (each.lease_id, each.gpu_uuid)
        seen[key] = max(seen.get(key, 0), each.end_ms)
    cursor.execute(
        _MOVE_WATERMARKS,
        [host_id, [k[0] for k in seen], [k[1] for k in seen], list(seen.values())],
    )


def _put_health(
    cursor: Any, batch: SampleBatch, *, host_id: HostId, tenant_id: TenantId, now: datetime
) -> None:
    columns = list(zip(*map(_health, batch.health), strict=True))
    cursor.execute(_PUT_HEALTH, [host_id, batch.boot_id, tenant_id, now, *map(list, columns)])
    if cursor.rowcount < len(batch.health):
        rows = {each.seq: _health(each) for each in batch.health}
        _refuse_other_content(cursor, _KNOWN_HEALTH, rows, host_id, batch.boot_id)
    seqs = [each.seq for each in batch.health]
    _refuse_taken(cursor, _KNOWN_INTERVALS, seqs, host_id, batch.boot_id)


def _interval(each: SentInterval) -> tuple[Any, ...]:
    return (
        each.seq,
        each.lease_id,
        each.gpu_uuid,
        each.start_ms,
        each.end_ms,
        each.occupied_ms,
        each.busy_ms,
        each.memory_used_mib,
        each.cpu_ms,
        each.io_bytes,
        each.net_bytes,
        each.energy_mj,
    )


def _health(each: Health) -> tuple[Any, ...]:
    return (each.seq, each.gpu_uuid, each.kind[:KIND_LENGTH_MAX], each.at, each.detail)


def _array(values: Iterable[int | UUID | None]) -> str:
    """Write numbers or ids as PostgreSQL reads an array: a third faster than the driver's way."""
    return "{" + ",".join("null" if value is None else str(value) for value in values) + "}"


def _refuse_other_content(
    cursor: Any, known_sql: str, sent: dict[int, tuple[Any, ...]], host_id: UUID, boot_id: UUID
) -> None:
    cursor.execute(known_sql, [host_id, boot_id, list(sent)])
    for known in cursor.fetchall():
        if tuple(known) != sent[known[0]]:
            raise SampleConflict(boot_id=boot_id, seq=known[0])


def _refuse_taken(
    cursor: Any, known_sql: str, seqs: list[int], host_id: UUID, boot_id: UUID
) -> None:
    """Refuse numbers that the other kind of sample has: they count up over both together."""
    cursor.execute(known_sql, [host_id, boot_id, seqs])
    taken = cursor.fetchone()
    if taken is not None:
        raise SampleConflict(boot_id=boot_id, seq=taken[0])
