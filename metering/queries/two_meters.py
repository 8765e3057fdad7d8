"""Both meters of a lease in a span, from the rows that agents and the work itself sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

from django.db import connection

from ledger.access import Actor, visible
from ledger.domain.ids import LeaseId
from ledger.domain.span import Window
from metering.domain.instants import instant_of, millis_down
from metering.domain.rollup import Span
from metering.domain.two_meters import Granted, Heartbeat, compare, length, union
from metering.models import Interval, MeterRow, OutageRow, WorkReport

_ALIVE = """
SELECT beat.source, lower(each), upper(each)
FROM metering_heartbeat beat, unnest(beat.spans) each
WHERE beat.lease_id = %s AND beat.day BETWEEN %s AND %s
ORDER BY 1, 2
"""
_FIRST = """
SELECT source, min(lower(spans)) FROM metering_heartbeat WHERE lease_id = %s GROUP BY source
"""
DAY_MS = 86_400_000
ENDED = ("exited", "stopped", "failed", "refused")


@dataclass(frozen=True, slots=True)
class GpuMeters:
    """Both meters of one GPU, and what of the first the second lacks."""

    gpu_uuid: str
    host_id: UUID
    owner_id: UUID
    granted: tuple[Span, ...]
    alive: tuple[Span, ...]
    missing: tuple[Span, ...]
    has_heartbeat: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """A span of a lease on both meters. granted_ms, missing_ms: of all its GPUs together."""

    span: Span
    gpus: tuple[GpuMeters, ...]
    granted_ms: int
    missing_ms: int


def both_meters(row: MeterRow, span: Span) -> tuple[list[tuple[UUID, UUID, Granted]], list[Span]]:
    """Return each GPU of a lease with its host and owner, and when the market was away."""
    lease_id = LeaseId(row.lease_id)
    alive, first = _heartbeats(lease_id, span)
    ended = {
        report.host_id: millis_down(report.at)
        for report in WorkReport.objects.filter(lease_id=lease_id, what__in=ENDED)
    }
    spans: dict[tuple[UUID, str], list[Span]] = {}
    samples = Interval.objects.filter(
        lease_id=lease_id, end_ms__gt=span[0], start_ms__lt=span[1]
    ).values_list("host_id", "gpu_uuid", "start_ms", "end_ms")
    for host_id, gpu_uuid, start_ms, end_ms in samples.iterator():
        spans.setdefault((host_id, gpu_uuid), []).append((start_ms, end_ms))
    found = []
    for share in row.shares:
        host_id = UUID(share["host_id"])
        # Sent under the consumer's right it is of the work on all hosts.
        sources = [each for each in (host_id, row.lease_id) if each in first]
        beat = Heartbeat(
            alive=tuple(part for each in sources for part in alive.get(each, ())),
            since_ms=min((first[each] for each in sources), default=None),
            ended_ms=ended.get(host_id),
        )
        for gpu_uuid in share["gpu_uuids"]:
            granted = union(spans.get((host_id, gpu_uuid), ()), span)
            granted = union(granted, (row.starts_ms, row.ends_ms))
            found.append((host_id, UUID(share["owner_id"]), Granted(gpu_uuid, granted, beat)))
    return found, _outages(span)


def meters_seen(actor: Actor, lease_id: UUID, window: Window) -> Seen | None:
    """Return both meters of a lease in a window as far as an actor sees them; None: no meter.

    Who pays and the platform's finance see all of it, an owner its own GPUs.
    """
    rows = MeterRow.objects.all() if actor.has_platform_money else visible(actor, MeterRow)
    row = rows.filter(lease_id=lease_id).first()
    if row is None:
        return None
    seen = meters_of(row, window)
    if actor.has_platform_money or actor.sees_all or actor.tenant_id == row.tenant_id:
        return seen
    own = tuple(each for each in seen.gpus if each.owner_id == actor.tenant_id)
    return replace(
        seen,
        gpus=own,
        granted_ms=sum(length(each.granted) for each in own),
        missing_ms=sum(length(each.missing) for each in own),
    )


def meters_of(row: MeterRow, window: Window) -> Seen:
    """Return both meters of a lease in a window, GPU by GPU, for people to look at."""
    span = (millis_down(window.starts_at), millis_down(window.ends_at))
    gpus, away = both_meters(row, span)
    compared = compare([each for _, _, each in gpus], span, not_counted=away)
    return Seen(
        span=span,
        gpus=tuple(
            GpuMeters(
                gpu_uuid=each.gpu_uuid,
                host_id=host_id,
                owner_id=owner_id,
                granted=each.spans,
                alive=union(each.heartbeat.alive, span),
                missing=compared.missing.get(each.gpu_uuid, ()),
                has_heartbeat=each.heartbeat.since_ms is not None,
            )
            for host_id, owner_id, each in gpus
        ),
        granted_ms=compared.granted_ms,
        missing_ms=compared.missing_ms,
    )


def _heartbeats(lease_id: LeaseId, span: Span) -> tuple[dict[UUID, list[Span]], dict[UUID, int]]:
    """Return by source the spans of life that may touch a span, and the first of all."""
    alive: dict[UUID, list[Span]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_FIRST, [lease_id])
        first: dict[UUID, int] = dict(cursor.fetchall())
        if first:
            cursor.execute(_ALIVE, [lease_id, span[0] // DAY_MS, span[1] // DAY_MS])
            for source, start, end in cursor.fetchall():
                alive.setdefault(source, []).append((start, end))
    return alive, first


def _outages(span: Span) -> list[Span]:
    since, until = instant_of(span[0]), instant_of(span[1])
    rows = OutageRow.objects.filter(ends_at__gt=since, starts_at__lt=until)
    found = rows.values_list("starts_at", "ends_at")
    return [(millis_down(start), millis_down(end)) for start, end in found]
