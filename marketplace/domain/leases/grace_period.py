"""How long the work of a lease has between the signal to stop and the kill, by its owners' word.

The grace lies before a deadline, never after it: what is left of it there is void. So the owner
has the GPUs back on time whatever was promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from marketplace.domain.facts.values import Share

SILENT = timedelta(seconds=30)
"""An agent that says nothing for so long after a deadline is not waited for."""
ANSWER = timedelta(seconds=15)
"""What an agent has to report after a kill without a deadline."""


def grace_of(shares: Sequence[Share]) -> timedelta:
    """Return the grace of a lease: one for all its hosts, as a gang stops in one moment.

    The longest that an owner promised, so that no promise is undercut; but within the notice of
    each owner, as nobody waits for GPUs longer than that. So it is no shorter than what each bid
    asked of each owner. Those shares that are older than the grace as a term have 15 seconds at
    any notice.
    """
    longest = max(share.grace_seconds for share in shares)
    within = min(share.notice_seconds for share in shares)
    least = min(share.grace_seconds for share in shares)
    return timedelta(seconds=max(least, min(longest, within)))


def waits_until(ending_at: datetime, due_at: datetime, grace: timedelta) -> datetime:
    """Return when a lease that ends is closed, whether or not its hosts say that work stopped.

    due_at: its deadline. Work that is stopped before it has the grace from then on, up to it.
    """
    left = min(grace, due_at - ending_at)
    return ending_at + max(SILENT, left + ANSWER)
