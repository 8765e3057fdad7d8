"""What of a lease's charges went back by now, and what is left that may.

Use is given back in two ways that name what they correct: a share of all of a lease's charges for
a missed promise, and what was contested of one charge. Neither gives back what the other did, and
together never more than was charged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ledger.domain.events import CompensationPaid, SlaCredited
from ledger.domain.ids import AccountId, TenantId
from ledger.domain.money import Money


@dataclass(frozen=True, slots=True)
class Missed:
    """What one owner credited for a promise: nanos, a share of all charges, which were of_nanos."""

    owner_id: TenantId
    nanos: int
    of_nanos: int

    def share_of(self, charged: int) -> int:
        """Return how much of one charge it gave back: rounded up, so that no more is left."""
        return -(-self.nanos * charged // self.of_nanos) if self.of_nanos else self.nanos


@dataclass(frozen=True, slots=True)
class GivenBack:
    """What of a hold's charges went back. disputed_nanos: as disputes about them decided."""

    disputed_nanos: int = 0
    missed: tuple[Missed, ...] = ()

    def after_dispute(self, money: Money) -> GivenBack:
        """Return this and what a dispute gave back."""
        return replace(self, disputed_nanos=self.disputed_nanos + money.nanos)

    def after_miss(self, credit: SlaCredited, captured: Money) -> GivenBack:
        """Return this and what a missed promise gave back of what disputes had left."""
        of_nanos = captured.nanos - self.disputed_nanos
        missed = Missed(credit.owner_id, credit.money.nanos, of_nanos)
        return replace(self, missed=(*self.missed, missed))

    def left_of(self, captured: Money) -> Money:
        """Return what of all charges of the hold may still go back."""
        gone = self.disputed_nanos + sum(each.nanos for each in self.missed)
        return Money(max(captured.nanos - gone, 0), captured.currency)

    def left_of_charge(
        self, charged: Money, got: Mapping[AccountId, int], owners: Mapping[AccountId, TenantId]
    ) -> tuple[Money, dict[AccountId, int]]:
        """Return what is left of one charge, and of what each account got of it.

        An owner's credit is a share of what its GPUs were charged, the platform's fee with it; so
        what is left in all may be less than the sum of what is left to each.
        """
        gone = {each.owner_id: each.share_of(charged.nanos) for each in self.missed}
        by_account = {
            account_id: max(nanos - gone.get(owners[account_id], 0), 0)
            if account_id in owners
            else nanos
            for account_id, nanos in got.items()
        }
        left = max(charged.nanos - sum(gone.values()), 0)
        return Money(left, charged.currency), by_account


NOTHING_GIVEN = GivenBack()


def for_use_after(before: int, total: int, event: object) -> int:
    """Return what of a total is for use only, in nano-units, once an entry is in that total.

    Compensation and what was credited for a missed promise come from owners' earnings, which may
    fall below zero by it: they are used and never paid out. What was paid in is used first.
    """
    came = event.money.nanos if isinstance(event, CompensationPaid | SlaCredited) else 0
    return max(min(before + came, total), 0)
