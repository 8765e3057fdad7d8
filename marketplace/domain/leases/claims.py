"""What may cut a lease short: reclaims of its owners, an interruption, a sale of its rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from ledger.domain.ids import TenantId
from ledger.domain.money import Money
from marketplace.domain.facts.events import (
    LeaseHostLost,
    LeaseInterrupted,
    LeaseShortened,
    ReclaimRequested,
    ResaleEnded,
    ResaleListed,
    ResaleOpened,
)
from marketplace.domain.leases.reclaim_schedule import Reclaim

RightsEvent = (
    ReclaimRequested
    | LeaseInterrupted
    | ResaleListed
    | ResaleOpened
    | ResaleEnded
    | LeaseShortened
    | LeaseHostLost
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What was claimed of one lease, and by whom.

    stop_at: when the first of all claims is due. reclaims: the last of each owner, the one that
    is due first in front. interrupted: the market's own claim is due first; reclaimed_first: an
    owner's claim was there before it.
    """

    stop_at: datetime | None = None
    reclaims: tuple[Reclaim, ...] = ()
    interrupted: bool = False
    reclaimed_first: bool = False
    resale: ResaleListed | None = None
    resale_open: bool = False
    shortened: LeaseShortened | None = None
    heard_at: datetime | None = None
    """When a host was heard last, for whose silence the lease ends."""

    def opening(self, *, tenant_id: TenantId, now: datetime) -> list[ResaleOpened]:
        """Open the rest to the market once the owner's first refusal is over."""
        resale = self.resale
        if resale is None or self.resale_open or now < resale.opens_at:
            return []
        return [
            ResaleOpened(
                lease_id=resale.lease_id,
                market=resale.market,
                tenant_id=tenant_id,
                since=resale.since,
                ends_at=resale.ends_at,
                floor=resale.floor,
                lease_min_seconds=resale.lease_min_seconds,
                at=now,
            )
        ]

    def after(self, event: RightsEvent, owed: Money | None) -> Rights:
        """Return the claims after one more. owed: what a reclaim pays."""
        match event:
            case ReclaimRequested():
                assert owed is not None
                first = Reclaim(event.owner_id, event.stop_at, owed)
                others = [each for each in self.reclaims if each.owner_id != event.owner_id]
                return replace(
                    self,
                    stop_at=event.stop_at,
                    reclaims=(first, *others),
                    interrupted=False,
                    resale=None,
                )
            case LeaseInterrupted():
                paid = [Reclaim(c.owner_id, event.stop_at, c.money) for c in event.compensations]
                return replace(
                    self,
                    stop_at=event.stop_at,
                    reclaims=tuple(paid),
                    interrupted=True,
                    reclaimed_first=self.reclaimed_first
                    or (self.stop_at is not None and not self.interrupted),
                    resale=None,
                )
            case ResaleListed():
                return replace(self, resale=event, resale_open=False)
            case ResaleOpened():
                return replace(self, resale_open=True)
            case ResaleEnded():
                return replace(self, resale=None)
            case LeaseHostLost():
                return self._with_lost(event)
            case LeaseShortened():
                return replace(self, shortened=event, resale=None)
            case _:
                assert_never(event)

    def _with_lost(self, lost: LeaseHostLost) -> Rights:
        """Add what the owner of a lost host pays, to what it owes for a reclaim that was due."""
        owed = sum(each.money.nanos for each in self.reclaims if each.owner_id == lost.owner_id)
        money = Money(owed + lost.compensation.nanos, lost.compensation.currency)
        others = [each for each in self.reclaims if each.owner_id != lost.owner_id]
        pays = Reclaim(lost.owner_id, lost.at, money)
        return replace(self, reclaims=(pays, *others), heard_at=lost.heard_at)


NO_CLAIMS = Rights()
