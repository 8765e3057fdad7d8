"""The meter of a lease: usage windows one after the other, each closed once, then the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, assert_never

from ledger.domain.refusal import Refusal, Unknown
from ledger.domain.span import Window
from metering.domain.correcting import NOT_CHARGED
from metering.domain.events import (
    GpuGap,
    GpuUse,
    MeterClosed,
    MeterEvent,
    MeterGapFound,
    MeterOpened,
    UsageCorrected,
    UsageWindowClosed,
)
from metering.domain.instants import instant_of
from metering.domain.rollup import Span


class MeterUnknown(Unknown):
    """Nothing of that lease is metered: it has not started, or never did."""


class MeterOpenedOtherwise(Refusal):
    """The meter of this lease was opened before, for other GPUs or another time."""


class WindowOutOfOrder(Refusal):
    """A usage window must start where the last one ended, or later."""


class MeterIsClosed(Refusal):
    """The meter is closed: all use of the lease is rated."""


class CorrectedMeanwhile(Refusal):
    """Another correction of this lease came first: work the difference out again."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A span without proof of use on one GPU."""

    gpu_uuid: str
    span: Span

    @property
    def window(self) -> Window:
        """Return the span in the terms of events."""
        return Window(instant_of(self.span[0]), instant_of(self.span[1]))


@dataclass(frozen=True, slots=True)
class Meter:
    """What one meter stream adds up to."""

    STREAM: ClassVar[str] = "meter"

    opened: MeterOpened
    closed_through: datetime | None = None
    granted_ms: int = 0
    corrections: int = 0
    is_closed: bool = False

    @classmethod
    def evolve(cls, state: Meter | None, event: MeterEvent, /) -> Meter:
        """Return the meter after `event`."""
        if isinstance(event, MeterOpened):
            assert state is None
            return cls(opened=event)
        assert state is not None
        match event:
            case UsageWindowClosed():
                granted_ms = sum(gpu.granted_ms for gpu in event.gpus)
                return replace(
                    state,
                    closed_through=event.window.ends_at,
                    granted_ms=state.granted_ms + granted_ms,
                )
            case MeterGapFound():
                return state
            case UsageCorrected():
                charged = () if event.reason in NOT_CHARGED else event.gpus
                granted_ms = sum(gpu.granted_ms for gpu in charged)
                return replace(
                    state,
                    granted_ms=state.granted_ms + granted_ms,
                    corrections=event.number,
                )
            case MeterClosed():
                return replace(state, is_closed=True)
            case _:
                assert_never(event)

    def repeat(self, wanted: MeterOpened) -> list[MeterEvent]:
        """Decide on opening the meter once more: nothing to do, if it is the same.

        Raises: MeterOpenedOtherwise.
        """
        if replace(wanted, at=self.opened.at) != self.opened:
            raise MeterOpenedOtherwise(lease_id=self.opened.lease_id)
        return []

    def close_window(
        self, window: Window, gpus: Sequence[GpuUse], gaps: Sequence[Gap], *, now: datetime
    ) -> list[MeterEvent]:
        """Decide what is rated of a window, once: a window closed before stays as it was.

        Raises: WindowOutOfOrder, MeterIsClosed.
        """
        through = self.closed_through
        if through is not None and window.ends_at <= through:
            return []
        if self.is_closed:
            raise MeterIsClosed(lease_id=self.opened.lease_id)
        if window.starts_at < (through or self.opened.window.starts_at):
            raise WindowOutOfOrder(starts_at=window.starts_at, closed_through=through)
        assert len({(gpu.host_id, gpu.gpu_uuid) for gpu in gpus}) == len(gpus)
        assert all(0 <= gpu.granted_ms <= window.millis for gpu in gpus)
        events: list[MeterEvent] = [
            UsageWindowClosed(
                lease_id=self.opened.lease_id, window=window, gpus=tuple(gpus), at=now
            )
        ]
        events += [
            MeterGapFound(
                lease_id=self.opened.lease_id,
                gpu_uuid=gap.gpu_uuid,
                window=gap.window,
                at=now,
            )
            for gap in gaps
        ]
        return events

    def correct(
        self,
        window: Window,
        added: Sequence[GpuUse],
        gaps: Sequence[Gap],
        *,
        number: int,
        reason: str,
        now: datetime,
    ) -> list[MeterEvent]:
        """Decide that more use of a window is on record, also once the meter is closed.

        gaps: what is still without proof. number: one more than the corrections that `added` was
        worked out with.

        Raises: CorrectedMeanwhile.
        """
        if number != self.corrections + 1:
            raise CorrectedMeanwhile(corrections=self.corrections)
        assert all(gpu.granted_ms >= 0 for gpu in added)
        return [
            UsageCorrected(
                lease_id=self.opened.lease_id,
                number=number,
                window=window,
                reason=reason,
                gpus=tuple(added),
                at=now,
                gaps=tuple(GpuGap(gap.gpu_uuid, gap.window) for gap in gaps),
            )
        ]

    def close(self, *, now: datetime) -> list[MeterEvent]:
        """Decide that all use is rated, once."""
        if self.is_closed:
            return []
        return [MeterClosed(lease_id=self.opened.lease_id, granted_ms=self.granted_ms, at=now)]
