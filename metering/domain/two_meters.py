"""The owner's meter of a lease beside the one of who pays: where they differ, and by how much.

The owner's meter says how long a GPU was the lease's. The other is what the work says of itself:
its heartbeat, and when the host's runtime saw it end. It charges nothing; where it says less by
more than a tolerance, the charge is contested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from metering.domain.rollup import Span

PPM = 1_000_000
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Tolerance:
    """By how much the meters may differ in an hour: by a share of it, or by a time for each GPU.

    A difference counts where it is more than both. An hour, whatever a usage window is: of windows
    of a minute none could ever lack more than a minute.
    """

    ppm: int
    millis: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What is known of a lease's work on one host, in milliseconds.

    alive: spans, in any order, for which the work said that it was alive. since_ms: the first
    of them ever; None: this work has no heartbeat. ended_ms: when the runtime saw it end.
    """

    alive: tuple[Span, ...] = ()
    since_ms: int | None = None
    ended_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """Two meters of a usage window, in GPU-milliseconds.

    granted: by the owners' meters; compared: of that where there is another meter. missing: spans
    by GPU that were granted, and for which the work did not say that it was alive.
    """

    granted_ms: int
    compared_ms: int
    gpus: int
    missing: Mapping[str, tuple[Span, ...]]

    @property
    def missing_ms(self) -> int:
        """Return how much less the meter of who pays has."""
        return sum(end - start for spans in self.missing.values() for start, end in spans)

    @property
    def alive_ms(self) -> int:
        """Return what the meter of who pays has; what it cannot tell is as the owners say."""
        return self.granted_ms - self.missing_ms

    def is_beyond(self, tolerance: Tolerance) -> bool:
        """Tell if the meters differ by more than they may."""
        missing_ms = self.missing_ms
        if missing_ms <= tolerance.millis * self.gpus:
            return False
        return missing_ms * PPM > tolerance.ppm * self.compared_ms


@dataclass(frozen=True, slots=True)
class Granted:
    """What the owner's meter says of one GPU: spans in which it was the lease's."""

    gpu_uuid: str
    spans: tuple[Span, ...]
    heartbeat: Heartbeat


def compare(gpus: Iterable[Granted], window: Span, *, not_counted: Sequence[Span] = ()) -> Compared:
    """Compare two meters in a window.

    A span without proof of use, a gap, is in neither. What is before the first heartbeat of a host
    is not compared: work takes a while to begin. not_counted: times in which nobody could have
    heard the work, such as an outage of the market.
    """
    granted_ms = compared_ms = metered = 0
    missing: dict[str, tuple[Span, ...]] = {}
    for gpu in gpus:
        spans = union(gpu.spans, window)
        granted_ms += length(spans)
        beat = gpu.heartbeat
        if beat.since_ms is None:
            continue
        metered += 1
        known = union(spans, (max(window[0], beat.since_ms), window[1]))
        compared_ms += length(known)
        alive = beat.alive
        if beat.ended_ms is not None:
            alive = union(alive, (window[0], min(window[1], beat.ended_ms)))
        lacking = without(known, union((*alive, *not_counted), window))
        if lacking:
            missing[gpu.gpu_uuid] = lacking
    return Compared(granted_ms, compared_ms, metered, missing)


def union(spans: Iterable[Span], within: Span) -> tuple[Span, ...]:
    """Return the spans clipped to `within`, in order, without overlap."""
    found: list[Span] = []
    for start, end in sorted(spans):
        start, end = max(start, within[0]), min(end, within[1])
        if start >= end:
            continue
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return tuple(found)


def without(spans: Sequence[Span], taken: Sequence[Span]) -> tuple[Span, ...]:
    """Return what of `spans` lies in none of `taken`; both in order and without overlap."""
    found: list[Span] = []
    for start, end in spans:
        at = start
        for out_start, out_end in taken:
            if out_end <= at or out_start >= end:
                continue
            if out_start > at:
                found.append((at, out_start))
            at = out_end
        if at < end:
            found.append((at, end))
    return tuple(found)


def judged_in(window: Span) -> Span:
    """Return the span in which a window is judged: itself, or the hour up to its end."""
    return min(window[0], window[1] - HOUR_MS), window[1]


def words(compared: Compared, in_hour: Compared, tolerance: Tolerance) -> str:
    """Say in what the meters differ in a window and its hour, for those who decide."""
    share = in_hour.missing_ms * 1000 // max(1, in_hour.compared_ms)
    around = (
        ""
        if in_hour == compared
        else f", for {_seconds(in_hour.missing_ms)} of {_seconds(in_hour.compared_ms)} in an hour"
    )
    return (
        f"Its own meter says less: for {_seconds(compared.missing_ms)} of"
        f" {_seconds(compared.compared_ms)} GPU-time the work gave no sign of life{around}"
        f" ({share // 10}.{share % 10} %; up to {tolerance.ppm // 10_000} % or"
        f" {_seconds(tolerance.millis)} a GPU is tolerated)."
    )


def _seconds(millis: int) -> str:
    return f"{millis // 1000} s"


def length(spans: Iterable[Span]) -> int:
    """Return the milliseconds of spans that do not overlap."""
    return sum(end - start for start, end in spans)
