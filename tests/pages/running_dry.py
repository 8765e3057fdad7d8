"""A market in which a wallet runs dry under work that goes on by itself."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID, uuid4

from django.conf import settings

from ledger import commands
from ledger.domain.ids import BidId, EntryId, HoldId, HostId, LeaseId
from ledger.domain.money import NANOS_PER_UNIT, Money, Rate
from ledger.domain.span import Window
from marketplace.commands import bids, leases
from marketplace.domain.bids.bid import BidTerms
from marketplace.domain.facts.events import GpuRequest, Workload
from marketplace.loops import advance_leases
from marketplace.models import LeaseRow
from tests.pages.world import BY, CONSUMER, OWNER, PLATFORM, World

HOUR = timedelta(hours=1)
GRACE = timedelta(minutes=10)
UNIT = NANOS_PER_UNIT


class Dry(World):
    """A market in which work for 2 an hour runs on an account with 1 to spare."""

    bid_id = BidId(UUID(int=4_711))

    def begin(self, *, listed: bool = False) -> None:
        if not listed:
            self.list_gpus(0, hours=40)
        commands.place_hold(
            self.store,
            account_id=self.account_id,
            hold_id=HoldId(uuid4()),
            money=Money(95 * UNIT),
            purpose="other work",
            by=BY,
            now=self.now,
        )
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
            duration_seconds=7_200,
            limit=Rate(2 * UNIT),
            service_class="on-demand",
            patience="immediate",
            workload=Workload(kind="other", checkpoint_seconds=60),
            auto_extend_until=self.now + 12 * HOUR,
            resume=True,
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

    @property
    def lease(self) -> LeaseRow:
        return LeaseRow.objects.get(bid_id=self.bid_id)

    def stop(self, now: datetime) -> None:
        """Let the hosts stop the work that they were asked to stop, and all be charged."""
        self._charge_until(now)

    def end(self) -> None:
        """Let the lease's time be over, its work gone, and all of its time be charged."""
        self._charge_until(self.lease.ends_at)

    def _charge_until(self, now: datetime) -> None:
        lease = self.lease
        advance_leases(self.store, now=now, start_grace=GRACE)
        for host_id in lease.host_ids:
            leases.lease_stopped(
                self.store,
                lease_id=LeaseId(lease.lease_id),
                host_id=HostId(host_id),
                exit_code=None,
                by=BY,
                now=now,
            )
        self.settle()
        millis = int((now - lease.starts_at) / timedelta(milliseconds=1))
        commands.capture_usage(
            self.store,
            account_id=self.account_id,
            hold_id=HoldId(self.bid_id),
            lease_id=LeaseId(lease.lease_id),
            window=Window(lease.starts_at, now),
            gpu_millis=millis,
            price=Rate(2 * UNIT),
            fee_ppm=50_000,
            owner_millis=[(self.tenant(OWNER), millis)],
            platform_id=self.tenant(PLATFORM),
            cost_centre="CI-2100",
            by=BY,
            now=now,
        )
        commands.release_hold(
            self.store,
            account_id=self.account_id,
            hold_id=HoldId(self.bid_id),
            by=BY,
            now=now,
        )
        self.settle()

    def top_up(self, units: int) -> None:
        commands.add_funds(
            self.store,
            account_id=self.account_id,
            entry_id=EntryId(uuid4()),
            money=Money(units * UNIT),
            reference="transfer 2",
            platform_id=self.tenant(PLATFORM),
            by=BY,
            now=self.now,
        )
        self.settle()
