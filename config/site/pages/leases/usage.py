"""What a lease used, for its page."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from config.site.parts.charts import Use, Used, use_over_time
from ledger.access import Actor
from marketplace.models.leases import LeaseRow
from marketplace.queries.leases import right_ends_at
from metering.domain.correcting import REASONS
from metering.domain.instants import millis_down
from metering.domain.meters import MeterUnknown
from metering.queries.usage import UseSoFar, corrections, usage_windows, use_so_far

CORRECTIONS_SHOWN_MAX = 20


def use_of(actor: Actor, lease_id: UUID) -> UseSoFar | None:
    """Return what agents measured, or None before the first of it."""
    try:
        return use_so_far(actor, lease_id)
    except MeterUnknown:
        return None


def corrections_of(actor: Actor, lease_id: UUID) -> list[dict[str, Any]]:
    """Return the newest corrections of a lease's use, each with why it came late."""
    try:
        rows = corrections(actor, lease_id)
    except MeterUnknown:
        return []
    newest = rows.reverse()[:CORRECTIONS_SHOWN_MAX]
    return [{"row": row, "because": REASONS[row.reason]} for row in newest]


def picture_of(actor: Actor, row: LeaseRow, use: UseSoFar | None) -> Use | None:
    """Return the picture of what was allocated and what was used of it, window by window.

    Used is busy time, or, where the GPUs cannot tell, time in which a process held them.
    """
    if use is None:
        return None
    spans = [
        Used(
            starts_ms=millis_down(each.starts_at),
            ends_ms=millis_down(each.ends_at),
            granted_ms=each.granted_ms,
            used_ms=each.occupied_ms if each.busy_ms is None else each.busy_ms,
        )
        for each in usage_windows(actor, row.lease_id)
    ]
    return use_over_time(
        spans,
        starts_ms=millis_down(row.starts_at),
        ends_ms=millis_down(right_ends_at(row)),
        gpus=row.gpus,
    )
