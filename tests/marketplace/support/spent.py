"""A consumer of a small market who bids, and is charged for what its leases used."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID, uuid4

from config.wiring import projections
from ledger.commands.money import capture_usage, release_hold
from ledger.commands.storage import charge_volume
from ledger.domain.ids import BidId, HoldId, LeaseId, TenantId, UserId
from ledger.domain.money import MILLIS_PER_HOUR, NANOS_PER_UNIT, Rate
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.span import Window
from ledger.domain.storage import GIB_MONTH
from ledger.domain.storage_charges import Kept
from ledger.domain.usage_items import UsageItem
from ledger.following import follow_projections
from marketplace.commands.bids import place_bid
from marketplace.commands.volumes import create_volume
from marketplace.domain.bids.bid import BidTerms
from marketplace.domain.facts.events import GpuRequest, Workload
from marketplace.domain.volumes.terms import GIB
from marketplace.loops import BudgetWatch
from tests.pages.world import BY, CONSUMER, OWNER, World

DOLLAR = Rate(NANOS_PER_UNIT)


class Spender:
    """Bids of one dollar an hour for one GPU, and charges for their hours."""

    def __init__(self, world: World) -> None:
        self.world, self.watch = world, BudgetWatch()
        self.tenant_id = TenantId(world.tenant(CONSUMER))

    def bid(
        self, *, hours: int = 4, project: str = "", kind: str = "other", user: UserId | None = None
    ) -> BidId:
        """Place a bid."""
        terms = BidTerms(
            bid_id=BidId(uuid4()),
            tenant_id=self.tenant_id,
            subscriber_id=self.world.unit_id,
            user_id=user,
            account_id=self.world.account_id,
            market="main",
            request=GpuRequest(),
            gpus=1,
            placement="same-host",
            duration_seconds=hours * 3_600,
            limit=DOLLAR,
            service_class="on-demand",
            patience="immediate",
            workload=Workload(kind=kind, project=project),
        )
        place_bid(self.world.store, terms=terms, by=BY, now=self.world.now)
        return terms.bid_id

    def charge(
        self, bid_id: BidId, *, hours: int = 1, at: datetime, item: UsageItem | None = None
    ) -> None:
        """Charge hours of a bid's lease that began at `at`."""
        millis = hours * MILLIS_PER_HOUR
        capture_usage(
            self.world.store,
            account_id=self.world.account_id,
            hold_id=HoldId(bid_id),
            lease_id=LeaseId(bid_id),
            window=Window(at, at + timedelta(hours=hours)),
            gpu_millis=millis,
            price=DOLLAR,
            fee_ppm=0,
            owner_millis=[(TenantId(self.world.tenant(OWNER)), millis)],
            platform_id=PLATFORM_ID,
            cost_centre="",
            item=item or UsageItem(),
            by=BY,
            now=self.world.now,
        )

    def volume(self, name: str = "data", *, user: UserId | None = None) -> UUID:
        """Keep a volume at a dollar for a GiB and month."""
        volume_id, _ = create_volume(
            self.world.store,
            tenant_id=self.tenant_id,
            subscriber_id=self.world.unit_id,
            account_id=self.world.account_id,
            cost_centre="",
            name=name,
            quota_bytes=GIB,
            nanos_per_gib_month=NANOS_PER_UNIT,
            currency="USD",
            expires_at=self.world.now + timedelta(days=60),
            user_id=user,
            by=BY,
            now=self.world.now,
        )
        return volume_id

    def store(self, volume_id: UUID, *, dollars: int, at: datetime) -> None:
        """Charge so much for what was kept in a volume in the hour from `at` on."""
        charge_volume(
            self.world.store,
            account_id=self.world.account_id,
            pieces=[
                Kept(
                    volume_id=volume_id,
                    title="data",
                    window=Window(at, at + timedelta(hours=1)),
                    byte_seconds=dollars * GIB_MONTH,
                    nanos_per_gib_month=NANOS_PER_UNIT,
                    currency="USD",
                    cost_centre="",
                )
            ],
            platform_id=PLATFORM_ID,
            by=BY,
            now=self.world.now,
        )

    def release(self, bid_id: BidId) -> None:
        """Give back what is left of a bid's hold."""
        release_hold(
            self.world.store,
            account_id=self.world.account_id,
            hold_id=HoldId(bid_id),
            by=BY,
            now=self.world.now,
        )

    def look(self, now: datetime | None = None) -> None:
        """Let rows be written and budgets be told."""
        self._follow()
        self.watch.run_once(self.world.store, now=now or self.world.now)
        self._follow()

    def _follow(self) -> None:
        """Write the rows; the engine, which goes by the clock, decides nothing."""
        while follow_projections(self.world.store, projections()):
            pass
