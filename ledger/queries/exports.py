"""Exports that were asked for, as one actor may see them; how accounts are called."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet

from ledger.access import Actor, visible
from ledger.domain.export_runs import ExportUnknown
from ledger.domain.gl_mapping import GlMapping
from ledger.domain.periods import Period
from ledger.eventstore.port import Position
from ledger.models import (
    AccountRow,
    ExportDeliveryRow,
    ExportPlanRow,
    ExportProgress,
    ExportRunRow,
    GlMappingRow,
    JournalEntryRow,
    PostingRow,
    StorageChargeRow,
    UsageChargeRow,
)

PERCENT_MAX = 99
"""What is still being made is never all made."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an export is. percent: of its rows; 0 where nobody began."""

    rows: int
    bytes: int
    percent: int


def export_runs(actor: Actor) -> QuerySet[ExportRunRow]:
    """Return what was asked for: one of all accounts is for who sees all."""
    rows = visible(actor, ExportRunRow)
    return rows if actor.sees_all else rows.filter(everything=False)


def export_run(actor: Actor, export_id: UUID) -> ExportRunRow:
    """Return one export.

    Raises: ExportUnknown.
    """
    row = export_runs(actor).filter(pk=export_id).first()
    if row is None:
        raise ExportUnknown(export_id=export_id)
    return row


def deliveries(*, limit: int) -> list[ExportDeliveryRow]:
    """Return where exports of closed months were brought, the newest month first."""
    return list(ExportDeliveryRow.objects.order_by("-period")[:limit])


def export_plans() -> list[ExportPlanRow]:
    """Return what is brought by itself, the oldest plan first."""
    return list(ExportPlanRow.objects.filter(ended_at=None).order_by("at", "plan_id"))


def progress_of(export_ids: list[UUID]) -> dict[UUID, Progress]:
    """Return how far exports are that are being made."""
    found = ExportProgress.objects.filter(export_id__in=export_ids)
    return {
        row.export_id: Progress(
            row.rows, row.bytes, min(PERCENT_MAX, 100 * row.rows // max(1, row.rows_expected))
        )
        for row in found
    }


def rows_expected(period: Period, *, of_entries: bool) -> int:
    """Return how many rows an export of all accounts will have, about."""
    month = str(period)
    if of_entries:
        return JournalEntryRow.objects.filter(period=month).count()
    return (
        UsageChargeRow.objects.filter(period=month).count()
        + StorageChargeRow.objects.filter(period=month).count()
        + PostingRow.objects.filter(period=month, kind__in=("funds", "compensation")).count()
    )


def entries_between(
    actor: Actor, period: Period, *, after: int, until: int
) -> QuerySet[JournalEntryRow, UUID]:
    """Return the ids of entries of a month that were recorded after one event and up to another."""
    rows = JournalEntryRow.objects.filter(
        period=str(period), position__gt=after, position__lte=until
    )
    if not actor.sees_all:
        own = list(visible(actor, AccountRow).values_list("account_id", flat=True))
        rows = rows.filter(account_ids__overlap=own)
    return rows.order_by("position").values_list("entry_id", flat=True)


def gl_mapping(position: Position) -> GlMapping:
    """Return how the general ledger calls our accounts, as it was set at a position."""
    row = GlMappingRow.objects.filter(position__lte=position).order_by("-position").first()
    if row is None:
        return GlMapping()
    return GlMapping(row.accounts, row.company, row.document_type)
