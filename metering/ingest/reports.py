"""What agents report of leased work: kept once, and passed on to the lease."""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from django.db import connection

from ledger.domain.ids import HostId, LeaseId
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, Meta
from listings.commands.health import quarantine_gpu
from marketplace.commands import leases
from marketplace.commands.losses import end_for_hardware, end_if_falling_short
from marketplace.domain.facts import close_reasons
from metering.agent.wire import HOST_RESTARTED, Report, ReportBatch
from metering.domain.health import ENDS_LEASES, FAILED_STARTS
from metering.domain.instants import millis_down
from metering.ingest.grants import Grants, LeaseNotHere
from metering.ingest.heartbeats import COVERS_MS_MAX, take_heartbeats
from metering.models import WorkReport
from metering.queries.faults import fault_under, starts_failed_on

UNKNOWN_EXIT_CODE = 255
"""Of work that ended by itself, nobody knows how: not a success."""

_PUT = """
INSERT INTO metering_workreport
    (host_id, report_id, lease_id, what, at, exit_code, detail, received_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
"""


class ReportConflict(Refusal):
    """A report with this id is known with another content."""


def take_reports(
    store: EventStore,
    grants: Grants,
    batch: ReportBatch,
    *,
    host_id: HostId,
    by: Meta,
    now: datetime,
) -> int:
    """Keep the reports of one host and tell the leases; return how many are now known.

    The lease is told also where the report was known already: that the row is there does not
    prove that the lease heard of it, and hearing it twice does no harm.

    Raises: LeaseNotHere, ReportConflict.
    """
    for report in batch.reports:
        lease_id = LeaseId(report.lease_id)
        if not grants.of(store, lease_id).on(host_id):
            raise LeaseNotHere(lease_id=lease_id, report_id=report.report_id)
        # What is neither a beginning nor an end the lease itself keeps: of checkpoints the last.
        if report.what == "alive":
            _keep_alive(store, grants, report, host_id=host_id, now=now)
            continue
        if report.what not in ("saved", "fetching"):
            _keep(report, host_id=host_id, now=now)
        step = by.step(str(report.report_id))
        _tell(store, grants, report, host_id=host_id, by=step, now=now)
        if report.what == "failed":
            step = by.step(f"{report.report_id}-starts")
            _quarantine_on_failed_starts(store, grants, report, host_id=host_id, by=step, now=now)
    return len(batch.reports)


def _keep_alive(
    store: EventStore, grants: Grants, report: Report, *, host_id: HostId, now: datetime
) -> None:
    """Keep what the work said of itself; the lease need not hear of it, nor is it charged by it."""
    since = report.since or report.at
    span = (millis_down(since), min(millis_down(report.at), millis_down(now) + COVERS_MS_MAX))
    if span[0] < span[1]:  # else it says nothing
        lease_id = LeaseId(report.lease_id)
        starts_ms = grants.of(store, lease_id).starts_ms
        take_heartbeats(lease_id, host_id, [span], starts_ms=starts_ms, now=now)


def _keep(report: Report, *, host_id: HostId, now: datetime) -> None:
    sent = (report.lease_id, report.what, report.at, report.exit_code, report.detail)
    with connection.cursor() as cursor:
        cursor.execute(_PUT, [host_id, report.report_id, *sent, now])
        if cursor.rowcount:
            return
    known = WorkReport.objects.get(host_id=host_id, report_id=report.report_id)
    if (known.lease_id, known.what, known.at, known.exit_code, known.detail) != sent:
        raise ReportConflict(report_id=report.report_id)


def _tell(
    store: EventStore, grants: Grants, report: Report, *, host_id: HostId, by: Meta, now: datetime
) -> None:
    lease_id = LeaseId(report.lease_id)
    if report.reclaimed:
        # First: what the owner took is paid for, whatever else is known of the lease.
        taken = by.step("taken")
        leases.take_lease_at_once(store, lease_id=lease_id, host_id=host_id, by=taken, now=now)
    if report.what == "failed" or (report.what == "exited" and _exit_code(report)):
        _blame(store, grants, report, host_id=host_id, by=by.step("hardware"), now=now)
    match report.what:
        case "fetching":
            leases.files_awaited(store, lease_id=lease_id, host_id=host_id, by=by, now=now)
        case "started":
            leases.lease_started(
                store,
                lease_id=lease_id,
                host_id=host_id,
                by=by,
                now=now,
                commit=report.commit,
                left_out=report.left_out,
            )
        case "exited" | "stopped":
            leases.lease_stopped(
                store,
                lease_id=lease_id,
                host_id=host_id,
                exit_code=_exit_code(report),
                detail=report.detail,
                by=by,
                now=now,
                over_share=report.over_share,
            )
        case "alive":
            pass  # what the work says of itself
        case "saved":
            leases.save_work(
                store, lease_id=lease_id, host_id=host_id, safe_at=report.at, by=by, now=now
            )
        case "failed" | "refused":
            # First: the host says by now why, and the work may go elsewhere at once.
            short = by.step("short")
            end_if_falling_short(store, lease_id=lease_id, host_id=host_id, by=short, now=now)
            leases.lease_failed(
                store,
                lease_id=lease_id,
                host_id=host_id,
                detail=report.detail,
                by=by,
                now=now,
                occupied=report.what == "refused",
            )
        case _:
            assert_never(report.what)


def _quarantine_on_failed_starts(
    store: EventStore, grants: Grants, report: Report, *, host_id: HostId, by: Meta, now: datetime
) -> None:
    """Lease a GPU to nobody for a while on which one start after the other failed."""
    for uuid in grants.of(store, LeaseId(report.lease_id)).on(host_id):
        if starts_failed_on(host_id, uuid):
            quarantine_gpu(
                store,
                host_id=host_id,
                gpu_uuid=uuid,
                reason="starts-failed",
                detail=f"{FAILED_STARTS} starts in a row failed: {report.detail}",
                by=by.step(uuid),
                now=now,
            )


def _blame(
    store: EventStore, grants: Grants, report: Report, *, host_id: HostId, by: Meta, now: datetime
) -> None:
    """End the lease for the hardware, where that is why its work is gone.

    Work whose GPU fails under it ends with an error that looks as its own.
    """
    lease_id, gpu_uuid, failed_at = LeaseId(report.lease_id), "", report.at
    if report.what == "failed" and report.detail == HOST_RESTARTED:
        reason, detail = close_reasons.HOST_RESTARTED, ""
    else:
        gpus = grants.of(store, lease_id).on(host_id)
        found = fault_under(host_id, gpus, at=report.at)
        if found is None:
            return
        gpu_uuid, fault = found
        reason, detail = ENDS_LEASES[fault.reason][0], fault.detail
        failed_at = min(failed_at, fault.since or failed_at)
        # First: what follows is placed as soon as the lease is over, and is not to come back to it.
        quarantine_gpu(
            store,
            host_id=host_id,
            gpu_uuid=gpu_uuid,
            reason=fault.reason,
            detail=detail,
            by=by.step("unfit"),
            now=now,
        )
    end_for_hardware(
        store,
        lease_id=lease_id,
        host_id=host_id,
        reason=reason,
        gpu_uuid=gpu_uuid,
        detail=detail,
        failed_at=failed_at,
        by=by,
        now=now,
    )


def _exit_code(report: Report) -> int | None:
    """Return how work ended by itself; None where the agent ended it."""
    if report.what == "stopped":
        return None
    return UNKNOWN_EXIT_CODE if report.exit_code is None else report.exit_code
