"""How extensions of leases become rows: asked for, answered, or without the money for them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ledger.rows import Rows
from marketplace.domain.facts.close_reasons import FUNDS_BACK
from marketplace.domain.facts.events import (
    ExtensionDeclined,
    ExtensionGranted,
    ExtensionRefused,
    ExtensionRequested,
)
from marketplace.models.leases import LeaseRow
from marketplace.projections.lease_shares import set_phase


def note_extension(asked: ExtensionRequested | ExtensionRefused, rows: Rows) -> None:
    """Note what is asked of the engine, or why it is not."""
    if isinstance(asked, ExtensionRefused) and asked.reason == FUNDS_BACK:
        no_longer_warned(rows.change(LeaseRow, asked.lease_id, extension=None), rows)
        return
    answer, reason = "asked", ""
    if isinstance(asked, ExtensionRefused):
        answer, reason = "refused", asked.reason
    extension = _extension(asked, asked.at, answer, reason)
    row = rows.change(LeaseRow, asked.lease_id, extension=extension)
    if isinstance(asked, ExtensionRefused) and asked.pausing:
        row.extension = {**extension, "pausing": True}
        if row.state == "active":
            set_phase(row, "warn", rows)  # so its work saves itself while there is time


def no_longer_warned(row: LeaseRow, rows: Rows) -> None:
    """Let the work go on that was asked to save itself because there was no money for its step."""
    if row.state in ("starting", "active") and row.stop_at is None:
        set_phase(row, "run", rows)


def note_answer(answer: ExtensionGranted | ExtensionDeclined, rows: Rows) -> None:
    """Note what the engine answered; it answers nothing that was not asked for."""
    asked = rows.get(LeaseRow, answer.lease_id).extension
    assert asked is not None
    asked_at = datetime.fromisoformat(asked["at"])
    if isinstance(answer, ExtensionGranted):
        extension = _extension(answer, asked_at, "granted")
    else:
        extension = _extension(answer, asked_at, "declined", answer.reason)
    rows.change(LeaseRow, answer.lease_id, extension=extension)


def _extension(
    event: ExtensionRequested | ExtensionRefused | ExtensionGranted | ExtensionDeclined,
    asked_at: datetime,
    answer: str,
    reason: str = "",
) -> dict[str, Any]:
    return {
        "ends_at": event.ends_at.isoformat(),
        "at": asked_at.isoformat(),
        "answer": answer,
        "reason": reason,
    }
