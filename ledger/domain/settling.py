"""When an owner's earnings are settled, up to when, and what of them is payable.

    payable = owed - earned since the cut-off - held back - set aside, in whole cents

owed: all that was earned, less compensation and what was paid out. Held back: a share of what was
earned in the last days before the cut-off, since late corrections and disputes concern those most.
What is below zero, or below the minimum, or less than a cent, is carried to the next settlement.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from ledger.domain.payout_events import Schedule

PPM = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PayoutTerms:
    """How the platform pays its owners, unless an owner chose otherwise.

    held_share_ppm: of what was earned in the last `held_days` days, how much waits.
    alone_nanos_max: up to this much one person's approval is enough; above it takes two.
    details_wait_seconds: how long a new bank account waits before it may be confirmed.
    """

    schedule: Schedule = "weekly"
    minimum_nanos: int = 10_000_000_000
    held_days: int = 7
    held_share_ppm: int = 100_000
    alone_nanos_max: int = 1_000_000_000_000
    details_wait_seconds: int = 259_200


@dataclass(frozen=True, slots=True)
class Due:
    """A settlement that is due. period: what it is called. cut_off: the first day not in it."""

    period: str
    cut_off: date

    def held_from(self, days: int) -> date:
        """Return the first day of those of whose earnings a share is held back."""
        return self.cut_off - timedelta(days=days)


def due(schedule: Schedule, now: datetime) -> Due | None:
    """Return the last settlement of a schedule that is due; None: it is done by hand.

    Weeks begin on Monday, months on the first, in UTC.
    """
    today = now.astimezone(UTC).date()
    match schedule:
        case "weekly":
            cut_off = today - timedelta(days=today.weekday())
            year, week, _ = (cut_off - timedelta(days=1)).isocalendar()
            return Due(f"{year}-W{week:02d}", cut_off)
        case "monthly":
            cut_off = today.replace(day=1)
            return Due(f"{cut_off - timedelta(days=1):%Y-%m}", cut_off)
        case "manual":
            return None


def by_hand(now: datetime) -> Due:
    """Return a settlement of all that was earned up to now."""
    today = now.astimezone(UTC).date()
    return Due(today.isoformat(), today + timedelta(days=1))


def next_cut_off(schedule: Schedule, now: datetime) -> date | None:
    """Return the day on which the next settlement is due; None: it is done by hand."""
    today = now.astimezone(UTC).date()
    match schedule:
        case "weekly":
            return today + timedelta(days=7 - today.weekday())
        case "monthly":
            return (today.replace(day=1) + timedelta(days=32)).replace(day=1)
        case "manual":
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Earned:
    """What was earned, in nano-units, without what was paid out.

    total: all of it, less what was taken back, such as compensation. later: gains since the
    cut-off. recent: gains of the days of which a share is held back. set_aside: held by disputes.
    """

    total: int
    later: int
    recent: int
    set_aside: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Payable:
    """What of an owner's earnings may be paid, in nano-units. `nanos` is zero or whole cents."""

    owed: int
    later: int
    held_back: int
    set_aside: int
    nanos: int


def payable(earned: Earned, *, paid_out: int, held_share_ppm: int, unit: int) -> Payable:
    """Work out what may be paid. paid_out: all payouts less what came back. unit: of a cent."""
    owed = earned.total - paid_out
    held_back = -(-earned.recent * held_share_ppm // PPM)
    free = owed - earned.later - held_back - earned.set_aside
    return Payable(
        owed=owed,
        later=earned.later,
        held_back=held_back,
        set_aside=earned.set_aside,
        nanos=max(0, free // unit * unit),
    )
