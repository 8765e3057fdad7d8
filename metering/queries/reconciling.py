"""Samples against usage windows, and these against what was charged, for a month."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Sum

from ledger.domain.ids import LeaseId
from ledger.domain.journal import usage_entry
from ledger.domain.periods import Period
from ledger.domain.reconciling import Difference, Leg, Pair
from ledger.domain.span import Window
from ledger.queries import ChargedWindow, charged_windows
from metering.domain.correcting import NOT_CHARGED
from metering.domain.instants import millis_down
from metering.domain.rollup import Sampled, roll_up
from metering.models import CorrectionRow, Interval, LateUse, MeterRow, UsageRow

UNIT = "GPU ms"
FOLLOWS_WITHIN = timedelta(hours=1)
"""A window that was rated is charged at once where the account covers it; later, people look."""


def samples_and_windows(period: Period, now: datetime, *, kept: timedelta) -> Leg:
    """Compare the time that agents proved with what was rated of it, by lease.

    kept: how long samples are kept; of leases that began before that there may be none any more.
    """
    rated = _rated(period)
    pairs, differences = list[Pair](), list[Difference]()
    waiting = set(LateUse.objects.values_list("lease_id", flat=True))
    oldest_ms = millis_down(now - kept) + 86_400_000
    for meter in MeterRow.objects.filter(pk__in=_of_month(period)).order_by("pk").iterator():
        subject = f"lease {meter.pk}"
        proved = _proved(meter, period)
        pairs.append(Pair(subject, UNIT, proved, rated[meter.pk]))
        more = rated[meter.pk] - proved
        if more > 0 and max(meter.starts_ms, millis_down(period.window.starts_at)) < oldest_ms:
            words = "samples are not kept any more"
            differences.append(Difference(subject, UNIT, more, "aged", words))
        elif more < 0 and meter.pk in waiting:
            words = "proved after its windows were closed, and not looked at yet"
            differences.append(Difference(subject, UNIT, more, "late", words))
    return Leg("samples-windows", "Samples and usage windows", pairs, differences)


def _of_month(period: Period) -> list[UUID]:
    starts_ms, ends_ms = map(millis_down, (period.window.starts_at, period.window.ends_at))
    meters = MeterRow.objects.filter(starts_ms__lt=ends_ms, ends_ms__gt=starts_ms)
    return list(meters.values_list("pk", flat=True))


def _proved(meter: MeterRow, period: Period) -> int:
    """Return for how long the lease's GPUs were proved to be its own, as far as that is rated."""
    until = min(meter.closed_through_ms, meter.ends_ms, meter.over_ms or meter.ends_ms)
    span = (
        max(meter.starts_ms, millis_down(period.window.starts_at)),
        min(until, millis_down(period.window.ends_at)),
    )
    if span[0] >= span[1]:
        return 0
    by_gpu: dict[tuple[UUID, str], list[Sampled]] = defaultdict(list)
    found = Interval.objects.filter(lease_id=meter.pk, end_ms__gt=span[0], start_ms__lt=span[1])
    columns = found.values_list("host_id", "gpu_uuid", "start_ms", "end_ms")
    for host_id, gpu_uuid, start_ms, end_ms in columns.iterator():
        by_gpu[host_id, gpu_uuid].append(Sampled(start_ms, end_ms))
    return sum(roll_up(samples, window=span).granted_ms for samples in by_gpu.values())


def _rated(period: Period) -> Counter[UUID]:
    found: Counter[UUID] = Counter()
    for kind in (UsageRow, CorrectionRow):
        rows = kind.objects.filter(**_begun_in(period)).values("lease_id")
        for each in rows.annotate(sum=Sum("granted_ms")).order_by():
            found[each["lease_id"]] += int(each["sum"])
    return found


def _begun_in(period: Period) -> dict[str, datetime]:
    return {"starts_at__gte": period.window.starts_at, "starts_at__lt": period.window.ends_at}


def windows_and_charges(period: Period, now: datetime) -> Leg:
    """Compare each usage window and correction of the month with its entry, one by one."""
    wanted = _wanted(period)
    charged = {each.entry_id: each for each in charged_windows(period)}
    pairs, differences = list[Pair](), list[Difference]()
    for entry_id in sorted({*wanted, *charged}):
        there, other = wanted.get(entry_id), charged.get(entry_id)
        lease_id, begins = _named(there, other)
        subject = f"lease {lease_id} from {begins:%Y-%m-%dT%H:%M:%SZ} ({entry_id})"
        one, found = there.millis if there else 0, other.gpu_millis if other else 0
        pairs.append(Pair(subject, UNIT, one, found))
        if there is None or one == found:
            continue
        span = f"from {there.window.starts_at:%d %H:%M} to {there.window.ends_at:%d %H:%M}"
        if there.reason in NOT_CHARGED:
            words = f"proved too late to be charged: {span}"
            differences.append(Difference(subject, UNIT, -one, "late", words))
        elif other is None and now - there.since < FOLLOWS_WITHIN:
            words = f"rated and not charged yet: {span}"
            differences.append(Difference(subject, UNIT, -one, "in-flight", words))
    return Leg("windows-charges", "Usage windows and charges", pairs, differences)


def _named(there: _Rated | None, other: ChargedWindow | None) -> tuple[UUID, datetime]:
    if there is not None:
        return there.lease_id, there.window.starts_at
    assert other is not None, "one of both was found"
    return other.lease_id, other.starts_at


class _Rated:
    """A window or correction, all its owners together. since: when it could be charged."""

    __slots__ = ("lease_id", "millis", "reason", "since", "window")

    def __init__(self, lease_id: UUID, window: Window, reason: str, since: datetime) -> None:
        self.lease_id, self.window, self.reason, self.since = lease_id, window, reason, since
        self.millis = 0


def _wanted(period: Period) -> dict[UUID, _Rated]:
    """Return what is to be charged, by the entry that charges it."""
    found: dict[UUID, _Rated] = {}

    def add(rows: Iterable[tuple[UUID, datetime, datetime, int, str, datetime, int]]) -> None:
        for lease_id, starts_at, ends_at, number, reason, since, millis in rows:
            window = Window(starts_at, ends_at)
            entry_id = usage_entry(LeaseId(lease_id), window, number)
            rated = found.setdefault(entry_id, _Rated(lease_id, window, reason, since))
            rated.millis += millis

    windows = UsageRow.objects.filter(**_begun_in(period), granted_ms__gt=0)
    columns = windows.values_list("lease_id", "starts_at", "ends_at", "granted_ms")
    add((lease, begin, end, 0, "", end, ms) for lease, begin, end, ms in columns.iterator())
    corrected = CorrectionRow.objects.filter(**_begun_in(period), granted_ms__gt=0)
    add(
        corrected.values_list(
            "lease_id", "starts_at", "ends_at", "number", "reason", "at", "granted_ms"
        ).iterator()
    )
    return found
