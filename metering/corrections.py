"""Use that came after its windows were closed becomes corrections: on record, and charged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from ledger.domain.ids import LeaseId
from ledger.domain.span import Window
from ledger.domain.uptime import Uptime
from ledger.eventstore.port import EventStore, Meta, load
from ledger.turns import behind, each_alone, turns_of
from marketplace.domain.leases.lease import Lease
from metering.commands import correct_usage
from metering.domain.closing import LeaseSpan
from metering.domain.correcting import Known, added, reason_of, spans_to_correct
from metering.domain.events import UsageCorrected, UsageWindowClosed
from metering.domain.instants import instant_of, millis_down
from metering.domain.meters import MeterUnknown
from metering.domain.rollup import Span
from metering.models import LateUse, MeterRow
from metering.queries.adding_up import samples_of, uses_of
from metering.queries.progress import progress_of, span_of

LATE_MAX = 200
"""Leases whose late use is looked at in a pass."""
CORRECTOR = Meta(actor="loop:correct-usage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """How long samples are waited for: `grace` after a window, of the time the market is up."""

    now: datetime
    window_ms: int
    grace: timedelta
    uptime: Uptime

    def is_over_of(self, end_ms: int) -> bool:
        """Tell if the samples of a window that ends then are waited for no longer."""
        return self.uptime.between(instant_of(end_ms), self.now) >= self.grace


def correct_late_use(store: EventStore, waiting: Waiting) -> int:
    """Put on record what was proved of closed windows since; return how many corrections."""

    def page(after: tuple[UUID] | None, limit: int) -> Sequence[tuple[UUID]]:
        rows = LateUse.objects.filter(behind(after, "lease_id")).order_by("lease_id")
        return list(rows.values_list("lease_id")[:limit])

    late = turns_of(store, "late-use").take(page, LATE_MAX)
    return each_alone(
        LateUse.objects.filter(lease_id__in=[lease_id for (lease_id,) in late]),
        lambda each: _correct(store, each, waiting),
        event="usage.not-corrected",
        told=lambda each: {"lease": str(each.lease_id)},
    )


def as_recorded(store: EventStore, row: MeterRow, lease: LeaseSpan) -> LeaseSpan:
    """Return the lease's span as its own stream has it: an end that is sooner, prices."""
    found = load(store, Lease, row.lease_id)
    if found is None:
        raise MeterUnknown(lease_id=row.lease_id)
    return replace(
        lease,
        ends_ms=min(lease.ends_ms, millis_down(found.right_ends_at)),
        cuts_ms=tuple(millis_down(each.since) for each in found.repriced),
    )


def _correct(store: EventStore, late: LateUse, waiting: Waiting) -> int:
    row = MeterRow.objects.filter(lease_id=late.lease_id).first()
    if row is None or row.state == "due":
        return 0  # the read model lags: the next pass looks again
    lease_id = LeaseId(late.lease_id)
    lease = as_recorded(store, row, span_of(row))
    gpus = progress_of(row, now=waiting.now)
    rated, corrections = _on_record(store, lease_id)
    spans = spans_to_correct(
        (late.start_ms, late.end_ms),
        rated,
        lease=(lease.starts_ms, lease.until_ms),
        window_ms=waiting.window_ms,
        cuts_ms=lease.cuts_ms,
    )
    made = 0
    for span in spans:
        uses, gaps = uses_of(lease, gpus, samples_of(lease_id, span, late_too=True), span)
        more = added(uses, rated[span])
        if not more:
            continue
        window = Window(instant_of(span[0]), instant_of(span[1]))
        proved = {use.gpu_uuid for use in more}
        made += 1
        correct_usage(
            store,
            lease_id=lease_id,
            window=window,
            added=more,
            gaps=[gap for gap in gaps if gap.gpu_uuid in proved],
            number=corrections + made,
            reason=reason_of(
                window, arrived_at=late.arrived_at, grace=waiting.grace, uptime=waiting.uptime
            ),
            by=CORRECTOR,
            now=waiting.now,
        )
    # What came meanwhile has counted on: then the span stays, and nothing is added twice.
    LateUse.objects.filter(lease_id=late.lease_id, arrivals=late.arrivals).delete()
    return made


def _on_record(
    store: EventStore, lease_id: LeaseId
) -> tuple[defaultdict[Span, dict[tuple[object, str], Known]], int]:
    """Return what is on record of each span by GPU, and how many corrections there were.

    From the meter's own stream: a row that lags must not make anything count twice.
    """
    found: defaultdict[Span, dict[tuple[object, str], Known]] = defaultdict(dict)
    corrections = 0
    for recorded in store.read_stream(f"meter-{lease_id}"):
        event = recorded.event
        if not isinstance(event, UsageWindowClosed | UsageCorrected):
            continue
        if isinstance(event, UsageCorrected):
            corrections = event.number
        span = (millis_down(event.window.starts_at), millis_down(event.window.ends_at))
        for gpu in event.gpus:
            key = (gpu.host_id, gpu.gpu_uuid)
            found[span][key] = found[span].get(key, Known()).plus(gpu)
    return found, corrections
