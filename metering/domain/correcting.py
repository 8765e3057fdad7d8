"""Use that is proved after its window was rated: what is added, and why it came late.

What is owed for a lease is its price times all that was proved, whatever came when. So use that
comes after its window is no loss of its owner: it becomes a correction, which both sides see.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from ledger.domain.span import Window
from ledger.domain.uptime import Uptime
from metering.domain.closing import border_after
from metering.domain.events import GpuUse
from metering.domain.rollup import Span

Reason = Literal["platform-away", "out-of-order", "host-late", "too-late"]

CORRECTED_WITHIN = timedelta(days=35)
"""A month and some days: a bill that is older does not grow."""

REASONS: dict[str, str] = {
    "platform-away": "The market was away while it waited for these samples.",
    "out-of-order": "These samples came after later ones.",
    "host-late": "The host sent these samples after their time.",
    "too-late": "The host sent these samples so late that they are not charged.",
}
NOT_CHARGED = frozenset({"too-late"})


def reason_of(window: Window, *, arrived_at: datetime, grace: timedelta, uptime: Uptime) -> Reason:
    """Return why use of a window came after the window was rated."""
    if arrived_at - window.ends_at > CORRECTED_WITHIN:
        return "too-late"
    if uptime.between(window.ends_at, arrived_at) >= grace:
        return "host-late"
    away = uptime.outages_between(window.ends_at, arrived_at)
    return "platform-away" if away else "out-of-order"


def spans_to_correct(
    late: Span,
    rated: Iterable[Span],
    *,
    lease: Span,
    window_ms: int,
    cuts_ms: Sequence[int] = (),
) -> list[Span]:
    """Return the spans of a lease whose use is to be added up again for use that came late.

    Those on record that it touches, as they are; what lies between them (nothing was known of it,
    so nothing was rated) is cut at whole multiples of `window_ms`, and at `cuts_ms`, where the
    price changes.
    """
    start_ms, end_ms = max(late[0], lease[0]), min(late[1], lease[1])
    found: list[Span] = []
    at_ms = start_ms
    for span in sorted(set(rated)):
        if span[1] <= start_ms or span[0] >= end_ms:
            continue
        found += _cut(at_ms, min(span[0], end_ms), window_ms, cuts_ms)
        found.append(span)
        at_ms = max(at_ms, span[1])
    return found + _cut(at_ms, end_ms, window_ms, cuts_ms)


def _cut(start_ms: int, end_ms: int, window_ms: int, cuts_ms: Sequence[int]) -> list[Span]:
    found = []
    while start_ms < end_ms:
        border_ms = min(end_ms, border_after(start_ms, window_ms, cuts_ms))
        found.append((start_ms, border_ms))
        start_ms = border_ms
    return found


@dataclass(frozen=True, slots=True)
class Known:
    """What is on record of one GPU in one span.

    occupied_ms, busy_ms, energy_mj: None where not known.
    """

    granted_ms: int = 0
    occupied_ms: int | None = 0
    busy_ms: int | None = 0
    gap_ms: int = 0
    energy_mj: int | None = 0

    def plus(self, use: GpuUse) -> Known:
        """Return what is on record after one more fact about the span."""
        return Known(
            self.granted_ms + use.granted_ms,
            _plus(self.occupied_ms, use.occupied_ms),
            _plus(self.busy_ms, use.busy_ms),
            self.gap_ms + use.gap_ms,
            _plus(self.energy_mj, use.energy_mj),
        )


def added(now: Sequence[GpuUse], before: dict[tuple[object, str], Known]) -> list[GpuUse]:
    """Return what each GPU's use grew by; empty where nothing more was proved.

    gap_ms falls: what was a gap is proved.
    """
    found = []
    for use in now:
        was = before.get((use.host_id, use.gpu_uuid), Known())
        granted_ms = use.granted_ms - was.granted_ms
        if granted_ms <= 0:
            continue
        found.append(
            GpuUse(
                gpu_uuid=use.gpu_uuid,
                host_id=use.host_id,
                owner_id=use.owner_id,
                granted_ms=granted_ms,
                occupied_ms=_less(use.occupied_ms, was.occupied_ms, granted_ms),
                busy_ms=_less(use.busy_ms, was.busy_ms, granted_ms),
                gap_ms=use.gap_ms - was.gap_ms,
                energy_mj=_less(use.energy_mj, was.energy_mj),
            )
        )
    return found


def _plus(total: int | None, part: int | None) -> int | None:
    return None if total is None or part is None else total + part


def _less(total: int | None, part: int | None, most: int | None = None) -> int | None:
    if total is None or part is None:
        return None
    grown = max(0, total - part)
    return grown if most is None else min(grown, most)
