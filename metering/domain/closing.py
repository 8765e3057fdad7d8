"""When a usage window may be closed: as soon as nothing more can come, and not for ever later."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ledger.domain.uptime import ALWAYS_UP, Uptime
from metering.domain.instants import MILLI, instant_of
from metering.domain.rollup import Span

FOR_EVER = 2**62
LAST_SAMPLES_WITHIN_MS = 15 * 60_000
"""A host that has gone on talking for so long after it said a lease's work was over has sent all
it had of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSpan:
    """A lease as its meter sees it, in milliseconds.

    closed_ms: when the lease was over; None: it is not. ever_starting: its hosts were asked to
    start it. cuts_ms: when its price changes; no usage window goes across that.
    """

    starts_ms: int
    ends_ms: int
    closed_ms: int | None
    ever_starting: bool
    cuts_ms: tuple[int, ...] = ()

    @property
    def is_over(self) -> bool:
        """Tell if the lease is over."""
        return self.closed_ms is not None

    @property
    def until_ms(self) -> int:
        """Return up to when there can be use: the end, or the close if that was sooner."""
        return self.ends_ms if self.closed_ms is None else min(self.ends_ms, self.closed_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProgress:
    """What a GPU's host has told of a lease, in milliseconds.

    started_ms, stopped_ms: of the work on the host, as its agent reported them.
    watermark_ms: end of the latest interval of this GPU; None: none came.
    heard_for_ms: how long the host went on talking after it reported the end.
    """

    started_ms: int | None = None
    stopped_ms: int | None = None
    watermark_ms: int | None = None
    heard_for_ms: int = 0

    @property
    def ever_ran(self) -> bool:
        """Tell if anything was said of work on this GPU."""
        return self.started_ms is not None or self.watermark_ms is not None

    def known_until(self, lease: LeaseSpan) -> int:
        """Return up to when all use of this GPU is known; FOR_EVER: no more can come."""
        if lease.is_over and not lease.ever_starting:
            return FOR_EVER
        seen_ms = lease.starts_ms if self.watermark_ms is None else self.watermark_ms
        if self.stopped_ms is not None:
            all_seen = seen_ms >= min(self.stopped_ms, lease.until_ms)
            if not self.ever_ran or all_seen or self.heard_for_ms >= LAST_SAMPLES_WITHIN_MS:
                return FOR_EVER
        return seen_ms

    def expected(self, lease: LeaseSpan) -> Span | None:
        """Return when the work ran as far as anybody knows; None where it never started."""
        if self.started_ms is None:
            return None
        stopped_ms = lease.until_ms if self.stopped_ms is None else self.stopped_ms
        return self.started_ms, min(stopped_ms, lease.until_ms)


def known_until(gpus: Iterable[GpuProgress], lease: LeaseSpan) -> int:
    """Return up to when all use of a lease is known."""
    return min((gpu.known_until(lease) for gpu in gpus), default=FOR_EVER)


def border_after(at_ms: int, window_ms: int, cuts_ms: Iterable[int] = ()) -> int:
    """Return where a usage window ends that begins then, if the lease does not end before."""
    border_ms = (at_ms // window_ms + 1) * window_ms
    return min((cut_ms for cut_ms in cuts_ms if at_ms < cut_ms < border_ms), default=border_ms)


def next_window(
    lease: LeaseSpan,
    *,
    from_ms: int,
    known_ms: int,
    window_ms: int,
    now_ms: int,
    grace_ms: int,
    uptime: Uptime = ALWAYS_UP,
) -> Span | None:
    """Return the next usage window that may be closed, None where that has to wait or none is left.

    Windows start where the last one ended, are cut at whole multiples of `window_ms` and where the
    price changes, and are closed when they are over. One that is cut short by the lease's end waits
    until the lease is over, because it may be extended. One that is not known in full is closed
    `grace_ms` after its end, of time in which the market was up to take in its samples.
    """
    end_ms = border_after(from_ms, window_ms, lease.cuts_ms)
    if end_ms > lease.until_ms:
        if not lease.is_over:
            return None
        end_ms = lease.until_ms
    if end_ms <= from_ms or now_ms < end_ms:
        return None
    waited = uptime.between(instant_of(end_ms), instant_of(now_ms))
    if known_ms >= end_ms or waited >= grace_ms * MILLI:
        return from_ms, end_ms
    return None
