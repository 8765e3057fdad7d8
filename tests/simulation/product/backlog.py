"""Work that can wait, as its consumer keeps it: it bids for what is free beyond a headroom."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable

from tests.simulation.product.clock import Clock

HEADROOM = 0.05
"""Of all GPUs, left free for work that does not wait."""
LOOK_EVERY = 300.0


class Backlog:
    """Jobs in the order in which they came, by how many GPUs they need.

    bid: bids for a job and tells if it got its GPUs. held: GPUs that are leased, which the market
    tells everybody.
    """

    def __init__(self, gpus: int, clock: Clock, bid: Callable[[int], bool]) -> None:
        self.held = 0
        self._gpus, self._clock, self._bid = gpus, clock, bid
        self._waiting: dict[int, deque[int]] = defaultdict(deque)

    def add(self, job: int, gpus: int, *, again: bool) -> None:
        """Keep a job until there is room. again: it was interrupted, and goes first."""
        if again:
            self._waiting[gpus].appendleft(job)
        else:
            self._waiting[gpus].append(job)

    def fill(self) -> None:
        """Bid for what came first, where so much is free; past what finds no place."""
        passed: set[int] = set()
        while True:
            room = int(self._gpus * (1 - HEADROOM)) - self.held
            heads = [
                (jobs[0], gpus)
                for gpus, jobs in self._waiting.items()
                if jobs and gpus <= room and gpus not in passed
            ]
            if not heads:
                return
            job, gpus = min(heads)
            if self._bid(job):
                self._waiting[gpus].popleft()
            else:
                passed.add(gpus)
