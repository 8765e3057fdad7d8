"""What a lease used, for its page."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ledger.access import Actor
from metering.domain.correcting import REASONS
from metering.domain.meters import MeterUnknown
from metering.queries.usage import UseSoFar, corrections, use_so_far

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
