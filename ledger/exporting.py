"""Exports that are made while nobody waits for an answer, and closed months brought to finance.

A file is written under a draft name, synced and renamed, so a name that is there is a whole file.
It is only kept to be sent quickly: an export is made of what was recorded up to a position, so a
machine that has no such file writes the same bytes again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import structlog

from ledger import exports
from ledger.access import Actor
from ledger.closing import EVERYTHING
from ledger.commands.exports import fail_export, finish_export
from ledger.domain.ids import TenantId
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.periods import read_period
from ledger.eventstore.port import EventStore, Meta, Position
from ledger.export_failures import why_not_written
from ledger.following import AWAY
from ledger.models import ExportProgress, ExportRunRow
from ledger.queries.exports import rows_expected

BY = Meta(actor="loop:exports")
TOLD_SECONDS = 0.5
"""Between two notes of how far an export is."""
KEPT = timedelta(days=7)
"""How long a file is kept; after that it is written again for whoever wants it."""
READ_AT_ONCE = 65_536
MADE_AT_ONCE = 4

log = structlog.get_logger()

_folder: Path | None = None


def keep_in(folder: Path) -> None:
    """Say where the files of exports are kept."""
    global _folder
    _folder = folder


def kept_in() -> Path:
    """Return where files of exports are kept."""
    assert _folder is not None, "config.apps says where"
    return _folder


def file_of(folder: Path, row: ExportRunRow) -> Path:
    """Return where an export's file is kept."""
    return folder / f"{row.export_id}.{exports.format_named(row.format).suffix}"


def scope_of(row: ExportRunRow) -> Actor:
    """Return as whom an export is written: with the accounts of its tenant, or with all."""
    if row.everything:
        return EVERYTHING
    tenant_id = TenantId(row.tenant_id)
    return Actor(
        tenant_id=tenant_id,
        roles=frozenset({"finance"}),
        is_platform=tenant_id == PLATFORM_ID,
    )


def make_exports(store: EventStore, folder: Path, *, now: datetime) -> int:
    """Write what was asked for, the oldest first; return how many files that were.

    One that fails is told and holds up no other. Killed on the way, it is written anew.
    """
    made = 0
    asked = ExportRunRow.objects.filter(state="asked").order_by("asked_at", "export_id")
    for row in asked[:MADE_AT_ONCE]:
        try:
            _make(store, folder, row, now=now)
        except AWAY:
            raise
        except Exception as failed:  # told to who asked and logged: other exports are made
            log.exception("export.failed", export_id=str(row.export_id))
            words = why_not_written(failed)
            fail_export(store, row.export_id, words=words, by=BY, now=now)
        made += 1
    return made


def _make(store: EventStore, folder: Path, row: ExportRunRow, *, now: datetime) -> None:
    period, position = read_period(row.period), Position(row.position)
    expected = rows_expected(period, of_entries=not row.format.startswith(("focus", "xlsx")))
    noted = _Noted(row.export_id, expected)
    folder.mkdir(parents=True, exist_ok=True)
    target = file_of(folder, row)
    draft = target.with_name(f".{target.name}.part")
    with draft.open("wb") as file:
        said = exports.manifest(
            scope_of(row),
            row.format,
            period=period,
            position=position,
            write=file.write,
            told=noted.tell,
        )
        file.flush()
        os.fsync(file.fileno())
    draft.rename(target)
    finish_export(
        store,
        row.export_id,
        version=said.version,
        rows=said.rows,
        sums=sorted(said.sums_nanos.items()),
        size=said.bytes,
        sha256=said.sha256,
        by=BY,
        now=now,
    )


class _Noted:
    """Notes how far an export is, not more often than somebody looks."""

    def __init__(self, export_id: UUID, expected: int) -> None:
        self._export_id, self._expected = export_id, expected
        self._last = 0.0
        self.tell(0, 0)

    def tell(self, rows: int, size: int) -> None:
        """Note it, if the last time is long enough ago."""
        if time.monotonic() - self._last < TOLD_SECONDS:
            return
        self._last = time.monotonic()
        ExportProgress.objects.update_or_create(
            export_id=self._export_id,
            defaults={"rows": rows, "rows_expected": self._expected, "bytes": size},
        )


def bytes_of(folder: Path, row: ExportRunRow) -> Iterator[bytes]:
    """Yield a made export's bytes: from its file, or written again."""
    file = None
    with suppress(OSError):
        file = file_of(folder, row).open("rb")
    if file is None:
        yield from exports.export(
            scope_of(row),
            row.format,
            period=read_period(row.period),
            position=Position(row.position),
        )
        return
    with file:
        while piece := file.read(READ_AT_ONCE):
            yield piece


def drop_old_exports(folder: Path, *, now: datetime) -> int:
    """Remove files that were kept long enough, and notes of exports that are over."""
    gone = 0
    for path in folder.glob("*") if folder.is_dir() else ():
        if now.timestamp() - path.stat().st_mtime > KEPT.total_seconds():
            path.unlink(missing_ok=True)
            gone += 1
    over = ExportRunRow.objects.exclude(state="asked").values("export_id")
    ExportProgress.objects.filter(export_id__in=over).delete()
    return gone
