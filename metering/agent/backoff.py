"""When to try again: sooner after the first failure, later after each further one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Doubles the pause from `first_ms` to `most_ms`; jitter takes off up to half of it.

    The jitter keeps a fleet from coming back all at one moment after an outage.
    """

    first_ms: int = 1_000
    most_ms: int = 60_000
    dice: random.Random = field(default_factory=random.Random)
    failures: int = 0
    next_ms: int = 0

    def is_due(self, now_ms: int) -> bool:
        """Return whether the pause is over."""
        return now_ms >= self.next_ms

    def failed(self, now_ms: int) -> None:
        """Lengthen the pause."""
        pause_ms = min(self.most_ms, self.first_ms * 2 ** min(self.failures, 30))
        self.failures += 1
        self.next_ms = now_ms + pause_ms - self.dice.randrange(pause_ms // 2 + 1)

    def succeeded(self) -> None:
        """End the pause."""
        self.failures = 0
        self.next_ms = 0
