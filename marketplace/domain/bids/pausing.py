"""What a bid takes on whose work may be paused, and when the rest of it cannot wait longer.

Such a bid is resumed wherever it is cut short. Its rest waits for room that can be had at once,
before other bids of its limit, and does not reserve what somebody holds until later: who holds it
may leave sooner. When its deadline comes near, or after half a day, it is due: from then on it
takes what begins later, too, and others may be paused for it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from ledger.domain.refusal import Invalid
from marketplace.domain.facts.events import BidPlaced, Workload

PAUSE_MAX = timedelta(hours=12)
"""After this wait the rest of paused work counts as much as work that is new."""
CALLED_BEFORE = timedelta(minutes=30)
"""So long before its latest start the rest of paused work cannot wait longer."""
SOON = timedelta(minutes=10)
"""Who seeks the soonest start and finds it within so long has nobody paused for a sooner one."""
ROOM_WITHIN = timedelta(minutes=1)
"""What begins within so long can be had at once, for work that waits to go on."""


class PausableSavesNothing(Invalid):
    """Work that may be paused has to save itself, or it begins anew each time.

    Give it a volume that it writes to, or say how much it loses at most when it is stopped
    (checkpoint_seconds; --saves-every).
    """


def need_saving(workload: Workload) -> None:
    """Refuse work that says in no way that it goes on from where it was.

    Raises: PausableSavesNothing.
    """
    if not saves_itself(workload):
        raise PausableSavesNothing


def saves_itself(workload: Workload) -> bool:
    """Tell if work says in any way that it goes on from where it was."""
    writes = any(mount.writable for mount in workload.volumes)
    return writes or workload.checkpoint_seconds is not None


def is_return(placed: BidPlaced) -> bool:
    """Tell if a bid asks for the rest of work that may be paused."""
    return placed.pausable and placed.continues is not None and placed.continues.resumes


def return_due_at(placed: BidPlaced, deadline: datetime) -> datetime:
    """Return when the rest of paused work cannot wait longer. deadline: as last amended."""
    least = timedelta(seconds=placed.duration_min_seconds or placed.duration_seconds)
    return min(deadline - least - CALLED_BEFORE, placed.at + PAUSE_MAX)


def done_before(placed: BidPlaced) -> int:
    """Return how many seconds of the work were done and safe before a bid."""
    continues = placed.continues
    return 0 if continues is None or not continues.resumes else continues.done_seconds


def finish_by(placed: BidPlaced) -> datetime:
    """Return by when work has to be done: its deadline, or until when it is extended."""
    until = placed.auto_extend_until
    return placed.deadline if until is None else max(placed.deadline, until)
