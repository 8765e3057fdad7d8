"""How far the use of a lease is known: what the closing of windows and doctor look at."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from ledger.domain.ids import LeaseId
from metering.domain.closing import GpuProgress, LeaseSpan
from metering.domain.instants import MILLI, millis_down
from metering.models import AgentContact, CorrectionRow, MeterRow, UsageRow, Watermark, WorkReport


@dataclass(frozen=True, slots=True)
class LeaseGpu:
    """One GPU of a lease and what is known of it."""

    host_id: UUID
    owner_id: UUID
    gpu_uuid: str
    progress: GpuProgress


def span_of(row: MeterRow) -> LeaseSpan:
    """Return a lease's span as its meter sees it."""
    return LeaseSpan(
        starts_ms=row.starts_ms,
        ends_ms=row.ends_ms,
        closed_ms=row.over_ms,
        ever_starting=row.ever_starting,
    )


def progress_of(row: MeterRow, *, now: datetime) -> list[LeaseGpu]:
    """Return every GPU of a lease with what its host has told, by host and GPU."""
    marks = {
        (mark.host_id, mark.gpu_uuid): mark.seen_ms
        for mark in Watermark.objects.filter(lease_id=row.lease_id)
    }
    reports: dict[tuple[UUID, bool], WorkReport] = {}
    for report in WorkReport.objects.filter(lease_id=row.lease_id):
        reports[report.host_id, report.what == "started"] = report
    host_ids = {UUID(share["host_id"]) for share in row.shares}
    contacts = AgentContact.objects.filter(host_id__in=host_ids)
    seen_at = {contact.host_id: contact.last_seen_at for contact in contacts}
    found = []
    for share in row.shares:
        host_id = UUID(share["host_id"])
        started, ended = reports.get((host_id, True)), reports.get((host_id, False))
        heard_for_ms = 0
        if ended is not None and host_id in seen_at:
            heard_for_ms = max(0, (seen_at[host_id] - ended.received_at) // MILLI)
        found += [
            LeaseGpu(
                host_id,
                UUID(share["owner_id"]),
                gpu_uuid,
                GpuProgress(
                    started_ms=None if started is None else millis_down(started.at),
                    stopped_ms=None if ended is None else millis_down(ended.at),
                    watermark_ms=marks.get((host_id, gpu_uuid)),
                    heard_for_ms=heard_for_ms,
                ),
            )
            for gpu_uuid in share["gpu_uuids"]
        ]
    return sorted(found, key=lambda each: (each.host_id, each.gpu_uuid))


def lagging_meters(*, now: datetime, older_than: timedelta) -> list[LeaseId]:
    """Return leases of whose use nothing was rated for longer than `older_than`, oldest first.

    They may use for nothing: a host is silent, or the loop that closes windows stands still.
    """
    limit_ms = millis_down(now - older_than)
    rows = MeterRow.objects.filter(state="open", closed_through_ms__lt=limit_ms)
    rows = rows.filter(starts_ms__lt=limit_ms).order_by("closed_through_ms", "lease_id")
    return [LeaseId(key) for key in rows.values_list("lease_id", flat=True)]


def uncharged_windows(*, now: datetime, older_than: timedelta) -> int:
    """Return how many usage windows, and corrections of some, are not charged for so long."""
    before = now - older_than
    corrections = CorrectionRow.objects.filter(is_captured=False, at__lt=before)
    return (
        UsageRow.objects.filter(is_captured=False, ends_at__lt=before).count() + corrections.count()
    )
