"""What of a month's use is left to do before the month is closed."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db.models import F
from django.db.models.functions import Least

from ledger.domain.closing import Check, Point
from ledger.domain.periods import Period
from metering.domain.instants import millis_down
from metering.models import CorrectionRow, GapRow, LateUse, MeterRow, UsageRow

POINTS_SHOWN = 10


def use_is_rated(period: Period, now: datetime) -> Check:
    """Tell if every window of the month was closed: what no host proved is a gap by now."""
    ends_ms = millis_down(period.window.ends_at)
    meters = (
        MeterRow.objects.exclude(state="closed")
        .filter(starts_ms__lt=ends_ms)
        .alias(until=Least("ends_ms", ends_ms))
        .filter(closed_through_ms__lt=F("until"))
    )
    late_use = LateUse.objects.filter(start_ms__lt=ends_ms)
    waiting, late = meters.count(), late_use.count()
    gaps = GapRow.objects.filter(starts_at__lt=period.window.ends_at)
    of_month = gaps.filter(ends_at__gt=period.window.starts_at).count()
    words = f"All use is rated; {of_month} gaps without proof are on record and not charged."
    if waiting or late:
        words = (
            f"{waiting} leases have windows that wait for their hosts, {late} have late use that is"
            " not looked at yet. Hosts are waited for as long as OFFPEAK_METER_GRACE_SECONDS says."
        )
    points = [
        _point(lease_id, "waits for its hosts")
        for lease_id in meters.order_by("pk").values_list("pk", flat=True)[:POINTS_SHOWN]
    ]
    points += [
        _point(lease_id, "has late use")
        for lease_id in late_use.order_by("pk").values_list("lease_id", flat=True)[:POINTS_SHOWN]
    ]
    return Check(
        name="use-rated",
        title="Use and gaps",
        passed=not waiting and not late,
        words=words,
        left=waiting + late,
        points=tuple(points[:POINTS_SHOWN]),
    )


def _point(lease_id: UUID, words: str) -> Point:
    return Point(f"Lease {str(lease_id)[:8]} {words}.", "lease", str(lease_id))


def use_is_charged(period: Period, now: datetime) -> Check:
    """Tell if everything that was rated in the month was charged."""
    windows = UsageRow.objects.filter(is_captured=False, starts_at__lt=period.window.ends_at)
    corrections = CorrectionRow.objects.filter(
        is_captured=False, starts_at__lt=period.window.ends_at
    )
    left = windows.count() + corrections.count()
    words = "Everything that was rated is charged."
    if left:
        words = f"{left} windows are not charged yet: an account may not cover them."
    leases: dict[UUID, str] = {}
    for rows in (windows, corrections):
        for lease_id, starts_at in rows.order_by("starts_at").values_list("lease_id", "starts_at")[
            :POINTS_SHOWN
        ]:
            since = f"is not charged from {starts_at:%d %B %H:%M} UTC on"
            leases.setdefault(lease_id, since)
    points = [_point(lease_id, words) for lease_id, words in leases.items()]
    return Check(
        name="use-charged",
        title="Leases charged",
        passed=not left,
        words=words,
        left=left,
        points=tuple(points[:POINTS_SHOWN]),
    )
