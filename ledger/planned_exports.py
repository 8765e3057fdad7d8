"""Exports that finance planned: each day the month so far, or each month once it is closed.

They go to folders of the place that the operator set, `<folder>/<day or closing>/`, each file whole
and the manifest last. What is brought for a day is fixed before a file is written, so whoever is
killed on the way brings the same bytes the next time. A day that passed while nobody ran is not
made up for: the next file has all of the month.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog

from ledger.closing import exports_read_up_to
from ledger.commands.export_plans import (
    let_plan_fall_due,
    note_planned_brought,
    note_planned_failed,
)
from ledger.domain.export_plans import ExportPlan
from ledger.domain.periods import Period, read_period
from ledger.eventstore.port import EventStore, Position, load
from ledger.export_delivery import BY, Target, bring, tell_failure
from ledger.export_failures import said_by_system, why_not_written
from ledger.following import AWAY
from ledger.models import ExportPlanRow, PeriodRow

PAGE = "/finance/exports"

log = structlog.get_logger()


def deliver_planned(store: EventStore, make_target: Callable[[], Target], *, now: datetime) -> int:
    """Bring what plans are due for; return how many. One that fails holds up no other."""
    brought = 0
    for row in ExportPlanRow.objects.filter(ended_at=None).order_by("at", "plan_id"):
        _fall_due(store, row, now=now)
        plan = load(store, ExportPlan, row.plan_id)
        if plan is None or plan.ended or plan.due is None or plan.brought:
            continue
        brought += _deliver(store, plan, row, make_target(), now=now)
    return brought


def _fall_due(store: EventStore, row: ExportPlanRow, *, now: datetime) -> None:
    """Fix what the plan is to bring next, where its time has come."""
    if row.every == "day":
        day = (now.astimezone(UTC) - timedelta(days=1)).date()
        if row.due == day.isoformat() or row.at.astimezone(UTC).date() > day:
            return
        period, due = Period(day.year, day.month), day.isoformat()
        position = exports_read_up_to()
    else:
        closed = PeriodRow.objects.filter(
            state="closed", closed_at__gte=row.at, closed_position__gt=row.position or 0
        )
        found = closed.exclude(exports=[]).order_by("closed_position").first()
        if found is None:
            return
        assert found.closed_position is not None
        period, position = read_period(found.period), Position(found.closed_position)
        due = f"{period}-at-{position}"
    let_plan_fall_due(store, row.plan_id, due=due, period=period, position=position, by=BY, now=now)


def _deliver(
    store: EventStore, plan: ExportPlan, row: ExportPlanRow, target: Target, *, now: datetime
) -> bool:
    assert plan.due is not None
    plan_id, due = plan.planned.plan_id, plan.due.due
    folder, period = f"{plan.planned.folder}/{due}", read_period(plan.due.period)
    before = row.brought.get(plan.due.period) if row.every == "month" else None
    since = before if before != plan.due.position else None
    try:
        bring(
            store,
            target,
            folder,
            period,
            Position(plan.due.position),
            plan.planned.formats,
            since=since,
        )
    except AWAY:
        raise
    except Exception as failed:  # told to finance and logged: other plans are brought
        words, raw = why_not_written(failed), said_by_system(failed)
        log.warning("exports.not-brought", plan_id=str(plan_id), due=due, error=raw)
        note_planned_failed(store, plan_id, due, target=target.name, words=words, by=BY, now=now)
        key, what = f"{plan_id}:{due}", f"{due}, for {plan.planned.folder},"
        tell_failure(store, key, what=what, failed=failed, target=target, link=PAGE, now=now)
        return False
    note_planned_brought(store, plan_id, due, target=target.name, by=BY, now=now)
    return True
