"""What is to be charged for a volume: the bytes of its newest version, for as long as it has them.

Versions before the newest cost nothing. Equal parts count in every file that has them: what the
platform saves by keeping them once is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from ledger.domain.ids import AccountId
from ledger.domain.span import Window
from ledger.domain.storage_charges import Kept
from marketplace.domain.volumes.volume import Step, Volume

SETTLES = timedelta(minutes=5)
"""So long after an hour it is charged: what was recorded on another machine's clock is there."""
HOUR = timedelta(hours=1)


def charged_until(now: datetime) -> datetime:
    """Return the end of the last hour that can be charged."""
    return (now - SETTLES).replace(minute=0, second=0, microsecond=0)


def payers_of(volume: Volume) -> list[AccountId]:
    """Return the accounts that pay, or paid, for a volume."""
    return list(dict.fromkeys(step.account_id for step in volume.steps))


def pieces_of(
    volume: Volume, *, account_id: AccountId, since: datetime | None, until: datetime
) -> list[Kept]:
    """Return what an account is to be charged for from `since` on; None: from the first byte.

    A piece has one price and lies in one day (UTC), and so in one month.
    """
    title = f"volume {volume.created.volume}"
    found: list[Kept] = []
    for step, window in _spans(volume.steps, since, until):
        free = not step.size_bytes or not step.nanos_per_gib_month
        if free or step.account_id != account_id:
            continue
        for day in _days(window):
            piece = Kept(
                volume_id=volume.volume_id,
                title=title,
                window=day,
                byte_seconds=step.size_bytes * (day.millis // 1_000),
                nanos_per_gib_month=step.nanos_per_gib_month,
                currency=step.currency,
                cost_centre=step.cost_centre,
            )
            joined = _joined(found[-1], piece) if found else None
            if joined is None:
                found.append(piece)
            else:
                found[-1] = joined
    return found


def _spans(
    steps: Sequence[Step], since: datetime | None, until: datetime
) -> Iterator[tuple[Step, Window]]:
    ends: Iterable[datetime] = (*(step.at for step in steps[1:]), until)
    for step, ends_at in zip(steps, ends, strict=True):
        begins = step.at if since is None else max(step.at, since)
        if begins < min(ends_at, until):
            yield step, Window(begins, min(ends_at, until))


def _days(window: Window) -> Iterator[Window]:
    begins = window.starts_at
    while begins < window.ends_at:
        midnight = begins.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        ends = min(midnight, window.ends_at)
        yield Window(begins, ends)
        begins = ends


def _joined(one: Kept, other: Kept) -> Kept | None:
    """Return two pieces as one, where they follow one another in a day at one price."""
    same = ("nanos_per_gib_month", "currency", "cost_centre")
    if any(getattr(one, name) != getattr(other, name) for name in same):
        return None
    meets = one.window.ends_at == other.window.starts_at
    if not meets or one.window.starts_at.date() != other.window.starts_at.date():
        return None
    return Kept(
        volume_id=one.volume_id,
        title=one.title,
        window=Window(one.window.starts_at, other.window.ends_at),
        byte_seconds=one.byte_seconds + other.byte_seconds,
        nanos_per_gib_month=one.nanos_per_gib_month,
        currency=one.currency,
        cost_centre=one.cost_centre,
    )
