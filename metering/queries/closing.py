"""What of a month's use is left to do before the month is closed."""

from __future__ import annotations

from datetime import datetime

from django.db.models import F
from django.db.models.functions import Least

from ledger.domain.closing import Check
from ledger.domain.periods import Period
from metering.domain.instants import millis_down
from metering.models import CorrectionRow, GapRow, LateUse, MeterRow, UsageRow


def use_is_rated(period: Period, now: datetime) -> Check:
    """Tell if every window of the month was closed: what no host proved is a gap by now."""
    ends_ms = millis_down(period.window.ends_at)
    waiting = (
        MeterRow.objects.exclude(state="closed")
        .filter(starts_ms__lt=ends_ms)
        .alias(until=Least("ends_ms", ends_ms))
        .filter(closed_through_ms__lt=F("until"))
        .count()
    )
    late = LateUse.objects.filter(start_ms__lt=ends_ms).count()
    gaps = GapRow.objects.filter(starts_at__lt=period.window.ends_at)
    of_month = gaps.filter(ends_at__gt=period.window.starts_at).count()
    words = f"All use is rated; {of_month} gaps without proof are on record and not charged."
    if waiting or late:
        words = (
            f"{waiting} leases have windows that wait for their hosts, {late} have late use that is"
            " not looked at yet. Hosts are waited for as long as OFFPEAK_METER_GRACE_SECONDS says."
        )
    return Check(
        name="use-rated", title="Use and gaps", passed=not waiting and not late, words=words
    )


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
    return Check(name="use-charged", title="Leases charged", passed=not left, words=words)
