"""Spans of time, half open: a window ends where the next one may start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ledger.domain.making import made_quickly


@made_quickly
@dataclass(frozen=True, slots=True, order=True)
class Window:
    """From `starts_at` up to but not including `ends_at`; both aware, in UTC."""

    starts_at: datetime
    ends_at: datetime

    def __post_init__(self) -> None:
        assert self.starts_at.tzinfo is not None
        assert self.ends_at.tzinfo is not None
        assert self.starts_at < self.ends_at

    @property
    def length(self) -> timedelta:
        """Return the elapsed time from start to end."""
        return self.ends_at - self.starts_at

    @property
    def millis(self) -> int:
        """Return the length in whole milliseconds."""
        return self.length // timedelta(milliseconds=1)

    def covers(self, other: Window) -> bool:
        """Test if all of `other` lies inside this window."""
        return self.starts_at <= other.starts_at and other.ends_at <= self.ends_at

    def overlaps(self, other: Window) -> bool:
        """Test if the two share any instant."""
        return self.starts_at < other.ends_at and other.starts_at < self.ends_at

    def clip(self, other: Window) -> Window | None:
        """Return what both have in common, or None."""
        starts_at = max(self.starts_at, other.starts_at)
        ends_at = min(self.ends_at, other.ends_at)
        return Window(starts_at, ends_at) if starts_at < ends_at else None


def covered_millis(windows: Iterable[Window]) -> int:
    """Return for how many milliseconds any of the windows lasts; what they share counts once."""
    total, until = 0, datetime.min.replace(tzinfo=UTC)
    for window in sorted(windows):
        if window.ends_at > until:
            total += Window(max(window.starts_at, until), window.ends_at).millis
            until = window.ends_at
    return total
