"""When an offer's GPUs are for lease: one-off windows, a weekly rule, or both."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from ledger.domain.refusal import Invalid, Refusal
from ledger.domain.span import Window
from listings.domain.events import OfferPublished, WeeklyRule
from listings.domain.recurrence import WINDOW_MIN, WindowTooShort, last_end, occurrences

WINDOWS_MAX = 200
WINDOW_AHEAD_MAX = timedelta(days=731)
COMPARED_AHEAD = timedelta(days=800)
"""Weekly rules are compared this far ahead: a year to come into force, and then a whole year with
every clock change. What a zone's law changes later, the engine's calendar of grants still holds
against leasing one GPU twice."""


class TimeWithoutZone(Invalid):
    """A time must say its offset from UTC, such as 2026-01-05T18:00:00Z."""


class WindowEmpty(Invalid):
    """A window must end after it starts."""


class WindowTooFine(Invalid):
    """A window starts and ends on a whole second."""


class WindowTooFarAhead(Invalid):
    """A window must end within two years from now."""


class WindowsMissing(Invalid):
    """An offer needs at least one window or a weekly rule."""


class TooManyWindows(Invalid):
    """An offer has at most two hundred one-off windows.

    Use a weekly rule for windows that come back, or publish a second offer.
    """


class WindowOver(Refusal):
    """A window of the offer is over already."""


class WindowsOverlap(Refusal):
    """Two windows of the offer overlap."""


def read_window(starts_at: datetime, ends_at: datetime) -> Window:
    """Make a window of what somebody sent.

    Raises: TimeWithoutZone, WindowTooFine, WindowEmpty.
    """
    for moment in (starts_at, ends_at):
        if moment.utcoffset() is None:
            raise TimeWithoutZone(given=moment.isoformat())
        if moment.microsecond:
            raise WindowTooFine(given=moment)
    if ends_at <= starts_at:
        raise WindowEmpty(starts_at=starts_at, ends_at=ends_at)
    return Window(starts_at.astimezone(UTC), ends_at.astimezone(UTC))


def check_windows(
    windows: Sequence[Window], weekly: WeeklyRule | None, *, now: datetime
) -> tuple[Window, ...]:
    """Return the one-off windows in order of time, or refuse them. `weekly` is checked already.

    Raises:
        WindowsMissing, TooManyWindows, WindowTooShort, WindowTooFine, WindowTooFarAhead,
        WindowOver, WindowsOverlap.
    """
    if not windows and weekly is None:
        raise WindowsMissing()
    if len(windows) > WINDOWS_MAX:
        raise TooManyWindows(windows=len(windows), windows_max=WINDOWS_MAX)
    for window in windows:
        if window.length < WINDOW_MIN:
            raise WindowTooShort(minutes_min=15, starts_at=window.starts_at)
        if window.starts_at.microsecond or window.ends_at.microsecond:
            raise WindowTooFine(given=window.starts_at)
        if window.ends_at > now + WINDOW_AHEAD_MAX:
            raise WindowTooFarAhead(ends_at=window.ends_at)
        if window.ends_at <= now:
            raise WindowOver(ends_at=window.ends_at, now=now)
    if weekly is not None:
        end = end_of((), weekly)
        if end is not None and end <= now:
            raise WindowOver(ends_at=end, now=now)
    coming = windows_between(windows, weekly, since=now, until=now + COMPARED_AHEAD)
    for earlier, later in pairwise(coming):
        if earlier.overlaps(later):
            raise WindowsOverlap(
                first_ends_at=earlier.ends_at,
                second_starts_at=later.starts_at,
            )
    return tuple(sorted(windows))


def windows_between(
    windows: Sequence[Window], weekly: WeeklyRule | None, *, since: datetime, until: datetime
) -> list[Window]:
    """Return all windows that share time with [since, until), each whole, in order of time."""
    found = [each for each in windows if each.starts_at < until and since < each.ends_at]
    if weekly is not None:
        found.extend(occurrences(weekly, since=since, until=until))
    return sorted(found)


def windows_of(offer: OfferPublished, *, since: datetime, until: datetime) -> list[Window]:
    """Return the windows of an offer that share time with [since, until), each whole, in order."""
    return windows_between(offer.windows, offer.weekly, since=since, until=until)


def end_of(windows: Sequence[Window], weekly: WeeklyRule | None) -> datetime | None:
    """Return when the last window ends; None for a weekly rule without a last day."""
    if weekly is not None and weekly.last is None:
        return None
    ends = [window.ends_at for window in windows]
    if weekly is not None:
        last = last_end(weekly)
        assert last is not None, "a rule that never comes is refused"
        ends.append(last)
    return max(ends)


def first_overlap(one: Sequence[Window], other: Sequence[Window]) -> tuple[Window, Window] | None:
    """Return the first pair of windows that share time; both lists in order, without overlaps."""
    left, right = iter(one), iter(other)
    a, b = next(left, None), next(right, None)
    while a is not None and b is not None:
        if a.overlaps(b):
            return a, b
        if a.ends_at <= b.ends_at:
            a = next(left, None)
        else:
            b = next(right, None)
    return None
