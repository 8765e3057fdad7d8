"""What metering does by the clock. Each is one pass, called again and again by a runner."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import structlog
from django.db import connection, transaction

from ledger.domain.ids import LeaseId
from ledger.domain.refusal import Refusal
from ledger.domain.span import Window
from ledger.domain.uptime import ALWAYS_UP, Uptime
from ledger.eventstore.port import EventStore, Meta
from ledger.turns import behind, each_alone, turns_of
from metering.commands import charge_window, close_meter, close_usage_window
from metering.corrections import Waiting, as_recorded, correct_late_use
from metering.domain.closing import FOR_EVER, LeaseSpan, known_until, next_window
from metering.domain.events import UsageCorrected, UsageWindowClosed
from metering.domain.instants import MILLI, instant_of, millis_down
from metering.domain.rollup import Span
from metering.models import CorrectionRow, MeterRow, OutageRow, UsageRow
from metering.queries.adding_up import samples_of, uses_of
from metering.queries.faults import failing_since
from metering.queries.progress import LeaseGpu, progress_of, span_of

METERS_MAX = 1_000
WINDOWS_PER_PASS_MAX = 200
CHARGES_MAX = 200
CHARGED_WITHIN = timedelta(minutes=1)
CLOCK = Meta(actor="loop:close-usage-windows")

AWAY_AFTER = timedelta(seconds=30)
"""A process that has not beaten for so long was away: a restart takes a few seconds."""
BEAT_SECONDS = 5.0

_LAST_BEAT = "SELECT at FROM metering_beat WHERE name = %s FOR UPDATE"
_BEAT = """
INSERT INTO metering_beat AS known (name, at) VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET at = greatest(known.at, EXCLUDED.at)
"""
_MOVE_CUTOFF = """
INSERT INTO metering_cutoff AS known (lease_id, through_ms) VALUES (%s, %s)
ON CONFLICT (lease_id)
    DO UPDATE SET through_ms = EXCLUDED.through_ms WHERE known.through_ms < EXCLUDED.through_ms
"""

log = structlog.get_logger()


def beat(name: str, *, now: datetime) -> None:
    """Note that a kind of process is at work; after a longer silence, that it was away.

    In one transaction, so that no reader sees the new beat without the outage before it.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_LAST_BEAT, [name])
        last = cursor.fetchone()
        if last is not None and now - last[0] > AWAY_AFTER:
            log.warning("market.was-away", process=name, since=last[0].isoformat())
            OutageRow.objects.create(name=name, starts_at=last[0], ends_at=now)
        cursor.execute(_BEAT, [name, now])


def close_usage_windows(
    store: EventStore,
    *,
    now: datetime,
    window_seconds: int,
    grace: timedelta,
    uptime: Uptime = ALWAYS_UP,
) -> int:
    """Close every usage window that is known in full or waited for long enough, and every meter
    whose lease is over and rated; correct those that more use was proved of since. Return how many
    windows and meters were closed, and corrections made.

    The meter's own stream decides; a row that lags delays a window, nothing else.

    window_seconds: divides an hour. grace: how long after a window's end its last samples are
        waited for; what comes later becomes a correction. uptime: it runs while the market is up.
    """
    assert 3_600 % window_seconds == 0
    waiting = Waiting(now=now, window_ms=window_seconds * 1000, grace=grace, uptime=uptime)
    due = turns_of(store, "meters").take(
        lambda after, limit: _due(after, limit, now=now, window_ms=waiting.window_ms), METERS_MAX
    )
    found = MeterRow.objects.in_bulk([lease_id for _, lease_id in due])
    rows = [found[lease_id] for _, lease_id in due if lease_id in found]
    # One meter that cannot be closed must not hold up the others.
    closed = each_alone(
        rows,
        lambda row: _close_of(store, row, waiting),
        event="meter.stuck",
        told=lambda row: {"lease": str(row.lease_id)},
    )
    return closed + correct_late_use(store, waiting)


def charge_what_is_left(store: EventStore, *, now: datetime) -> int:
    """Ask again for charges that were refused; return how many were made."""
    left = turns_of(store, "charges").take(
        lambda after, limit: _uncharged(after, limit, now=now), CHARGES_MAX
    )
    return each_alone(
        left,
        lambda key: _charge(store, key[0], now),
        event="usage.not-charged",
        told=lambda key: {"lease": str(key[0])},
    )


def _uncharged(after: tuple[UUID] | None, limit: int, *, now: datetime) -> list[tuple[UUID]]:
    """Return leases with windows that should have been charged, in order."""
    before = now - CHARGED_WITHIN
    rows = (
        UsageRow.objects.filter(behind(after, "lease_id"), is_captured=False, ends_at__lt=before),
        CorrectionRow.objects.filter(behind(after, "lease_id"), is_captured=False, at__lt=before),
    )
    found = set[tuple[UUID]]()
    for each in rows:
        found.update(each.order_by("lease_id").values_list("lease_id").distinct()[:limit])
    return sorted(found)[:limit]


def _charge(store: EventStore, lease_id: UUID, now: datetime) -> int:
    """Charge what is on a lease's meter, the oldest first, up to what is refused."""
    charged = 0
    for recorded in store.read_stream(f"meter-{lease_id}"):
        if isinstance(recorded.event, UsageWindowClosed | UsageCorrected):
            by = Meta.because(recorded, policy="charge-what-is-left")
            try:
                charge_window(store, recorded.event, by=by, now=now)
            except Refusal as refusal:
                log.error("usage.not-charged", lease=str(lease_id), code=refusal.code)
                break
            charged += 1
    return charged


def _due(
    after: tuple[int, UUID] | None, limit: int, *, now: datetime, window_ms: int
) -> list[tuple[int, UUID]]:
    """Return open meters on which the clock may have something to say, the oldest first."""
    border_ms = millis_down(now) // window_ms * window_ms
    open_meters = MeterRow.objects.filter(state="open")
    due = open_meters.filter(over_ms__isnull=False) | open_meters.filter(
        closed_through_ms__lt=border_ms
    )
    order = ("closed_through_ms", "lease_id")
    return list(due.filter(behind(after, *order)).order_by(*order).values_list(*order)[:limit])


def _close_of(store: EventStore, row: MeterRow, waiting: Waiting) -> int:
    now = waiting.now
    lease, gpus = span_of(row), progress_of(row, now=now)
    known_ms = known_until((gpu.progress for gpu in gpus), lease)
    closed, from_ms = 0, row.closed_through_ms
    if known_ms >= FOR_EVER and not any(gpu.progress.ever_ran for gpu in gpus):
        from_ms = lease.until_ms
    asked = False
    for _ in range(WINDOWS_PER_PASS_MAX):
        window = next_window(
            lease,
            from_ms=from_ms,
            known_ms=known_ms,
            window_ms=waiting.window_ms,
            now_ms=millis_down(now),
            grace_ms=waiting.grace // MILLI,
            uptime=waiting.uptime,
        )
        if window is not None and not asked:
            # The row may lag behind the lease's own stream, and nothing after its end is charged.
            lease, asked = as_recorded(store, row, lease), True
            continue
        if window is None or (
            not lease.is_over
            and _waits_for_a_fault(gpus, window)
            and not waiting.is_over_of(window[1])
        ):
            break
        closed += _close_window(store, LeaseId(row.lease_id), lease, gpus, window, now=now)
        from_ms = window[1]
    if lease.is_over and from_ms >= lease.until_ms:
        _move_cutoff(row.lease_id, FOR_EVER)
        close_meter(store, lease_id=LeaseId(row.lease_id), by=CLOCK, now=now)
        closed += 1
    return closed


def _waits_for_a_fault(gpus: list[LeaseGpu], window: Span) -> bool:
    """Tell if a GPU of a lease has a fault that began in a window: if the lease ends for it, its
    right ended when that began, and what was rated is not taken back."""
    of_host: dict[UUID, set[str]] = {}
    for gpu in gpus:
        of_host.setdefault(gpu.host_id, set()).add(gpu.gpu_uuid)
    since = (failing_since(host_id, uuids) for host_id, uuids in of_host.items())
    return any(each is not None and millis_down(each) < window[1] for each in since)


def _close_window(
    store: EventStore,
    lease_id: LeaseId,
    lease: LeaseSpan,
    gpus: list[LeaseGpu],
    window: Span,
    *,
    now: datetime,
) -> int:
    """Rate one window; a window in which nothing was to be measured is passed over."""
    # First the cut, then the sum: what comes after the cut is marked late by the insert itself,
    # so a repeat after a crash in between adds up the very same intervals.
    _move_cutoff(lease_id, window[1])
    uses, gaps = uses_of(lease, gpus, samples_of(lease_id, window), window)
    if not any(use.granted_ms or use.gap_ms for use in uses):
        return 0
    close_usage_window(
        store,
        lease_id=lease_id,
        window=Window(instant_of(window[0]), instant_of(window[1])),
        gpus=uses,
        gaps=gaps,
        by=CLOCK,
        now=now,
    )
    return 1


def _move_cutoff(lease_id: UUID, through_ms: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_MOVE_CUTOFF, [lease_id, through_ms])
