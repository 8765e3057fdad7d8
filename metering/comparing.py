"""Charged use is compared with what the work said of itself; a difference is contested."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import structlog
from django.db.models import Exists, OuterRef

from ledger.disputing import contest_by_meters
from ledger.domain.disputes import ChargeUnknown, DisputeTooLate, NothingContested
from ledger.domain.ids import LeaseId
from ledger.domain.journal import usage_entry
from ledger.domain.span import Window
from ledger.eventstore.port import EventStore
from ledger.turns import each_alone
from metering.domain.instants import millis_down
from metering.domain.two_meters import Tolerance, compare, words
from metering.models import Heartbeat, MeterRow, MetersCompared, UsageRow
from metering.queries.two_meters import both_meters

BEATS_WITHIN = timedelta(minutes=5)
"""So long after a window's end heartbeats are waited for that were kept while a way was closed."""
LOOKED_BACK = timedelta(days=7)
A_PASS = 200
REASON_LENGTH_MAX = 200

log = structlog.get_logger()


def compare_meters(store: EventStore, *, tolerance: Tolerance, now: datetime) -> int:
    """Compare what was charged since; return how many charges are contested for it.

    Only leases whose work has a heartbeat, each window once. The row that says that it was done is
    written last: after a crash in between it is done again, and nothing is contested twice.
    """
    of_this = {"lease_id": OuterRef("lease_id")}
    done = MetersCompared.objects.filter(**of_this, starts_at=OuterRef("starts_at"))
    beats = Heartbeat.objects.filter(**of_this)
    due = (
        UsageRow.objects.filter(
            Exists(beats),
            ~Exists(done),
            is_captured=True,
            ends_at__lte=now - BEATS_WITHIN,
            ends_at__gt=now - LOOKED_BACK,
        )
        .order_by("ends_at", "lease_id")
        .values_list("lease_id", "starts_at", "ends_at")
        .distinct()[:A_PASS]
    )
    return each_alone(
        list(due),
        lambda each: _compare(store, each[0], Window(each[1], each[2]), tolerance, now),
        event="meters.not-compared",
        told=lambda each: {"lease": str(each[0])},
    )


def _compare(
    store: EventStore, lease_id: UUID, window: Window, tolerance: Tolerance, now: datetime
) -> int:
    row = MeterRow.objects.filter(lease_id=lease_id).first()
    if row is None:
        return 0
    span = (millis_down(window.starts_at), millis_down(window.ends_at))
    gpus, away = both_meters(row, span)
    compared = compare([each for _, _, each in gpus], span, not_counted=away)
    beyond, contested = compared.is_beyond(tolerance), 0
    if beyond:
        entry_id = usage_entry(LeaseId(lease_id), window)
        reason = words(compared, tolerance)[:REASON_LENGTH_MAX]
        try:
            contested = int(
                contest_by_meters(
                    store, entry_id, used_millis=compared.alive_ms, reason=reason, now=now
                )
            )
        except ChargeUnknown:
            return 0  # its row lags: the next pass looks again
        except (NothingContested, DisputeTooLate) as refusal:
            log.info("meters.not-contested", lease=str(lease_id), code=refusal.code)
    MetersCompared.objects.get_or_create(
        lease_id=lease_id,
        starts_at=window.starts_at,
        defaults={
            "ends_at": window.ends_at,
            "granted_ms": compared.granted_ms,
            "missing_ms": compared.missing_ms,
            "is_beyond": beyond,
            "at": now,
        },
    )
    return contested
