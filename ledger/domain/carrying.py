"""When and to what an account is carried forward."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar
from uuid import UUID

from ledger.domain.accounts import Account
from ledger.domain.carried import AccountCarried, CarriedReference, CarriedVolume
from ledger.domain.journal import payment_entry
from ledger.domain.periods import Period


def carry(account: Account, *, up_to_version: int, event_id: UUID, now: datetime) -> AccountCarried:
    """Return what an account comes to at a version of its stream."""
    own = account.opened.account_id
    return AccountCarried(
        account_id=own,
        up_to_version=up_to_version,
        event_id=event_id,
        period=str(Period.of(now)),
        opened=account.opened,
        total=account.total,
        held=account.held,
        overdraft_nanos=account.overdraft_nanos,
        volumes=tuple(
            CarriedVolume(volume_id, stored)
            for volume_id, stored in sorted(account.stored.items(), key=lambda each: str(each[0]))
        ),
        references=tuple(
            CarriedReference(name, entry_id)
            for name, entry_id in sorted(account.credited.items())
            if entry_id != payment_entry(own, name)
        ),
        at=now,
        stopped=tuple(sorted(account.stopped)),
        for_use_nanos=account.for_use_nanos,
    )


@dataclass(frozen=True, slots=True)
class CarriedForward:
    """What an account was carried forward to, the last time. Its own stream tells it."""

    STREAM: ClassVar[str] = "carried-account"

    last: AccountCarried

    @classmethod
    def evolve(cls, state: CarriedForward | None, event: AccountCarried, /) -> CarriedForward:
        """Return what it was carried forward to now."""
        return cls(last=event)


def carry_forward(before: CarriedForward | None, carried: AccountCarried) -> list[AccountCarried]:
    """Decide whether to carry an account forward: each time further than before."""
    if before is not None and before.last.up_to_version >= carried.up_to_version:
        return []
    return [carried]
