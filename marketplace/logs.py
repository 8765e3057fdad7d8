"""Logs of leased work from their first byte to the day they are forgotten.

A log is open while its host may send more: files that grow (`storage.logs`). When all of it is
there it becomes a blob in storage; that of a host that never said where it ends, a day after its
lease is over. `LogRow` says where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from uuid import UUID

import structlog
from django.conf import settings

from marketplace.models.leases import LeaseRow
from marketplace.models.logs import LogRow
from marketplace.storage.closed_logs import ClosedLog, compressed
from marketplace.storage.logs import LogKey, OpenLogs, dropped_bytes
from marketplace.storage.port import BlobKey, Storage, StorageAway, StorageFull

FOLDER = "work-logs"
RESTS = timedelta(seconds=5)
"""A log that is complete is put away so long after its last byte."""
REST_AWAITED = timedelta(days=1)
"""So long after a lease is over what is missing of its log may still come."""
MISSED = timedelta(seconds=60)
"""So long after a lease is over who follows its log waits for the rest."""
NEVER_BEGUN = timedelta(seconds=15)
"""So long after a lease is over who follows a log waits for its first byte."""
ASKED_EVERY = timedelta(seconds=2)
FORGOTTEN_MAX = 500

log = structlog.get_logger()


@cache
def default_logs() -> OpenLogs:
    """Return the open logs of this installation."""
    return OpenLogs(settings.HOME / FOLDER)


def begin_log(logs: OpenLogs, key: LogKey, tenant_id: UUID, *, now: datetime) -> bool:
    """Begin a log that has nothing yet; return False for one that is put away already."""
    row, _ = LogRow.objects.get_or_create(
        lease_id=key.lease_id,
        host_id=key.host_id,
        attempt=key.attempt,
        stream=key.stream,
        defaults={"tenant_id": tenant_id, "first_at": now},
    )
    if row.closed_at is not None:
        return False
    logs.begin(key)
    return True


def close_and_forget(storage: Storage, logs: OpenLogs, *, kept: timedelta, now: datetime) -> int:
    """Put away logs that are over, forget those whose time is; return how many."""
    return close_logs(storage, logs, kept=kept, now=now) + forget_logs(storage, now=now)


def close_logs(storage: Storage, logs: OpenLogs, *, kept: timedelta, now: datetime) -> int:
    """Make a blob of each log that is over; return of how many."""
    closed = 0
    for key in list(logs.known()):
        row = _row(key)
        try:
            if row is None or row.closed_at is not None:
                # Nobody knows whose it is, or a kill between two steps left it.
                if row is not None or _silent(logs, key, now) > kept:
                    logs.remove(key)
                continue
            if not _is_over(logs, key, now):
                continue
            _close(storage, logs, key, row, kept=kept, now=now)
        except (StorageAway, StorageFull, FileNotFoundError) as trouble:
            log.warning("log.not-put-away", lease=str(key.lease_id), error=repr(trouble))
            continue
        closed += 1
    return closed


def _is_over(logs: OpenLogs, key: LogKey, now: datetime) -> bool:
    silent = _silent(logs, key, now)
    final, size = logs.final_size(key), logs.size(key)
    if final is not None and size is not None and size >= final:
        return silent > RESTS
    ended_at = _ended_at(key.lease_id)
    return silent > REST_AWAITED and ended_at is not None and now - ended_at > REST_AWAITED


def _silent(logs: OpenLogs, key: LogKey, now: datetime) -> timedelta:
    return now - datetime.fromtimestamp(logs.written_at(key), UTC)


def _close(
    storage: Storage,
    logs: OpenLogs,
    key: LogKey,
    row: LogRow,
    *,
    kept: timedelta,
    now: datetime,
) -> None:
    """Each step may be the last: what was done is done again, and nothing is there twice."""
    logs.close(key)
    parts, final = logs.parts(key), logs.final_size(key)
    last = logs.written_at(key)
    blob = compressed(logs, key, parts)
    name = sha256(blob).hexdigest()
    storage.write(BlobKey(row.tenant_id, name), blob)
    LogRow.objects.filter(id=row.id).update(
        size_bytes=parts[-1].end,
        dropped_bytes=dropped_bytes(parts),
        is_complete=final is not None and parts[-1].end >= final,
        last_at=datetime.fromtimestamp(last, UTC),
        closed_at=now,
        sha256=name,
        kept_until=now + kept,
    )
    logs.remove(key)


def forget_logs(storage: Storage, *, now: datetime) -> int:
    """Remove logs that have been kept as long as was said; return how many."""
    rows = list(LogRow.objects.filter(kept_until__lt=now).order_by("kept_until")[:FORGOTTEN_MAX])
    if rows:
        storage.delete([BlobKey(row.tenant_id, row.sha256) for row in rows])
        LogRow.objects.filter(id__in=[row.id for row in rows]).delete()
    return len(rows)


@dataclass(frozen=True, slots=True)
class Figures:
    """What is known of a log. ended: nothing more comes; complete: and nothing is missing."""

    size: int
    dropped: int
    ended: bool
    complete: bool


class Reader:
    """Reads one log wherever it is, also while it moves from files to storage. Not for threads
    at the same time.

    Raises: StorageAway.
    """

    def __init__(self, storage: Storage, logs: OpenLogs, key: LogKey) -> None:
        self._storage, self._logs, self.key = storage, logs, key
        self._closed: ClosedLog | None = None
        self._row: LogRow | None = None
        self._asked_at: datetime | None = None
        self._lease_ended_at: datetime | None = None

    def read(self, offset: int, most: int) -> tuple[int, bytes]:
        """Return where bytes begin, later than asked where some are dropped, and those bytes."""
        source = self._logs if self._closed is None else self._closed
        if isinstance(source, ClosedLog):
            return source.read(offset, most)
        return source.read(self.key, offset, most)

    def figures(self, *, now: datetime) -> Figures:
        """Look how far the log is, and whether more is to come. Asks the database only where the
        files do not say."""
        if self._closed is None:
            parts, final = self._logs.parts(self.key), self._logs.final_size(self.key)
            if parts and final is not None and parts[-1].end >= final:
                return Figures(parts[-1].end, dropped_bytes(parts), ended=True, complete=True)
            if parts:
                ended = self._is_over_since(MISSED, now)
                return Figures(parts[-1].end, dropped_bytes(parts), ended=ended, complete=False)
            self._open_closed()
        if self._closed is None or self._row is None:
            return Figures(0, 0, ended=self._is_over_since(NEVER_BEGUN, now), complete=False)
        row = self._row
        return Figures(row.size_bytes, row.dropped_bytes, ended=True, complete=row.is_complete)

    def _is_over_since(self, span: timedelta, now: datetime) -> bool:
        """Tell if the lease has been over for a while; as it was told within ASKED_EVERY."""
        if self._asked_at is None or now - self._asked_at > ASKED_EVERY:
            self._asked_at, self._lease_ended_at = now, _ended_at(self.key.lease_id)
        return self._lease_ended_at is not None and now - self._lease_ended_at > span

    def _open_closed(self) -> None:
        row = _row(self.key)
        if row is None or row.closed_at is None:
            return
        blob = self._storage.read(BlobKey(row.tenant_id, row.sha256))
        if blob is None:
            raise StorageAway()
        self._row, self._closed = row, ClosedLog(blob)


def logs_of(logs: OpenLogs, lease_id: UUID) -> Sequence[LogRow]:
    """Return the logs of a lease, first those that began first, with their figures as of now."""
    rows = list(LogRow.objects.filter(lease_id=lease_id).order_by("first_at", "id"))
    for row in rows:
        key = LogKey(row.lease_id, row.host_id, row.attempt, row.stream)
        if row.closed_at is None and (parts := logs.parts(key)):
            final = logs.final_size(key)
            row.size_bytes, row.dropped_bytes = parts[-1].end, dropped_bytes(parts)
            row.is_complete = final is not None and row.size_bytes >= final
            row.last_at = datetime.fromtimestamp(logs.written_at(key), UTC)
    return rows


def _row(key: LogKey) -> LogRow | None:
    return LogRow.objects.filter(
        lease_id=key.lease_id, host_id=key.host_id, attempt=key.attempt, stream=key.stream
    ).first()


def _ended_at(lease_id: UUID) -> datetime | None:
    """Return when a lease was closed; None while it lives."""
    return LeaseRow.objects.filter(lease_id=lease_id).values_list("closed_at", flat=True).first()
