"""When the market was up: a deadline that the market sets others runs only while it is.

An outage of the market is nobody's fault but its own, so no time that others are given to act in,
to report in or to deliver in runs during one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ledger.domain.span import Window


@dataclass(frozen=True, slots=True)
class Uptime:
    """What is known of the market's outages.

    outages: when it was away, in order, without overlaps. up_to: when it was last known to be up;
    None: that is not known, and it counts as up until now.
    """

    outages: Sequence[Window] = ()
    up_to: datetime | None = None

    def between(self, since: datetime, until: datetime) -> timedelta:
        """Return for how long the market was up between two moments."""
        if self.up_to is not None:
            until = min(until, self.up_to)
        if until <= since:
            return timedelta()
        span = Window(since, until)
        away = (span.clip(outage) for outage in self.outages)
        return span.length - sum((each.length for each in away if each), timedelta())

    def outages_between(self, since: datetime, until: datetime) -> tuple[Window, ...]:
        """Return the parts of outages that lie between two moments."""
        if until <= since:
            return ()
        span = Window(since, until)
        return tuple(part for part in map(span.clip, self.outages) if part is not None)


ALWAYS_UP = Uptime()
