"""How long a bid rests that no cloud can serve now, and what it is told.

Asking clouds uses up small quotas, so each time in vain the pause doubles, up to an hour. An
amended bid is another question: it is asked at once, and the pauses begin anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from bursting.domain.events import BurstDeferred
from ledger.domain.ids import BidId, TenantId

PAUSE_FIRST = timedelta(minutes=1)
PAUSE_MAX = timedelta(hours=1)
TRIES_COUNTED_MAX = 10
"""From so many tries on the pause is the longest: 2 to the 9th minutes are more than an hour."""
WORDS_LENGTH_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Wait:
    """What one bid's stream of vain tries adds up to: the last of them."""

    STREAM: ClassVar[str] = "burst-wait"

    last: BurstDeferred

    @classmethod
    def evolve(cls, state: Wait | None, event: BurstDeferred, /) -> Wait:
        """Return the wait after `event`."""
        return cls(event)

    def rests(self, bid_version: int, now: datetime) -> bool:
        """Test if clouds are not asked again yet for the bid as it stands."""
        return self.last.bid_version == bid_version and now < self.last.next_at


def defer(
    wait: Wait | None,
    *,
    bid_id: BidId,
    tenant_id: TenantId,
    bid_version: int,
    reason: str,
    words: str,
    now: datetime,
) -> list[BurstDeferred]:
    """Decide how long a bid rests after a try in vain; nothing to do where it rests already."""
    if wait is not None and wait.rests(bid_version, now):
        return []
    before = wait.last.tries if wait is not None and wait.last.bid_version == bid_version else 0
    pause = min(PAUSE_FIRST * 2 ** min(before, TRIES_COUNTED_MAX), PAUSE_MAX)
    return [
        BurstDeferred(
            bid_id=bid_id,
            tenant_id=tenant_id,
            reason=reason,
            words=words[:WORDS_LENGTH_MAX],
            tries=before + 1,
            bid_version=bid_version,
            next_at=now + pause,
            at=now,
        )
    ]
