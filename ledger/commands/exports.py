"""What may be asked about exports: to make one, to bring it, how accounts are called."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from ledger.domain.export_deliveries import ExportDelivery
from ledger.domain.export_events import ExportAsked
from ledger.domain.export_runs import ExportRun, ask, fail, finish
from ledger.domain.gl_mapping import GlMapping
from ledger.domain.ids import TenantId, UserId
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.periods import Period
from ledger.eventstore.port import EventStore, Meta, Position, record


def ask_export(
    store: EventStore,
    *,
    export_id: UUID,
    tenant_id: TenantId,
    everything: bool,
    name: str,
    period: Period,
    position: Position,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Ask that a month be written as a file, by whoever makes them.

    Raises: ExportAskedOtherwise.
    """
    wanted = ExportAsked(
        export_id=export_id,
        tenant_id=tenant_id,
        everything=everything,
        format=name,
        period=str(period),
        position=position,
        asked_by=user_id,
        at=now,
    )
    return record(store, ExportRun, export_id, lambda known: ask(known, wanted), by=by)


def finish_export(
    store: EventStore,
    export_id: UUID,
    *,
    version: str,
    rows: int,
    sums: Sequence[tuple[str, int]],
    size: int,
    sha256: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Note what the file is that was written.

    Raises: ExportUnknown.
    """
    return record(
        store,
        ExportRun,
        export_id,
        lambda known: finish(
            known,
            export_id,
            version=version,
            rows=rows,
            sums=sums,
            size=size,
            sha256=sha256,
            now=now,
        ),
        by=by,
    )


def fail_export(
    store: EventStore, export_id: UUID, *, words: str, by: Meta, now: datetime
) -> Position:
    """Note that a file could not be written.

    Raises: ExportUnknown.
    """
    return record(
        store,
        ExportRun,
        export_id,
        lambda known: fail(known, export_id, words=words, now=now),
        by=by,
    )


def note_delivery(
    store: EventStore,
    period: Period,
    *,
    position: int,
    target: str,
    formats: Sequence[str],
    by: Meta,
    now: datetime,
) -> Position:
    """Note that a closed month's exports are at the target, once for each closing and target."""
    return record(
        store,
        ExportDelivery,
        period,
        lambda known: (known or ExportDelivery()).deliver(
            str(period), position=position, target=target, formats=formats, now=now
        ),
        by=by,
    )


def note_failed_delivery(
    store: EventStore,
    period: Period,
    *,
    position: int,
    target: str,
    words: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Note why a closed month's exports are not there, once for each reason."""
    return record(
        store,
        ExportDelivery,
        period,
        lambda known: (known or ExportDelivery()).fail(
            str(period), position=position, target=target, words=words, now=now
        ),
        by=by,
    )


def set_gl_mapping(
    store: EventStore, mapping: GlMapping, *, user_id: UserId, by: Meta, now: datetime
) -> Position:
    """Say how the general ledger calls our kinds of accounts, from the next export on.

    Raises: AccountKindUnknown, NameMissing, TextUnreadable.
    """
    return record(
        store,
        GlMapping,
        PLATFORM_ID,
        lambda known: (known or GlMapping()).change(mapping, by=user_id, now=now),
        by=by,
    )
