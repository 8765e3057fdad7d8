"""What those who decide look at: both meters of the contested time, GPU by GPU, as bars."""

from __future__ import annotations

from dataclasses import dataclass

from config.site.parts.charts import Lying, Part
from ledger.access import Actor
from ledger.domain.span import Window
from ledger.models import DisputeRow
from metering.domain.instants import instant_of
from metering.domain.rollup import Span
from metering.domain.two_meters import length
from metering.queries.two_meters import GpuMeters, meters_seen

SPANS_MAX = 50
"""Spans of one GPU that are listed, the first."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Both meters of one GPU. missing: from, to and length of what the second lacks."""

    meters: GpuMeters
    granted: Lying
    alive: Lying
    granted_ms: int
    alive_ms: int
    missing: list[tuple[object, object, int]]
    more: int


def evidence_of(actor: Actor, row: DisputeRow) -> list[Evidence]:
    """Return both meters of each GPU of the contested time that the actor may see."""
    seen = meters_seen(actor, row.lease_id, Window(row.starts_at, row.ends_at))
    return [] if seen is None else [_of(each, seen.span) for each in seen.gpus]


def _of(each: GpuMeters, span: Span) -> Evidence:
    listed = each.missing[:SPANS_MAX]
    return Evidence(
        meters=each,
        granted=Lying(_parts(each.granted, span, "used", "granted"), []),
        alive=Lying(
            _parts(each.alive, span, "lent", "alive")
            + _parts(each.missing, span, "borrowed", "no sign of life"),
            [],
        ),
        granted_ms=length(each.granted),
        alive_ms=length(each.granted) - length(each.missing),
        missing=[(instant_of(start), instant_of(end), end - start) for start, end in listed],
        more=len(each.missing) - len(listed),
    )


def _parts(spans: tuple[Span, ...], within: Span, kind: str, word: str) -> list[Part]:
    whole = within[1] - within[0]
    return [
        Part(
            kind,
            100 * (start - within[0]) / whole,
            100 * (end - start) / whole,
            f"{instant_of(start):%H:%M:%S} to {instant_of(end):%H:%M:%S} UTC: {word}",
        )
        for start, end in spans
    ]
