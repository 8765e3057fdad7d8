"""A lease that runs, and what its two sides say about its price."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from ledger.domain.ids import LeaseId, TenantId
from ledger.domain.money import Money
from ledger.eventstore.port import load
from marketplace.commands.price_changes import agree_price, decline_price, propose_price
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.price_changes import PriceChanges, Wish
from tests.conftest import NOON
from tests.marketplace.support.going import Going
from tests.marketplace.support.market import OWNER, named, rate, somebody
from tests.marketplace.support.site import HOUR, TENANT


class Priced(Going):
    """Two GPUs for four hours from noon on, at 2.00 each, from an offer at 2.00."""

    def __init__(self, *, funds: int = 100, limit: float = 3, **terms: object) -> None:
        super().__init__(funds=funds)
        self.offer("a", gpus=2, at=2, windows=[(NOON, NOON + 60 * 24 * HOUR)])
        self.want(limit=rate(limit), **terms)
        self.begin()

    @property
    def lease(self) -> Lease:
        return self.lease_at(1)

    @property
    def of_lease(self) -> LeaseId:
        return self.lease.terms.lease_id

    def propose(
        self,
        price: float | str,
        *,
        hours: float = 2,
        who: TenantId = OWNER,
        word: str = "first",
        answer_by: datetime | None = None,
    ) -> UUID:
        """Propose a price that holds so many hours after noon; return its id."""
        wish = Wish(
            proposal_id=named(word),
            tenant_id=who,
            user_id=None,
            price=rate(price),
            since=NOON + timedelta(hours=hours),
            answer_by=answer_by,
            why="power is dear",
        )
        propose_price(self.store, lease_id=self.of_lease, wish=wish, by=somebody(), now=self.now)
        return named(word)

    def agree(self, word: str = "first", *, who: TenantId = TENANT) -> None:
        agree_price(
            self.store,
            lease_id=self.of_lease,
            proposal_id=named(word),
            tenant_id=who,
            user_id=None,
            by=somebody(),
            now=self.now,
        )
        self.go()

    def decline(self, word: str = "first", *, who: TenantId = TENANT) -> None:
        decline_price(
            self.store,
            lease_id=self.of_lease,
            proposal_id=named(word),
            tenant_id=who,
            user_id=None,
            why="too dear",
            by=somebody(),
            now=self.now,
        )

    def state_of(self, word: str = "first") -> str:
        known = load(self.store, PriceChanges, self.of_lease)
        assert known is not None
        return known.named(named(word)).state

    def set_aside(self) -> Money:
        return self.account.holds[self.lease.terms.hold_id].money
