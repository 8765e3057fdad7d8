"""A market in which a budget is reached while work runs that may be paused."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from uuid import UUID, uuid4

from django.conf import settings

from ledger.domain.ids import HostId, LeaseId, UserId
from ledger.domain.money import Rate
from marketplace.commands import bids, leases
from marketplace.commands.spending import (
    ask_spending_grant,
    decide_spending_grant,
    set_spending_budget,
)
from marketplace.domain.bids.bid import BidTerms
from marketplace.domain.facts.events import GpuRequest, Workload
from marketplace.domain.spending.events import SpendingGrantAsked, Threshold
from marketplace.domain.spending.periods import period_at
from marketplace.loops import advance_leases
from tests.marketplace.support.spending import budget, usd
from tests.marketplace.support.spent import Spender
from tests.pages.running_dry import GRACE, HOUR, UNIT, Dry
from tests.pages.world import BY, CONSUMER

ASKS, APPROVES = UserId(UUID(int=21)), UserId(UUID(int=22))


class Reached(Dry):
    """Work for 2 an hour, four hours long, under a budget of 10 a year."""

    def begin(self, *, listed: bool = False) -> None:
        if not listed:
            self.list_gpus(0, hours=40)
        pauses = (Threshold(800_000, "notify"), Threshold(1_000_000, "pause"))
        self.terms = replace(
            budget("Evaluation", 10, period="year", thresholds=pauses, at=self.now),
            tenant_id=self.tenant(CONSUMER),
        )
        set_spending_budget(self.store, terms=self.terms, by=BY)
        terms = BidTerms(
            bid_id=self.bid_id,
            tenant_id=self.tenant(CONSUMER),
            subscriber_id=self.unit_id,
            user_id=None,
            account_id=self.account_id,
            market=settings.ENV.market,
            request=GpuRequest(),
            gpus=1,
            placement="same-host",
            duration_seconds=4 * 3_600,
            deadline=self.now + 30 * HOUR,
            limit=Rate(2 * UNIT),
            service_class="on-demand",
            patience="immediate",
            workload=Workload(kind="other", checkpoint_seconds=60),
            pausable=True,
        )
        bids.place_bid(self.store, terms=terms, by=BY, now=self.now)
        self.settle()
        advance_leases(self.store, now=self.lease.starts_at, start_grace=GRACE)
        self.settle()
        for host_id in self.lease.host_ids:
            leases.lease_started(
                self.store,
                lease_id=LeaseId(self.lease.lease_id),
                host_id=HostId(host_id),
                by=BY,
                now=self.lease.starts_at,
            )
        self.settle()

    def reach(self) -> None:
        """Lower the amount to what a volume has cost."""
        spender = Spender(self)
        spender.store(spender.volume(), dollars=3, at=self.now)
        lower = replace(self.terms, amount=usd(3))
        set_spending_budget(self.store, terms=lower, by=BY)
        spender.look()
        self.settle()

    def grant(self, at: datetime) -> None:
        """Let one person ask for 20 more, and another approve it."""
        tenant_id, grant_id = self.tenant(CONSUMER), uuid4()
        asked = SpendingGrantAsked(
            tenant_id=tenant_id,
            budget_id=self.terms.budget_id,
            grant_id=grant_id,
            money=usd(20),
            starts_at=at,
            until=period_at("year", at).ends_at,
            why="a deadline",
            alone=False,
            by=ASKS,
            at=at,
        )
        ask_spending_grant(self.store, asked=asked, by=BY)
        decide_spending_grant(
            self.store,
            tenant_id=tenant_id,
            budget_id=self.terms.budget_id,
            grant_id=grant_id,
            approved=True,
            user_id=APPROVES,
            by=BY,
            now=at,
        )
        self.settle()
