"""A market under policies, cleared by its engine."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from ledger.domain.event import Event
from ledger.domain.ids import BidId, SubscriberId, TenantId
from ledger.eventstore.port import START
from marketplace.domain.facts.events import (
    BidPlaced,
    LeaseClosed,
    LeaseGranted,
    Patience,
    RoundCleared,
)
from marketplace.domain.facts.policy_events import (
    CohortPlaced,
    LimitScope,
    LimitSet,
    QuotaSet,
    UnitPlaced,
)
from tests.marketplace.support.market import MARKET, Market, named


class Governed(Market):
    """A market with two units, red and blue, in one cohort, and eight GPUs on one host."""

    def govern(self, **quotas: tuple[int | None, int | None]) -> None:
        self.policy(
            CohortPlaced(market=MARKET, cohort="lab", parent=None, tenant_id=None, at=self.now)
        )
        for word, (nominal, borrowing) in quotas.items():
            unit = unit_of(word)
            self.policy(
                UnitPlaced(
                    market=MARKET,
                    subscriber_id=SubscriberId(unit),
                    tenant_id=TenantId(unit),
                    cohort="lab",
                    at=self.now,
                )
            )
            self.quota(word, nominal, borrowing)

    def quota(self, word: str, nominal: int | None, borrowing: int | None = None) -> None:
        self.policy(
            QuotaSet(
                market=MARKET,
                node=str(unit_of(word)),
                gpu_class="H100",
                nominal=nominal,
                borrowing=borrowing,
                lending=None,
                at=self.now,
            )
        )

    def limit(self, scope: LimitScope, **figures: object) -> None:
        terms: dict[str, object] = dict.fromkeys(("gpus", "memory_mib", "gpu_hours", "money"))
        self.policy(
            LimitSet(
                market=MARKET,
                scope=scope,
                subject=None,
                tenant_id=None,
                period="day",
                at=self.now,
                **(terms | figures),  # type: ignore[arg-type]
            )
        )

    def policy(self, event: Event) -> None:
        self.put(f"governance-{MARKET}", event)

    def ask(
        self,
        unit: str,
        word: str,
        gpus: int,
        *,
        at: float = 2,
        hours: float = 1,
        patience: Patience = "immediate",
    ) -> BidId:
        """Place a bid of a unit."""
        self.asking = unit
        try:
            return self.bid(word, gpus=gpus, at=at, hours=hours, patience=patience)
        finally:
            self.asking = ""

    asking = ""

    def put(self, stream: str, event: Event):  # type: ignore[no-untyped-def]
        if isinstance(event, BidPlaced) and self.asking:
            unit = unit_of(self.asking)
            event = replace(event, subscriber_id=SubscriberId(unit), tenant_id=TenantId(unit))
        return super().put(stream, event)

    def granted(self) -> dict[str, LeaseGranted]:
        """Return what was granted, by bid."""
        page = self.store.read_all(after=START, limit=1_000)
        return {
            str(each.event.bid_id): each.event
            for each in page.events
            if isinstance(each.event, LeaseGranted)
        }

    def told(self, bid_id: BidId) -> str | None:
        """Return the reason a bid was last given."""
        page = self.store.read_all(after=START, limit=1_000)
        reasons = [
            unmatched.reason
            for each in page.events
            if isinstance(each.event, RoundCleared)
            for unmatched in each.event.unmatched
            if unmatched.bid_id == bid_id
        ]
        return reasons[-1] if reasons else None

    def end(self, bid_id: BidId) -> None:
        """End a lease now."""
        granted = self.granted()[str(bid_id)]
        self.put(
            f"lease-{granted.lease_id}",
            LeaseClosed(
                lease_id=granted.lease_id,
                market=MARKET,
                reason=102,
                failed=False,
                compensation=None,
                compensation_from=None,
                at=self.now,
            ),
        )


def unit_of(word: str) -> UUID:
    return named(f"unit {word}")
