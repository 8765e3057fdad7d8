"""What may be asked about plans of exports: to make one, to end it, how it went."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from ledger.domain import export_plans
from ledger.domain.export_plans import Every, ExportPlan, ExportsPlanned, PlannedExportsDue
from ledger.domain.ids import UserId
from ledger.domain.periods import Period
from ledger.eventstore.port import EventStore, Meta, Position, record


def plan_exports(
    store: EventStore,
    *,
    plan_id: UUID,
    every: Every,
    formats: Sequence[str],
    folder: str,
    user_id: UserId,
    by: Meta,
    now: datetime,
) -> Position:
    """Have forms of export brought to a folder of finance's place, from now on.

    Raises: FolderUnreadable, NothingPlanned, ExportPlanOtherwise.
    """
    wanted = ExportsPlanned(
        plan_id=plan_id,
        every=every,
        formats=tuple(formats),
        folder=folder.strip(),
        by_user=user_id,
        at=now,
    )
    return record(store, ExportPlan, plan_id, lambda known: export_plans.plan(known, wanted), by=by)


def end_export_plan(
    store: EventStore, plan_id: UUID, *, user_id: UserId, by: Meta, now: datetime
) -> Position:
    """Bring nothing any more by a plan.

    Raises: ExportPlanUnknown.
    """
    return record(
        store,
        ExportPlan,
        plan_id,
        lambda known: export_plans.end(known, plan_id, by_user=user_id, now=now),
        by=by,
    )


def let_plan_fall_due(
    store: EventStore,
    plan_id: UUID,
    *,
    due: str,
    period: Period,
    position: int,
    by: Meta,
    now: datetime,
) -> Position:
    """Fix which month, as of which event, is brought for a day or a closing; once for each.

    Raises: ExportPlanUnknown.
    """
    wanted = PlannedExportsDue(
        plan_id=plan_id, due=due, period=str(period), position=position, at=now
    )
    return record(
        store, ExportPlan, plan_id, lambda known: export_plans.fall_due(known, wanted), by=by
    )


def note_planned_brought(
    store: EventStore, plan_id: UUID, due: str, *, target: str, by: Meta, now: datetime
) -> Position:
    """Note that what was due is at the target, once."""
    return record(
        store,
        ExportPlan,
        plan_id,
        lambda known: export_plans.bring(known, plan_id, due, target=target, now=now),
        by=by,
    )


def note_planned_failed(
    store: EventStore,
    plan_id: UUID,
    due: str,
    *,
    target: str,
    words: str,
    by: Meta,
    now: datetime,
) -> Position:
    """Note why what was due is not there, once for each reason."""
    return record(
        store,
        ExportPlan,
        plan_id,
        lambda known: export_plans.fail(known, plan_id, due, target=target, words=words, now=now),
        by=by,
    )
