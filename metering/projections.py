"""How the facts of use become rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, assert_never
from uuid import UUID

from ledger.domain.events import UsageCaptured
from ledger.domain.ids import HostId, LeaseId, TenantId
from ledger.domain.span import Window
from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.rows import Rows, made
from listings.domain.divisions import weighed
from marketplace.domain.facts.events import (
    BidPlaced,
    CutWithdrawn,
    LeaseClosed,
    LeaseEnding,
    LeaseExtended,
    LeaseInterrupted,
    LeaseMoved,
    LeaseRepriced,
    LeaseScheduled,
    LeaseShortened,
    LeaseStarting,
    ReclaimRequested,
)
from metering.days import DAYS
from metering.domain.correcting import NOT_CHARGED
from metering.domain.events import (
    GpuGap,
    GpuUse,
    MeterClosed,
    MeterGapFound,
    MeterOpened,
    UsageCorrected,
    UsageWindowClosed,
)
from metering.domain.idle_events import (
    IdleLeaseKept,
    IdleLeaseReleased,
    IdleRuleSet,
    IdleTerms,
    IdleWarned,
    IdleWarningLifted,
    RuleOf,
)
from metering.domain.instants import millis_down, millis_up
from metering.models import (
    CorrectionRow,
    GapRow,
    HeatRow,
    IdleRow,
    IdleRuleRow,
    MeterRow,
    UsageRow,
)


def project_meters(recorded: Recorded, rows: Rows) -> None:
    """Keep MeterRow, UsageRow and GapRow equal to the lease, meter and account streams."""
    match recorded.event:
        case LeaseScheduled() as lease:
            rows.add(_meter_of(lease))
        case LeaseStarting() as starting:
            rows.change(MeterRow, starting.lease_id, ever_starting=True)
        case LeaseExtended() as extended:
            rows.change(MeterRow, extended.lease_id, ends_ms=millis_down(extended.ends_at))
        case LeaseRepriced() as repriced:
            row = rows.get(MeterRow, repriced.lease_id)
            nanos = repriced.price.nanos_per_gpu_hour
            later = {"since_ms": millis_down(repriced.since), "nanos": nanos}
            rows.change(MeterRow, repriced.lease_id, later_prices=[*row.later_prices, later])
        case (
            LeaseShortened()
            | ReclaimRequested()
            | LeaseInterrupted()
            | LeaseMoved()
            | LeaseEnding() as cut
        ):
            _cut(cut, rows)
        case CutWithdrawn() as withdrawn:
            ends_at = min(withdrawn.ends_at, withdrawn.stop_at or withdrawn.ends_at)
            rows.change(MeterRow, withdrawn.lease_id, ends_ms=millis_down(ends_at))
        case LeaseClosed() as over:
            ended_at = over.at if over.ended_at is None else over.ended_at
            rows.change(MeterRow, over.lease_id, over_ms=millis_down(ended_at))
        case MeterOpened() as opened:
            rows.change(MeterRow, opened.lease_id, state="open")
        case UsageWindowClosed() as closed:
            _add_usage(closed, rows)
        case UsageCorrected() as corrected:
            _add_correction(corrected, rows)
        case MeterGapFound() as gap:
            _add_gap(gap.lease_id, gap.gpu_uuid, gap.window, rows)
        case MeterClosed() as done:
            rows.change(MeterRow, done.lease_id, state="closed")
        case UsageCaptured() as captured:
            _note_capture(captured, rows)


def _cut(
    cut: LeaseShortened | ReclaimRequested | LeaseInterrupted | LeaseMoved | LeaseEnding, rows: Rows
) -> None:
    """Note that the right to the GPUs ends sooner: use after it is not the lease's."""
    match cut:
        case LeaseShortened():
            ends_at = cut.ends_at
        case ReclaimRequested() | LeaseInterrupted() | LeaseMoved():
            ends_at = cut.stop_at
        case LeaseEnding():
            ends_at = cut.at
        case _:
            assert_never(cut)
    row = rows.get(MeterRow, cut.lease_id)
    rows.change(MeterRow, cut.lease_id, ends_ms=min(row.ends_ms, millis_down(ends_at)))


def _meter_of(lease: LeaseScheduled) -> MeterRow:
    starts_ms = millis_up(lease.window.starts_at)
    return made(
        MeterRow,
        lease_id=lease.lease_id,
        tenant_id=lease.tenant_id,
        owner_ids=sorted({share.owner_id for share in lease.shares}),
        shares=[
            {
                "host_id": str(share.host_id),
                "owner_id": str(share.owner_id),
                "gpu_uuids": list(share.gpu_uuids),
            }
            for share in lease.shares
        ],
        gpus=sum(len(share.gpu_uuids) for share in lease.shares),
        price_nanos_per_gpu_hour=lease.price.nanos_per_gpu_hour,
        currency=lease.price.currency,
        starts_ms=starts_ms,
        ends_ms=millis_down(lease.window.ends_at),
        over_ms=None,
        ever_starting=False,
        closed_through_ms=starts_ms,
        granted_ms=0,
        captured_nanos=0,
        state="due",
    )


def _add_usage(closed: UsageWindowClosed, rows: Rows) -> None:
    meter = rows.get(MeterRow, closed.lease_id)
    rows.change(
        MeterRow,
        closed.lease_id,
        closed_through_ms=millis_down(closed.window.ends_at),
        granted_ms=meter.granted_ms + sum(gpu.granted_ms for gpu in closed.gpus),
    )
    for owner_id in sorted({gpu.owner_id for gpu in closed.gpus}):
        mine = [gpu for gpu in closed.gpus if gpu.owner_id == owner_id]
        rows.make(
            UsageRow,
            key=_usage_key(closed.lease_id, closed.window.starts_at, owner_id),
            lease_id=closed.lease_id,
            tenant_id=meter.tenant_id,
            owner_id=owner_id,
            starts_at=closed.window.starts_at,
            ends_at=closed.window.ends_at,
            gpus=[_as_json(gpu) for gpu in mine],
            granted_ms=sum(gpu.granted_ms for gpu in mine),
            occupied_ms=_sum_known(gpu.occupied_ms for gpu in mine),
            busy_ms=_sum_known(gpu.busy_ms for gpu in mine),
            energy_mj=_sum_known(gpu.energy_mj for gpu in mine),
            gap_ms=sum(gpu.gap_ms for gpu in mine),
            # Nothing is charged for a window without use, so nothing is left to charge.
            is_captured=not any(gpu.granted_ms for gpu in closed.gpus),
        )


def _add_correction(corrected: UsageCorrected, rows: Rows) -> None:
    meter = rows.get(MeterRow, corrected.lease_id)
    charged = corrected.reason not in NOT_CHARGED
    if charged:
        granted_ms = meter.granted_ms + sum(gpu.granted_ms for gpu in corrected.gpus)
        rows.change(MeterRow, corrected.lease_id, granted_ms=granted_ms)
    for owner_id in sorted({gpu.owner_id for gpu in corrected.gpus}):
        mine = [gpu for gpu in corrected.gpus if gpu.owner_id == owner_id]
        rows.add(
            CorrectionRow(
                key=_correction_key(corrected.lease_id, corrected.number, owner_id),
                lease_id=corrected.lease_id,
                tenant_id=meter.tenant_id,
                owner_id=owner_id,
                number=corrected.number,
                reason=corrected.reason,
                starts_at=corrected.window.starts_at,
                ends_at=corrected.window.ends_at,
                granted_ms=sum(gpu.granted_ms for gpu in mine),
                occupied_ms=_sum_known(gpu.occupied_ms for gpu in mine),
                busy_ms=_sum_known(gpu.busy_ms for gpu in mine),
                energy_mj=_sum_known(gpu.energy_mj for gpu in mine),
                gap_ms=sum(gpu.gap_ms for gpu in mine),
                is_captured=not charged,
                at=corrected.at,
            )
        )
    if corrected.gaps is not None:
        _replace_gaps(corrected, corrected.gaps, rows)


def _replace_gaps(corrected: UsageCorrected, gaps: Sequence[GpuGap], rows: Rows) -> None:
    """Show what is still without proof, in place of what was so before the correction."""
    window = corrected.window
    for gpu in corrected.gpus:
        for row in rows.select(GapRow, lease_id=corrected.lease_id, gpu_uuid=gpu.gpu_uuid):
            if window.covers(Window(row.starts_at, row.ends_at)):
                rows.remove(GapRow, row.key)
    for gap in gaps:
        _add_gap(corrected.lease_id, gap.gpu_uuid, gap.window, rows)


def _correction_key(lease_id: object, number: int, owner_id: object) -> str:
    return f"{lease_id}/{number}/{owner_id}"


def _add_gap(lease_id: LeaseId, gpu_uuid: str, window: Window, rows: Rows) -> None:
    meter = rows.get(MeterRow, lease_id)
    owners = [each["owner_id"] for each in meter.shares if gpu_uuid in each["gpu_uuids"]]
    rows.add(
        GapRow(
            key=f"{lease_id}/{gpu_uuid}/{millis_down(window.starts_at)}",
            lease_id=lease_id,
            tenant_id=meter.tenant_id,
            owner_id=owners[0],
            gpu_uuid=gpu_uuid,
            starts_at=window.starts_at,
            ends_at=window.ends_at,
        )
    )


def _note_capture(captured: UsageCaptured, rows: Rows) -> None:
    meter = rows.find(MeterRow, captured.lease_id)
    if meter is None:
        return  # charged for something that no meter measured
    total = meter.captured_nanos + captured.charged.nanos
    rows.change(MeterRow, captured.lease_id, captured_nanos=total)
    for owner_id in meter.owner_ids:
        if captured.correction:
            key = _correction_key(captured.lease_id, captured.correction, owner_id)
            if rows.find(CorrectionRow, key) is not None:
                rows.change(CorrectionRow, key, is_captured=True)
            continue
        key = _usage_key(captured.lease_id, captured.window.starts_at, owner_id)
        if rows.find(UsageRow, key) is not None:
            rows.change(UsageRow, key, is_captured=True)


def project_heat(recorded: Recorded, rows: Rows) -> None:
    """Keep HeatRow equal to the usage windows, by host and UTC hour."""
    closed = recorded.event
    if not isinstance(closed, UsageWindowClosed | UsageCorrected):
        return
    hour = closed.window.starts_at.replace(minute=0, second=0, microsecond=0)
    for host_id, owner_id in sorted({(gpu.host_id, gpu.owner_id) for gpu in closed.gpus}):
        row = _heat_row(rows, host_id, owner_id, hour)
        for gpu in closed.gpus:
            if gpu.host_id != host_id:
                continue
            # Of a share its part of the card, so that a card's hour is never more than an hour.
            granted_ms = weighed(gpu.gpu_uuid, gpu.granted_ms)
            row.granted_ms += granted_ms
            row.gap_ms += weighed(gpu.gpu_uuid, gpu.gap_ms)
            if gpu.occupied_ms is not None:
                row.occupied_ms += weighed(gpu.gpu_uuid, gpu.occupied_ms)
                row.occupied_of_ms += granted_ms
            if gpu.busy_ms is not None:
                # What kernels of a share kept its card busy, which may be more than its part.
                row.busy_ms += min(gpu.busy_ms, granted_ms)
                row.busy_of_ms += granted_ms


def _heat_row(rows: Rows, host_id: HostId, owner_id: TenantId, hour: datetime) -> HeatRow:
    key = f"{host_id}/{millis_down(hour)}"
    if rows.find(HeatRow, key) is None:
        rows.add(
            HeatRow(
                key=key,
                host_id=host_id,
                owner_id=owner_id,
                hour=hour,
                granted_ms=0,
                occupied_ms=0,
                occupied_of_ms=0,
                busy_ms=0,
                busy_of_ms=0,
                gap_ms=0,
            )
        )
    return rows.change(HeatRow, key)


def _usage_key(lease_id: object, starts_at: datetime, owner_id: object) -> str:
    return f"{lease_id}/{millis_down(starts_at)}/{owner_id}"


def _as_json(gpu: GpuUse) -> dict[str, Any]:
    return {
        "gpu_uuid": gpu.gpu_uuid,
        "host_id": str(gpu.host_id),
        "granted_ms": gpu.granted_ms,
        "occupied_ms": gpu.occupied_ms,
        "busy_ms": gpu.busy_ms,
        "gap_ms": gpu.gap_ms,
        "energy_mj": gpu.energy_mj,
    }


def _sum_known(values: Iterable[int | None]) -> int | None:
    """Add up; unknown as soon as a part is."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def project_idle(recorded: Recorded, rows: Rows) -> None:
    """Keep IdleRuleRow and IdleRow equal to the idle-rule and idle streams."""
    match recorded.event:
        case BidPlaced() as placed:
            _bring_rule(placed, rows)
        case IdleRuleSet() as said:
            terms = None if said.terms is None else asdict(said.terms)
            if rows.find(IdleRuleRow, said.rule_id) is None:
                _add_rule(said.rule_id, said.of, said.tenant_id, terms, said.at, rows)
            else:
                rows.change(IdleRuleRow, said.rule_id, terms=terms, set_at=said.at)
        case IdleWarned() as warned:
            _need(rows, warned)
            rows.change(
                IdleRow,
                warned.lease_id,
                since=warned.since,
                warned_at=warned.at,
                release_at=warned.release_at,
            )
        case IdleWarningLifted() as lifted:
            rows.change(IdleRow, lifted.lease_id, since=None, release_at=None)
        case IdleLeaseKept() as kept:
            _need(rows, kept)
            rows.change(IdleRow, kept.lease_id, since=None, release_at=None, kept_at=kept.at)
        case IdleLeaseReleased() as released:
            rows.change(IdleRow, released.lease_id, released_at=released.at)


def _bring_rule(placed: BidPlaced, rows: Rows) -> None:
    """Note the rule that a bid was placed with; of one that follows another, what holds there."""
    seconds = placed.workload.end_when_idle_seconds
    terms = None if seconds is None else asdict(IdleTerms(after_seconds=seconds))
    before = None
    if placed.continues is not None:
        before = rows.find(IdleRuleRow, placed.continues.bid_id)
    if before is not None:
        terms = before.terms
    if before is not None or terms is not None:
        _add_rule(placed.bid_id, "bid", placed.tenant_id, terms, placed.at, rows)


def _add_rule(
    rule_id: UUID,
    of: RuleOf,
    tenant_id: TenantId,
    terms: dict[str, Any] | None,
    at: datetime,
    rows: Rows,
) -> None:
    rows.add(IdleRuleRow(rule_id=rule_id, of=of, tenant_id=tenant_id, terms=terms, set_at=at))


def _need(rows: Rows, told: IdleWarned | IdleLeaseKept) -> None:
    if rows.find(IdleRow, told.lease_id) is None:
        rows.add(IdleRow(lease_id=told.lease_id, tenant_id=told.tenant_id))


PROJECTIONS: tuple[Projection, ...] = (
    Projection(
        name="metering.meters",
        project=project_meters,
        tables=(MeterRow, UsageRow, CorrectionRow, GapRow),
        is_bulk=True,
        on=names_of(
            LeaseScheduled,
            LeaseStarting,
            LeaseExtended,
            LeaseRepriced,
            LeaseShortened,
            ReclaimRequested,
            LeaseInterrupted,
            LeaseMoved,
            LeaseEnding,
            CutWithdrawn,
            LeaseClosed,
            MeterOpened,
            UsageWindowClosed,
            UsageCorrected,
            MeterGapFound,
            MeterClosed,
            UsageCaptured,
        ),
    ),
    DAYS,
    Projection(
        name="metering.heat",
        project=project_heat,
        tables=(HeatRow,),
        is_bulk=True,
        on=names_of(UsageWindowClosed, UsageCorrected),
    ),
    Projection(
        name="metering.idle",
        project=project_idle,
        tables=(IdleRuleRow, IdleRow),
        on=names_of(
            BidPlaced,
            IdleRuleSet,
            IdleWarned,
            IdleWarningLifted,
            IdleLeaseKept,
            IdleLeaseReleased,
        ),
    ),
)
