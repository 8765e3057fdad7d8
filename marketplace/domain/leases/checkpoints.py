"""How far the work of a lease has come, and from where it could go on: checkpoints.

A checkpoint is a moment: what the work did until then is safe. The agents of its hosts report
them, or the consumer does. Of hosts that report, the one that is furthest behind counts, for a gang
goes on together; the consumer knows the whole work. Without any report the work would begin anew,
unless it says of itself how little it loses (`Workload.checkpoint_seconds`).

Time counts from the start of the lease, as it is paid: what lies before a checkpoint is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ledger.domain.ids import HostId
from ledger.domain.span import Window
from marketplace.domain.facts.events import WorkSaved
from marketplace.domain.facts.instants import ONE_SECOND


@dataclass(frozen=True, slots=True)
class Left:
    """What an end leaves of work: how much of the lease is safe, and how much was done in vain.

    kept: from the start of the lease to the checkpoint; lost: from there to the end of the work.
    """

    kept: timedelta
    lost: timedelta


NOTHING = Left(timedelta(), timedelta())


def together(consumer: datetime | None, hosts: Iterable[datetime]) -> datetime | None:
    """Return the checkpoint of the work as a whole, from what its consumer and its hosts said."""
    behind = min(hosts, default=None)
    return max((at for at in (consumer, behind) if at is not None), default=None)


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known of a lease's work. began_at: when it ran on all hosts; None: it never did.

    saved: the last checkpoint of each host that reported one, and under None the consumer's.
    """

    began_at: datetime | None = None
    saved: tuple[tuple[HostId | None, datetime], ...] = ()

    def begun(self, at: datetime) -> Progress:
        return replace(self, began_at=at)

    def after(self, event: WorkSaved) -> Progress:
        others = tuple(each for each in self.saved if each[0] != event.host_id)
        return replace(self, saved=(*others, (event.host_id, event.safe_at)))

    def is_news(self, host_id: HostId | None, safe_at: datetime) -> bool:
        """Tell if a checkpoint is later than the last from the same side."""
        return all(safe_at > at for reporter, at in self.saved if reporter == host_id)

    @property
    def safe_at(self) -> datetime | None:
        """Return the last checkpoint of the work as a whole; None: nobody reported one."""
        told = dict(self.saved)
        consumer = told.pop(None, None)
        return together(consumer, told.values())

    def point(self, *, stopped_at: datetime, every_seconds: int | None) -> datetime | None:
        """Return from where work that stopped could go on; None: from its start.

        every_seconds: how often it saves itself without saying so; None: it does not.
        """
        if self.began_at is None:
            return None
        known = [] if self.safe_at is None else [self.safe_at]
        ran = stopped_at - self.began_at
        if every_seconds is not None and ran >= every_seconds * ONE_SECOND:
            known.append(
                self.began_at + ran // (every_seconds * ONE_SECOND) * every_seconds * ONE_SECOND
            )
        return max(known, default=None)

    def left(self, window: Window, *, stopped_at: datetime, every_seconds: int | None) -> Left:
        """Return what an end of the work at `stopped_at` leaves of a lease over `window`."""
        if self.began_at is None:
            return NOTHING
        point = self.point(stopped_at=stopped_at, every_seconds=every_seconds)
        kept = timedelta() if point is None else min(point, window.ends_at) - window.starts_at
        lost = stopped_at - max(point or self.began_at, window.starts_at)
        return Left(max(kept, timedelta()), max(lost, timedelta()))


UNBEGUN = Progress()
