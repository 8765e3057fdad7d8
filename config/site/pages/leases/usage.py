"""What a lease used, for its page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from config.site.pages.leases.timeline import Step
from config.site.parts.axis import Axis, Measured, Price, Scale, axis_of, points_for
from ledger.access import Actor
from ledger.domain.money import Money
from marketplace.models.leases import LeaseRow
from marketplace.queries.leases import right_ends_at
from marketplace.queries.prices import price_of
from metering.domain.correcting import REASONS
from metering.domain.instants import millis_down
from metering.domain.meters import MeterUnknown
from metering.queries.over_time import extent, pieces
from metering.queries.usage import UseSoFar, corrections, use_so_far

CORRECTIONS_SHOWN_MAX = 20
LENGTH_MIN_MS = 1_000
"""An axis has a length, also of a lease that was taken back before it began."""


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


def axis_of_lease(
    actor: Actor,
    row: LeaseRow,
    *,
    at_most: Money,
    steps: Sequence[Step],
    saved: Sequence[datetime],
    now: datetime,
) -> Axis:
    """Return the axis of a lease: what was measured of it, what it costs, and what happened."""
    starts_ms = millis_down(row.starts_at)
    ends_ms = max(starts_ms + LENGTH_MIN_MS, millis_down(right_ends_at(row)))
    now_ms = None if row.closed_at is not None else millis_down(now)
    try:
        known = extent(actor, row.lease_id)
    except MeterUnknown:
        known = None
    count, measured, ran = 1, list[Measured](), None
    gpus = row.gpus
    if known is not None:
        gpus = known.gpus or row.gpus
        count = points_for(ends_ms - starts_ms, known.shortest_ms)
        measured = [
            Measured(each.at, each.granted_ms, each.used_ms, each.memory_mib)
            for each in pieces(
                actor, row.lease_id, known, starts_ms=starts_ms, ends_ms=ends_ms, count=count
            )
        ]
        ran = known.first_ms, known.last_ms
    return axis_of(
        measured,
        Scale(starts_ms, ends_ms, count, gpus),
        price=Price(price_of(row, now=now), at_most.nanos),
        events=[(millis_down(each.at), each.title) for each in steps],
        saved=[millis_down(each) for each in saved],
        ran=ran,
        now_ms=now_ms,
    )
