"""How long an account lasts, and when its people are told that it runs out.

left: what it can still set aside, overdraft included. there: what was left when money last came in,
or its limit was last set. Used is what is gone of that: charged, or set aside for what runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import ClassVar, assert_never

from ledger.domain.depletion_events import (
    AccountDepletes,
    AccountLasts,
    AccountRefilled,
    AccountRunsOut,
    Level,
    WatchEvent,
)
from ledger.domain.ids import AccountId, TenantId
from ledger.domain.money import Money

PPM = 1_000_000
LEVELS: tuple[Level, ...] = (80, 95, 100)
"""Percent of what was there: people are told once as each is reached."""
HOUR_MILLIS = 3_600_000
HORIZON = timedelta(days=30)
"""So far ahead is looked; who lasts longer lasts."""
DEPLETES_WITHIN = timedelta(days=1)
LASTS_BEYOND = timedelta(hours=36)
"""Who was told that an account is empty within a day is told again only once it lasted longer."""


@dataclass(frozen=True, slots=True)
class Draw:
    """What an account will be asked for in [since, until): nano-units for each hour."""

    nanos_per_hour: int
    since: datetime
    until: datetime


def lasts_until(left_nanos: int, draws: Iterable[Draw], *, now: datetime) -> datetime | None:
    """Return up to when an account covers what it will be asked for, to the millisecond.

    None: it covers all of that, as far as is looked ahead. `now`, where it covers nothing by now.

    Args:
        left_nanos: what can be set aside now. What runs is covered up to the end of its lease
            already: draws are of what comes after.
    """
    if left_nanos < 0:
        return now
    limit = now + HORIZON
    ahead = [
        (max(draw.since, now), min(draw.until, limit), draw.nanos_per_hour)
        for draw in draws
        if draw.nanos_per_hour > 0 and draw.until > now and draw.since < min(draw.until, limit)
    ]
    moments = sorted({moment for since, until, _ in ahead for moment in (since, until)})
    left = left_nanos * HOUR_MILLIS
    for begins, ends in pairwise(moments):
        rate = sum(nanos for since, until, nanos in ahead if since <= begins < until)
        asked = rate * _millis(ends - begins)
        if asked > left:
            return begins + timedelta(milliseconds=left // rate)
        left -= asked
    return None


def _millis(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)


def used_ppm(*, there_nanos: int, left_nanos: int) -> int:
    """Return which part of what was there is gone; 0 where more is left than there was."""
    if there_nanos <= 0:
        return 0 if left_nanos >= 0 else PPM
    gone = max(0, there_nanos - left_nanos)
    return min(PPM, gone * PPM // there_nanos)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How an account stands at a look. lasts_until: None: as far as is looked ahead."""

    account_id: AccountId
    tenant_id: TenantId
    title: str
    there: Money
    left: Money
    lasts_until: datetime | None

    @property
    def level(self) -> int:
        """Return the highest level that is reached; 0: none."""
        used = used_ppm(there_nanos=self.there.nanos, left_nanos=self.left.nanos)
        return max((level for level in LEVELS if used * 100 >= level * PPM), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountWatch:
    """What an account's people were told. level: the highest since money last came in.

    depletes: they were told that it is empty soon, and it has not lasted longer since.
    """

    STREAM: ClassVar[str] = "account-watch"

    level: int = 0
    depletes: bool = False

    @classmethod
    def evolve(cls, state: AccountWatch | None, event: WatchEvent, /) -> AccountWatch:
        """Return what was told after `event`."""
        before = state or cls()
        match event:
            case AccountRunsOut():
                return replace(before, level=event.level)
            case AccountRefilled():
                return replace(before, level=0)
            case AccountDepletes():
                return replace(before, depletes=True)
            case AccountLasts():
                return replace(before, depletes=False)
            case _:
                assert_never(event)

    def look(self, seen: Seen, *, now: datetime) -> list[WatchEvent]:
        """Decide what is told now: each level once on the way up, and that it is empty soon, once.

        Told again only after it was lifted: less than the first level is used, or it lasts.
        """
        events: list[WatchEvent] = []
        account_id, level = seen.account_id, seen.level
        if level > self.level:
            events.append(
                AccountRunsOut(
                    account_id=account_id,
                    tenant_id=seen.tenant_id,
                    title=seen.title,
                    level=_known(level),
                    left=seen.left,
                    there=seen.there,
                    lasts_until=seen.lasts_until,
                    at=now,
                )
            )
        elif level == 0 and self.level:
            events.append(AccountRefilled(account_id=account_id, at=now))
        lasts = seen.lasts_until
        if not self.depletes and lasts is not None and lasts <= now + DEPLETES_WITHIN:
            events.append(
                AccountDepletes(
                    account_id=account_id,
                    tenant_id=seen.tenant_id,
                    title=seen.title,
                    left=seen.left,
                    lasts_until=lasts,
                    at=now,
                )
            )
        elif self.depletes and (lasts is None or lasts > now + LASTS_BEYOND):
            events.append(AccountLasts(account_id=account_id, at=now))
        return events


def _known(level: int) -> Level:
    return next(each for each in LEVELS if each == level)
