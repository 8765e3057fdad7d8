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
from metering.domain.rollup import Span
from metering.domain.two_meters import HOUR_MS, Compared, Tolerance, compare, judged_in, words
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
    span = _span(window)
    compared, in_hour = _both(row, span, judged_in(span))
    beyond, contested = compared.missing_ms > 0 and in_hour.is_beyond(tolerance), 0
    if beyond:
        try:
            for each in (*_tolerated_before(lease_id, window), window):
                of_it, _ = _both(row, _span(each), judged_in(span))
                contested += _contest(
                    store, lease_id, each, of_it, words(of_it, in_hour, tolerance), now=now
                )
        except ChargeUnknown:
            return contested  # its row lags: the next pass looks again
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


def _span(window: Window) -> Span:
    return millis_down(window.starts_at), millis_down(window.ends_at)


def _both(row: MeterRow, span: Span, around: Span) -> tuple[Compared, Compared]:
    """Return how the meters differ in a span, and in the longer one in which it is judged."""
    gpus, away = both_meters(row, (min(span[0], around[0]), around[1]))
    granted = [each for _, _, each in gpus]
    return (
        compare(granted, span, not_counted=away),
        compare(granted, around, not_counted=away),
    )


def _tolerated_before(lease_id: UUID, window: Window) -> list[Window]:
    """Return windows of the same hour that lack something, and were tolerated so far."""
    found = MetersCompared.objects.filter(
        lease_id=lease_id,
        ends_at__gt=window.ends_at - timedelta(milliseconds=HOUR_MS),
        starts_at__lt=window.starts_at,
        missing_ms__gt=0,
        is_beyond=False,
    )
    return [
        Window(*each) for each in found.order_by("starts_at").values_list("starts_at", "ends_at")
    ]


def _contest(
    store: EventStore,
    lease_id: UUID,
    window: Window,
    compared: Compared,
    reason: str,
    *,
    now: datetime,
) -> int:
    """Contest the charge of a window for what its work gave no sign of; return if it is contested.

    Raises: ChargeUnknown.
    """
    contested = 0
    try:
        contested = contest_by_meters(
            store,
            usage_entry(LeaseId(lease_id), window),
            used_millis=compared.alive_ms,
            reason=reason[:REASON_LENGTH_MAX],
            now=now,
        )
    except (NothingContested, DisputeTooLate) as refusal:
        log.info("meters.not-contested", lease=str(lease_id), code=refusal.code)
    done = MetersCompared.objects.filter(lease_id=lease_id, starts_at=window.starts_at)
    done.update(is_beyond=True)
    return int(contested)
