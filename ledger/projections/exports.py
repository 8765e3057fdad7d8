"""Rows of exports that are made, of where they were brought, and of how accounts are called."""

from __future__ import annotations

from typing import get_args

from ledger.domain.export_deliveries import DeliveryEvent, ExportsDelivered, ExportsNotDelivered
from ledger.domain.export_events import ExportAsked, ExportFailed, ExportMade
from ledger.domain.export_plans import (
    ExportPlanEnded,
    ExportsPlanned,
    PlanEvent,
    PlannedExportsBrought,
    PlannedExportsDue,
    PlannedExportsNotBrought,
)
from ledger.domain.gl_mapping import GlMappingSet
from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.models import ExportDeliveryRow, ExportPlanRow, ExportRunRow, GlMappingRow
from ledger.rows import Rows


def project_exports(recorded: Recorded, rows: Rows) -> None:
    """Keep the rows equal to the streams."""
    match recorded.event:
        case ExportAsked() as asked:
            rows.add(
                ExportRunRow(
                    export_id=asked.export_id,
                    tenant_id=asked.tenant_id,
                    everything=asked.everything,
                    format=asked.format,
                    period=asked.period,
                    position=asked.position,
                    state="asked",
                    asked_by=asked.asked_by,
                    asked_at=asked.at,
                )
            )
        case ExportMade() as made:
            rows.change(
                ExportRunRow,
                made.export_id,
                state="made",
                version=made.version,
                rows=made.rows,
                sums={each.currency: each.nanos for each in made.sums},
                bytes=made.bytes,
                sha256=made.sha256,
                ended_at=made.at,
            )
        case ExportFailed() as failed:
            rows.change(
                ExportRunRow,
                failed.export_id,
                state="failed",
                words=failed.words,
                ended_at=failed.at,
            )
        case ExportsDelivered() | ExportsNotDelivered() as event:
            _deliver(event, rows)
        case event if isinstance(event, PlanEvent):
            _plan(event, rows)
        case GlMappingSet() as mapping:
            rows.add(
                GlMappingRow(
                    position=recorded.position,
                    accounts=dict(mapping.accounts),
                    company=mapping.company,
                    document_type=mapping.document_type,
                    by_user=mapping.by_user,
                    at=mapping.at,
                )
            )


def _deliver(event: DeliveryEvent, rows: Rows) -> None:
    if rows.find(ExportDeliveryRow, event.period) is None:
        rows.add(ExportDeliveryRow(period=event.period, position=0, target=""))
    match event:
        case ExportsDelivered():
            rows.change(
                ExportDeliveryRow,
                event.period,
                position=event.position,
                target=event.target,
                delivered_at=event.at,
                words="",
                failed_at=None,
            )
        case ExportsNotDelivered():
            rows.change(ExportDeliveryRow, event.period, words=event.words, failed_at=event.at)


def _plan(event: PlanEvent, rows: Rows) -> None:
    match event:
        case ExportsPlanned():
            rows.add(
                ExportPlanRow(
                    plan_id=event.plan_id,
                    every=event.every,
                    formats=list(event.formats),
                    folder=event.folder,
                    by_user=event.by_user,
                    at=event.at,
                )
            )
        case ExportPlanEnded():
            rows.change(ExportPlanRow, event.plan_id, ended_at=event.at)
        case PlannedExportsDue():
            rows.change(
                ExportPlanRow,
                event.plan_id,
                due=event.due,
                period=event.period,
                position=event.position,
                brought_at=None,
                words="",
                failed_at=None,
            )
        case PlannedExportsBrought():
            row = rows.get(ExportPlanRow, event.plan_id)
            rows.change(
                ExportPlanRow,
                event.plan_id,
                brought={**row.brought, row.period: row.position},
                brought_at=event.at,
                target=event.target,
                words="",
                failed_at=None,
            )
        case PlannedExportsNotBrought():
            rows.change(
                ExportPlanRow,
                event.plan_id,
                target=event.target,
                words=event.words,
                failed_at=event.at,
            )


EXPORTS = Projection(
    name="ledger.exports",
    project=project_exports,
    tables=(ExportRunRow, ExportDeliveryRow, ExportPlanRow, GlMappingRow),
    on=names_of(
        ExportAsked,
        ExportMade,
        ExportFailed,
        ExportsDelivered,
        ExportsNotDelivered,
        GlMappingSet,
        *get_args(PlanEvent),
    ),
)
