"""How the facts of leases become rows."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any, assert_never

import msgspec

from ledger.eventstore.port import Recorded
from ledger.following import Projection, names_of
from ledger.rows import Rows
from marketplace.domain.facts.events import (
    CutWithdrawn,
    ExtensionDeclined,
    ExtensionGranted,
    ExtensionRefused,
    ExtensionRequested,
    FilesAwaited,
    LeaseActivated,
    LeaseClosed,
    LeaseEnding,
    LeaseExtended,
    LeaseInterrupted,
    LeaseMoved,
    LeaseRepriced,
    LeaseScheduled,
    LeaseShortened,
    LeaseStarting,
    MaintenanceNoticed,
    MaintenanceNoticeWithdrawn,
    OutputsFailed,
    ReclaimRequested,
    ResaleEnded,
    ResaleListed,
    ResaleOpened,
    Share,
    Workload,
    WorkSaved,
    WorkStarted,
    WorkStopped,
)
from marketplace.domain.facts.instants import ONE_SECOND
from marketplace.domain.facts.sla_events import SlaAgreed, SlaMeasured
from marketplace.domain.leases.checkpoints import together
from marketplace.domain.leases.reclaim_schedule import schedule_of
from marketplace.domain.leases.state import grace_of
from marketplace.models.leases import LeaseRow, LeaseShareRow
from marketplace.projections.lease_extensions import (
    no_longer_warned,
    note_answer,
    note_extension,
)
from marketplace.projections.lease_shares import set_phase, share_key, shares_of

Claim = (
    ResaleListed
    | ResaleOpened
    | ResaleEnded
    | LeaseShortened
    | LeaseInterrupted
    | LeaseMoved
    | CutWithdrawn
)


def project_leases(recorded: Recorded, rows: Rows) -> None:
    """Keep LeaseRow and LeaseShareRow equal to the lease streams, with the engine's answers."""
    match recorded.event:
        case ExtensionGranted() | ExtensionDeclined() | SlaAgreed() | SlaMeasured() as beside:
            _note_beside(beside, rows)
            return  # it is of another stream and no version of the lease
        case LeaseScheduled() as scheduled:
            _add(scheduled, rows)
        case LeaseStarting() as starting:
            row = rows.get(LeaseRow, starting.lease_id)
            # Due at once: the clock looks every second whether the start grace is over.
            rows.change(LeaseRow, starting.lease_id, state="starting", due_at=starting.at)
            set_phase(row, "run" if row.stop_at is None else "warn", rows)
        case LeaseActivated() as activated:
            row = rows.get(LeaseRow, activated.lease_id)
            rows.change(
                LeaseRow,
                activated.lease_id,
                state="active" if row.stop_at is None else "reclaiming",
                activated_at=activated.at,
                due_at=_until_resale(row, _deadline(row)),
            )
        case ReclaimRequested() as reclaim:
            _stop_by(rows.get(LeaseRow, reclaim.lease_id), reclaim.stop_at, rows)
        case LeaseExtended() | LeaseRepriced() as goes_on:
            _change_terms(goes_on, rows)
        case claim if isinstance(claim, Claim):
            _project_claim(claim, rows)
        case (
            MaintenanceNoticed()
            | MaintenanceNoticeWithdrawn()
            | ExtensionRequested()
            | ExtensionRefused()
        ) as told:
            _note(told, rows)
        case LeaseEnding() as ending:
            row = rows.change(LeaseRow, ending.lease_id, state="ending", due_at=ending.at)
            set_phase(row, "stop", rows)
        case LeaseClosed() as closed:
            _close(closed, rows)
        case FilesAwaited() | WorkStarted() | WorkStopped() | WorkSaved() | OutputsFailed() as work:
            _note_work(work, rows)
        case _:
            return
    rows.change(LeaseRow, recorded.event.lease_id, version=recorded.version)


def _change_terms(goes_on: LeaseExtended | LeaseRepriced, rows: Rows) -> None:
    """Keep until when it lasts, and at which price."""
    match goes_on:
        case LeaseExtended() as extended:
            row = rows.change(LeaseRow, extended.lease_id, ends_at=extended.ends_at)
            if row.state == "active":
                row.due_at = _deadline(row)
            for share in shares_of(row, rows):
                rows.change(LeaseShareRow, share.pk, ends_at=extended.ends_at)
            no_longer_warned(row, rows)
        case LeaseRepriced() as repriced:
            row = rows.get(LeaseRow, repriced.lease_id)
            nanos = repriced.price.nanos_per_gpu_hour
            later = {"since": repriced.since.isoformat(), "nanos": nanos}
            rows.change(LeaseRow, repriced.lease_id, later_prices=[*row.later_prices, later])


def _note_work(
    work: FilesAwaited | WorkStarted | WorkStopped | WorkSaved | OutputsFailed, rows: Rows
) -> None:
    """Keep when the work began, up to when it is safe, and what it left that is not kept.

    How it stopped its shares tell.
    """
    row = rows.get(LeaseRow, work.lease_id)
    if isinstance(work, OutputsFailed):
        said = {"reason": work.reason, "final": work.final, "at": work.at.isoformat()}
        place = f"{work.host_id} {work.volume}".rstrip()
        failed = {**row.outputs_failed, place: said}
        rows.change(LeaseRow, work.lease_id, outputs_failed=failed)
    if isinstance(work, WorkStarted) and row.work_began_at is None:
        rows.change(LeaseRow, work.lease_id, work_began_at=work.at)
    if not isinstance(work, WorkSaved):
        return
    name = "" if work.host_id is None else str(work.host_id)
    told = {**row.saved, name: work.safe_at.isoformat()}
    at = {by: datetime.fromisoformat(moment) for by, moment in told.items()}
    consumer = at.pop("", None)
    rows.change(LeaseRow, work.lease_id, saved=told, checkpoint_at=together(consumer, at.values()))


def _note_beside(
    beside: ExtensionGranted | ExtensionDeclined | SlaAgreed | SlaMeasured, rows: Rows
) -> None:
    """Note what other streams say of a lease: the engine's answers, promises of its service."""
    match beside:
        case SlaAgreed():
            rows.change(LeaseRow, beside.lease_id, sla={"parts": _plain(beside.parts)})
        case SlaMeasured():
            known = rows.get(LeaseRow, beside.lease_id).sla or {}
            rows.change(LeaseRow, beside.lease_id, sla={**known, "results": _plain(beside.results)})
        case _:
            note_answer(beside, rows)


def _plain(parts: object) -> Any:
    return msgspec.to_builtins(parts)


def _close(closed: LeaseClosed, rows: Rows) -> None:
    row = rows.change(
        LeaseRow,
        closed.lease_id,
        state="failed" if closed.failed else "closed",
        closed_at=closed.at,
        close_reason=closed.reason,
        kept_seconds=closed.kept_seconds,
        lost_seconds=closed.lost_seconds,
    )
    set_phase(row, "over", rows)


def _note(
    told: MaintenanceNoticed | MaintenanceNoticeWithdrawn | ExtensionRequested | ExtensionRefused,
    rows: Rows,
) -> None:
    if isinstance(told, ExtensionRequested | ExtensionRefused):
        note_extension(told, rows)
        return
    place, known = f"{told.host_id} {told.maintenance_id}", rows.get(LeaseRow, told.lease_id)
    left = {each: said for each, said in known.maintenance.items() if each != place}
    if isinstance(told, MaintenanceNoticed):
        names = ("host_id", "maintenance_id", "starts_at", "reason", "announced_at")
        left[place] = {name: msgspec.to_builtins(getattr(told, name)) for name in names}
    rows.change(LeaseRow, told.lease_id, maintenance=left)


def _add(scheduled: LeaseScheduled, rows: Rows) -> None:
    shares = scheduled.shares
    grace_seconds = grace_of(shares) // ONE_SECOND
    rows.make(
        LeaseRow,
        lease_id=scheduled.lease_id,
        bid_id=scheduled.bid_id,
        market=scheduled.market,
        tenant_id=scheduled.tenant_id,
        subscriber_id=scheduled.subscriber_id,
        user_id=scheduled.user_id,
        owner_ids=sorted({share.owner_id for share in shares}),
        host_ids=sorted({share.host_id for share in shares}),
        gpu_model=scheduled.gpu_model,
        gpu_uuids=[uuid for share in shares for uuid in share.gpu_uuids],
        gpus=sum(len(share.gpu_uuids) for share in shares),
        state="scheduled",
        starts_at=scheduled.window.starts_at,
        ends_at=scheduled.window.ends_at,
        due_at=scheduled.window.starts_at,
        price_nanos_per_gpu_hour=scheduled.price.nanos_per_gpu_hour,
        currency=scheduled.price.currency,
        service_class=scheduled.service_class,
        workload_kind=scheduled.workload.kind,
        cost_centre=scheduled.cost_centre,
        checkpoint_seconds=scheduled.workload.checkpoint_seconds,
        inputs=scheduled.workload.inputs,
        fetch=scheduled.workload.fetch,
        outputs=list(scheduled.workload.outputs),
        volumes=[asdict(each) for each in scheduled.workload.volumes],
        burst=any(share.source == "burst" for share in shares),
        notice_seconds=max(share.notice_seconds for share in shares),
        grace_seconds=grace_seconds,
        reclaim_fee_ppm=min(share.reclaim_fee_ppm for share in shares),
        resold_lease_id=next((share.resold.lease_id for share in shares if share.resold), None),
        reclaim_schedule=[_promised(share) for share in shares],
        granted_at=scheduled.at,
        version=1,
    )
    workload = _told(scheduled.workload)
    for host_id in sorted({share.host_id for share in shares}):
        here = [share for share in shares if share.host_id == host_id]
        rows.make(
            LeaseShareRow,
            key=share_key(scheduled.lease_id, host_id),
            lease_id=scheduled.lease_id,
            host_id=host_id,
            offer_id=here[0].offer_id,
            owner_id=here[0].owner_id,
            tenant_id=scheduled.tenant_id,
            gpu_uuids=[uuid for share in here for uuid in share.gpu_uuids],
            phase="wait",
            starts_at=scheduled.window.starts_at,
            ends_at=scheduled.window.ends_at,
            grace_seconds=grace_seconds,
            workload=workload,
        )


def _told(workload: Workload) -> dict[str, Any]:
    """Return what the agents of a lease are told of its work; without what it leaves out."""
    told: dict[str, Any] = {
        "kind": workload.kind,
        "runtime": workload.runtime,
        "command": list(workload.command),
        "environment": dict(workload.environment),
    }
    if workload.image:
        told["image"] = workload.image
    if workload.inputs is not None:
        told["inputs"] = str(workload.inputs)
    if workload.outputs:
        told["outputs"] = list(workload.outputs)
    if workload.secrets:
        told["secrets"] = list(workload.secrets)
        told["secret_variables"] = list(workload.secret_variables)
    if workload.volumes:
        told["volumes"] = [asdict(each) for each in workload.volumes]
    if workload.fetch:
        told |= {"fetch": workload.fetch, "fetch_secret": workload.fetch_secret}
    return told


def _promised(share: Share) -> dict[str, Any]:
    return {
        "host_id": str(share.host_id),
        "gpus": len(share.gpu_uuids),
        "steps": [
            {"notice_seconds": step.notice_seconds, "fee_ppm": step.fee_ppm}
            for step in schedule_of(share)
        ],
    }


def _project_claim(claim: Claim, rows: Rows) -> None:
    """Keep what is told of a sale of the rest, and of what else cuts a lease short."""
    match claim:
        case ResaleListed() as listed:
            row = rows.get(LeaseRow, listed.lease_id)
            rows.change(
                LeaseRow,
                listed.lease_id,
                resale_state="first-refusal",
                resale=_on_sale(listed),
                due_at=min(row.due_at, listed.opens_at),
            )
        case ResaleOpened() | ResaleEnded() as resale:
            row = rows.get(LeaseRow, resale.lease_id)
            opened = isinstance(resale, ResaleOpened)
            row = rows.change(LeaseRow, resale.lease_id, resale_state="open" if opened else "kept")
            row.due_at = _due(row)
        case LeaseShortened() as shortened:
            row = rows.get(LeaseRow, shortened.lease_id)
            if row.state not in ("closed", "failed"):
                _shorten(row, shortened, rows)
        case LeaseInterrupted() | LeaseMoved() as cut:
            _stop_by(rows.get(LeaseRow, cut.lease_id), cut.stop_at, rows)
        case CutWithdrawn() as withdrawn:
            _go_on(rows.get(LeaseRow, withdrawn.lease_id), withdrawn, rows)
        case _:
            assert_never(claim)


def _stop_by(row: LeaseRow, stop_at: datetime, rows: Rows) -> None:
    """Note that the work must stop by then: a reclaim, or an interruption."""
    started = row.state != "scheduled"
    rows.change(
        LeaseRow,
        row.lease_id,
        state="reclaiming" if started else "scheduled",
        stop_at=stop_at,
        due_at=min(row.due_at, stop_at),
        resale_state="kept" if row.resale_state in ("first-refusal", "open") else row.resale_state,
    )
    if started:
        set_phase(row, "warn", rows)


def _shorten(row: LeaseRow, shortened: LeaseShortened, rows: Rows) -> None:
    """Note that the lease ends where its rest was sold."""
    ends_at = min(row.ends_at, shortened.ends_at)
    rows.change(
        LeaseRow,
        row.lease_id,
        ends_at=ends_at,
        due_at=min(row.due_at, ends_at),
        resale_state="sold",
        resale={**(row.resale or {}), "sold_to": str(shortened.sold_to)},
    )
    for share in shares_of(row, rows):
        rows.change(LeaseShareRow, share.pk, ends_at=ends_at)


def _go_on(row: LeaseRow, withdrawn: CutWithdrawn, rows: Rows) -> None:
    """Note that a lease goes on that was to end sooner."""
    state, running = row.state, "starting" if row.activated_at is None else "active"
    if state == "reclaiming" and withdrawn.stop_at is None:
        state = running
    sale = row.resale_state
    if withdrawn.for_sale:
        sale = "open"
    row = rows.change(
        LeaseRow,
        row.lease_id,
        state=state,
        ends_at=withdrawn.ends_at,
        stop_at=withdrawn.stop_at,
        resale_state=sale,
        resale={key: value for key, value in (row.resale or {}).items() if key != "sold_to"}
        or None,
    )
    row.due_at = _due(row)
    for share in shares_of(row, rows):
        rows.change(LeaseShareRow, share.pk, ends_at=withdrawn.ends_at)
    if state == running:
        set_phase(row, "run", rows)


def _on_sale(listed: ResaleListed) -> dict[str, Any]:
    return {
        "since": listed.since.isoformat(),
        "ends_at": listed.ends_at.isoformat(),
        "floor_nanos": listed.floor.nanos_per_gpu_hour,
        "lease_min_seconds": listed.lease_min_seconds,
        "opens_at": listed.opens_at.isoformat(),
    }


def _until_resale(row: LeaseRow, due_at: datetime) -> datetime:
    if row.resale_state != "first-refusal" or row.resale is None:
        return due_at
    return min(due_at, datetime.fromisoformat(row.resale["opens_at"]))


def _due(row: LeaseRow) -> datetime:
    """Return when the clock next has something to say, once a resale is open or over."""
    if row.state == "scheduled":
        return row.starts_at if row.stop_at is None else min(row.starts_at, row.stop_at)
    return _deadline(row) if row.state in ("active", "reclaiming") else row.due_at


def _deadline(row: LeaseRow) -> datetime:
    return row.ends_at if row.stop_at is None else min(row.ends_at, row.stop_at)


PROJECTIONS = (
    Projection(
        name="marketplace.leases",
        project=project_leases,
        tables=(LeaseRow, LeaseShareRow),
        on=names_of(
            LeaseScheduled,
            LeaseStarting,
            LeaseActivated,
            FilesAwaited,
            WorkStarted,
            WorkStopped,
            WorkSaved,
            OutputsFailed,
            ReclaimRequested,
            MaintenanceNoticed,
            MaintenanceNoticeWithdrawn,
            LeaseExtended,
            LeaseRepriced,
            ExtensionRequested,
            ExtensionRefused,
            ExtensionGranted,
            ExtensionDeclined,
            ResaleListed,
            ResaleOpened,
            ResaleEnded,
            LeaseShortened,
            LeaseInterrupted,
            LeaseMoved,
            CutWithdrawn,
            LeaseEnding,
            LeaseClosed,
            SlaAgreed,
            SlaMeasured,
        ),
    ),
)
