"""How the facts of use become sums by day: one row for each lease, GPU and UTC day."""

from __future__ import annotations

from datetime import UTC

from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.rows import Rows
from marketplace.domain.facts.events import LeaseScheduled
from metering.domain.correcting import NOT_CHARGED
from metering.domain.events import GpuUse, UsageCorrected, UsageWindowClosed
from metering.models import DayRow, SummedLease


def project_days(recorded: Recorded, rows: Rows) -> None:
    """Keep DayRow equal to the windows and corrections of meters."""
    match recorded.event:
        case LeaseScheduled() as lease:
            rows.add(SummedLease(lease_id=lease.lease_id, tenant_id=lease.tenant_id))
        case UsageWindowClosed() | UsageCorrected() as used:
            if isinstance(used, UsageCorrected) and used.reason in NOT_CHARGED:
                return
            # A window lies within an hour, and so within a day.
            for gpu in used.gpus:
                _add(used, gpu, rows)


def _add(used: UsageWindowClosed | UsageCorrected, gpu: GpuUse, rows: Rows) -> None:
    day = used.window.starts_at.astimezone(UTC).date()
    key = f"{used.lease_id}/{gpu.gpu_uuid}/{day.isoformat()}"
    if rows.find(DayRow, key) is None:
        rows.make(
            DayRow,
            key=key,
            lease_id=used.lease_id,
            tenant_id=rows.get(SummedLease, used.lease_id).tenant_id,
            owner_id=gpu.owner_id,
            host_id=gpu.host_id,
            gpu_uuid=gpu.gpu_uuid,
            day=day,
            granted_ms=0,
            occupied_ms=0,
            busy_ms=0,
            energy_mj=0,
            gap_ms=0,
        )
    row = rows.change(DayRow, key)
    row.granted_ms += gpu.granted_ms
    row.gap_ms += gpu.gap_ms
    row.occupied_ms = _plus(row.occupied_ms, gpu.occupied_ms)
    row.busy_ms = _plus(row.busy_ms, gpu.busy_ms)
    row.energy_mj = _plus(row.energy_mj, gpu.energy_mj)


def _plus(total: int | None, part: int | None) -> int | None:
    return None if total is None or part is None else total + part


DAYS = Projection(
    name="metering.days",
    project=project_days,
    tables=(SummedLease, DayRow),
    is_bulk=True,
    on=names_of(LeaseScheduled, UsageWindowClosed, UsageCorrected),
)
