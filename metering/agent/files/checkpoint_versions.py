"""Versions of volumes while their work runs: one for each checkpoint of which the work speaks.

Work whose host dies goes on elsewhere from what was kept by then. So a checkpoint in a volume
counts as safe once a version has it, and the market hears of it then (`kept_ms`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from ..runtimes.port import Work
from ..state import LeaseState
from ..wire import VolumeMount
from .ways import Way

EVERY_MS = 60_000
"""Work that saves itself every second makes no version every second."""
PAUSES = 10
"""So many times as long as the last one read files is waited after it: all are read for each. What
it waited for the network or for the market is waited once more only: a slow answer is no reason to
keep the next checkpoint ten times later."""

Which = tuple[UUID, str]
"""A lease, and the name of a volume that its work has."""
Begin = Callable[[UUID, VolumeMount, Way, bool], bool]
"""Begins to send a volume of a lease; the last says if nobody is told of what is wrong. Returns
False where there is nothing to send."""


@dataclass(slots=True)
class _Turn:
    """One version. saved_ms: the checkpoint it has. next_ms: no other begins before that."""

    way: Way
    saved_ms: int
    begun_ms: int
    next_ms: int | None = None

    def look(self, now_ms: int, every_ms: int) -> bool:
        """Tell if another may begin."""
        if self.way.is_under_way:
            return False
        if self.next_ms is None:
            took_ms = now_ms - self.begun_ms
            read_ms = took_ms if self.way.read_ms is None else self.way.read_ms
            pause_ms = max(PAUSES * read_ms, took_ms)
            self.next_ms = max(self.begun_ms + every_ms, now_ms + pause_ms)
        return now_ms >= self.next_ms


class CheckpointVersions:
    """Which checkpoints of running work are kept in its volumes. Every call returns at once.

    every_ms: of one volume, from the beginning of one version to that of the next, at least.
    """

    def __init__(self, every_ms: int = EVERY_MS) -> None:
        self._every_ms = every_ms
        self._turns: dict[Which, _Turn] = {}
        self._kept_ms: dict[Which, int] = {}
        self._complained: set[Which] = set()

    def turn(self, work: Work, lease: LeaseState, *, now_ms: int, begin: Begin) -> None:
        """Send what a running work saved since the last time, if it said that it did."""
        for mount in _written(lease):
            which = work.lease_id, mount.name
            before = self._turns.get(which)
            if before is not None:
                may = before.look(now_ms, self._every_ms)
                self._note(which, before)
                if not may:
                    continue
            if work.saved_ms is None or work.saved_ms == self._kept_ms.get(which):
                continue
            way = Way()
            if begin(work.lease_id, mount, way, which in self._complained):
                self._turns[which] = _Turn(way, work.saved_ms, now_ms)

    def kept_ms(self, work: Work, lease: LeaseState) -> int | None:
        """Return up to when the work is safe; None: it is not, or said nothing.

        Of work without volumes to write to that is what it says.
        """
        kept = [self._kept_ms.get((work.lease_id, each.name)) for each in _written(lease)]
        return min(((each or 0) for each in kept), default=work.saved_ms) or None

    def stop(self, which: Which) -> bool:
        """Stop a version that is on its way; tell if nothing of it goes on."""
        turn = self._turns.get(which)
        if turn is not None and turn.way.is_under_way:
            turn.way.stop.set()
            return False
        return True

    def drop(self, lease_id: UUID) -> None:
        """Forget a lease."""
        for which in [each for each in self._turns if each[0] == lease_id]:
            self._turns.pop(which).way.stop.set()
            self._kept_ms.pop(which, None)
            self._complained.discard(which)

    def close(self) -> None:
        """Stop everything: the next agent looks anew."""
        for turn in self._turns.values():
            turn.way.stop.set()

    def _note(self, which: Which, turn: _Turn) -> None:
        if turn.way.came == "kept":
            self._kept_ms[which] = turn.saved_ms
            self._complained.discard(which)
        elif turn.way.came is not None or turn.way.failed:
            self._complained.add(which)


def _written(lease: LeaseState) -> list[VolumeMount]:
    return [mount for mount in lease.terms.volumes if mount.writable]
