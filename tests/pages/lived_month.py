"""A month that is over, lived through by the real commands: bids, leases, use that was metered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from django.conf import settings

from config.wiring import policies, projections
from ledger.domain.ids import BidId, HostId, LeaseId, UserId
from ledger.domain.money import NANOS_PER_UNIT, Rate
from ledger.domain.periods import Period
from ledger.domain.span import Window
from ledger.following import follow_projections
from ledger.models import Person
from ledger.reacting import follow_policies
from marketplace.commands import bids, leases
from marketplace.depleting import watch_accounts
from marketplace.domain.bids.bid import BidTerms
from marketplace.domain.facts.events import GpuRequest, Workload
from marketplace.loops import advance_leases
from marketplace.models import LeaseRow
from metering.commands import close_meter, close_usage_window, correct_usage
from metering.domain.events import GpuUse
from tests.pages.world import BY, CONSUMER, OWNER, PASSES_MAX, World

HOUR = timedelta(hours=1)
HOUR_MS = 3_600_000
GRACE = timedelta(minutes=10)


class LivedMonth(World):
    """The month before this one. Its clock stands where the story is, and goes on by `go_on`."""

    @classmethod
    def begin(cls) -> LivedMonth:
        """Found the market on the third day of the last month, at noon in UTC."""
        now = datetime.now(UTC)
        last = Period.of(now.replace(day=1) - timedelta(days=1))
        world = cls(now=last.window.starts_at + timedelta(days=2, hours=12))
        world.found()
        return world

    @property
    def period(self) -> Period:
        """Return the month."""
        return Period.of(self.now)

    def settle(self) -> None:
        """Run the engine, policies and projections until nothing is left to do."""
        for _ in range(PASSES_MAX):
            done = self.engine.run_once(now=self.now)
            done += follow_policies(self.store, policies(settings.ENV, clock=lambda: self.now))
            done += follow_projections(self.store, projections())
            if not done:
                return
        raise AssertionError("the market does not come to rest")

    def follow(self) -> None:
        """Write the rows of what was done on pages, with the policies that follow from it."""
        for _ in range(PASSES_MAX):
            done = follow_policies(self.store, policies(settings.ENV, clock=lambda: self.now))
            done += follow_projections(self.store, projections())
            if not done:
                return
        raise AssertionError("the rows do not come to rest")

    def lease(
        self,
        *,
        hours: int,
        gpus: int = 1,
        limit: str = "2.00",
        project: str = "",
        kind: str = "other",
    ) -> LeaseRow:
        """Place a bid, let it be granted, and let its work start."""
        units, _, cents = limit.partition(".")
        terms = BidTerms(
            bid_id=BidId(uuid4()),
            tenant_id=self.tenant(CONSUMER),
            subscriber_id=self.unit_id,
            user_id=self.person(),
            account_id=self.account_id,
            market=settings.ENV.market,
            request=GpuRequest(),
            gpus=gpus,
            placement="same-host",
            duration_seconds=hours * 3_600,
            limit=Rate(int(units) * NANOS_PER_UNIT + int(cents or 0) * NANOS_PER_UNIT // 100),
            service_class="on-demand",
            patience="immediate",
            workload=Workload(kind=kind, project=project),
        )
        bids.place_bid(self.store, terms=terms, by=BY, now=self.now)
        self.settle()
        row = LeaseRow.objects.get(bid_id=terms.bid_id)
        self._advance(row.starts_at)
        for host_id in row.host_ids:
            leases.lease_started(
                self.store,
                lease_id=LeaseId(row.lease_id),
                host_id=HostId(host_id),
                by=BY,
                now=row.starts_at,
            )
        self.settle()
        return row

    def person(self) -> UserId:
        """Return who bids for the consumer."""
        self.member(CONSUMER, "consumer")
        return UserId(Person.objects.get(email=f"consumer@{CONSUMER}.example").id)

    def use(self, row: LeaseRow, *, hours: int, first: int = 0) -> None:
        """Let hours of a lease be metered, one window for each, and charged."""
        for hour in range(first, first + hours):
            window = Window(row.starts_at + hour * HOUR, row.starts_at + (hour + 1) * HOUR)
            close_usage_window(
                self.store,
                lease_id=LeaseId(row.lease_id),
                window=window,
                gpus=self._uses(row, HOUR_MS),
                gaps=(),
                by=BY,
                now=window.ends_at,
            )
        self.settle()

    def correct(self, row: LeaseRow, *, hour: int, minutes: int) -> None:
        """Let use of an hour that no window had be proved late."""
        starts_at = row.starts_at + hour * HOUR
        correct_usage(
            self.store,
            lease_id=LeaseId(row.lease_id),
            window=Window(starts_at, starts_at + HOUR),
            added=self._uses(row, minutes * 60_000),
            gaps=(),
            number=1,
            reason="host-late",
            by=BY,
            now=datetime.now(UTC),
        )
        self.follow()

    def _uses(self, row: LeaseRow, millis: int) -> list[GpuUse]:
        return [
            GpuUse(
                gpu_uuid=uuid,
                host_id=HostId(row.host_ids[0]),
                owner_id=self.tenant(OWNER),
                granted_ms=millis,
                occupied_ms=millis,
                busy_ms=millis // 2,
                gap_ms=0,
            )
            for uuid in row.gpu_uuids
        ]

    def end(self, row: LeaseRow) -> None:
        """Let a lease's time be over and its meter close."""
        self._advance(row.ends_at)
        for host_id in row.host_ids:
            leases.lease_stopped(
                self.store,
                lease_id=LeaseId(row.lease_id),
                host_id=HostId(host_id),
                exit_code=0,
                by=BY,
                now=row.ends_at,
            )
        close_meter(self.store, lease_id=LeaseId(row.lease_id), by=BY, now=row.ends_at)
        self.settle()

    def _advance(self, now: datetime) -> None:
        self.now = max(self.now, now)
        advance_leases(self.store, now=now, start_grace=GRACE)
        self.settle()

    def watch(self) -> None:
        """Let the accounts be looked at, and people be told."""
        watch_accounts(self.store, now=self.now)
        self.settle()
