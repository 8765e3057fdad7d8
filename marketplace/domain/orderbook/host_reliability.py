"""How reliable a host has proved: the share of its leases that it did not break off.

A lease counts when it is over: well, if its consumer or the clock ended it; badly, if its owner
took the capacity back early or a fault ended it. What the market itself does (an interruption, a
bid withdrawn before the grant) says nothing of the host, nor does an owner's own use: else it
could prove itself reliable at no cost. A fault of a gang counts against each of its hosts, for
nobody can tell them apart; a reclaim against those of the owner who reclaimed, and silence against
the hosts that are not heard. A lease that the clock ends while its host is not heard counts badly.

Older leases weigh less, half for every HALF_LIFE; both sums shrink alike, so the share only changes
with a lease that ends: between two facts nothing becomes possible by itself. Nothing is said before
LEASES_MIN leases have ended: unknown is neither good nor bad, and meets no bound.
Whole numbers only, so that every machine works out the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from marketplace.domain.facts import close_reasons

PPM = 1_000_000
LEASES_MIN = 5
HALF_LIFE = timedelta(days=30) // timedelta(milliseconds=1)
WEIGHT = 1_000_000_000
"""Of a lease that has just ended: large, so that halving it for years leaves whole numbers."""

BROKEN_OFF = close_reasons.FAULTS | {
    close_reasons.RECLAIMED,
    close_reasons.RECLAIMED_BEFORE_START,
    close_reasons.MAINTENANCE,
}
WENT_WELL = frozenset(
    {
        close_reasons.WORK_DONE,
        close_reasons.CLOSED_BY_CONSUMER,
        close_reasons.WORK_FAILED,
        close_reasons.OVER_SHARE,
        close_reasons.RESOLD,
        close_reasons.WINDOW_OVER,
        close_reasons.MONEY_SPENT,
        close_reasons.AWAITS_MONEY,
    }
)


@dataclass(slots=True)
class Record:
    """What is known of one host. good, all: weighed leases as of `at` (ms); leases: how many."""

    good: int = 0
    all: int = 0
    leases: int = 0
    at: int = 0

    def note(self, reason: int, *, at: int) -> None:
        """Take in that a lease ended, by its close reason; some reasons say nothing."""
        if reason not in BROKEN_OFF and reason not in WENT_WELL:
            return
        elapsed = max(0, at - self.at)
        self.good, self.all = _faded(self.good, elapsed), _faded(self.all, elapsed)
        self.at = max(self.at, at)
        self.good += WEIGHT if reason in WENT_WELL else 0
        self.all += WEIGHT
        self.leases += 1

    @property
    def ppm(self) -> int | None:
        """Return the share of leases that went well; None: too few have ended."""
        return None if self.leases < LEASES_MIN else self.good * PPM // self.all


def _faded(weight: int, millis: int) -> int:
    """Return what a weight is after some time: halved for each half-life, evenly in between."""
    halvings, rest = divmod(millis, HALF_LIFE)
    weight >>= min(halvings, 64)
    return weight - weight * rest // (2 * HALF_LIFE)


def meets(ppm_min: int | None, record: Record) -> bool:
    """Tell if a host is as reliable as is asked; unknown meets no bound."""
    if ppm_min is None:
        return True
    ppm = record.ppm
    return ppm is not None and ppm >= ppm_min


def together(records: Iterable[Record]) -> int | None:
    """Return the share for some hosts together, by their leases; None: too few have ended."""
    known = [record for record in records if record.ppm is not None]
    at = max((record.at for record in known), default=0)
    weighed = sum(_faded(record.all, at - record.at) for record in known)
    good = sum(_faded(record.good, at - record.at) for record in known)
    return good * PPM // weighed if weighed else None
