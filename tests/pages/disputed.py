"""A market in which an owner meters on for half an hour after the work of a lease was gone."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID, uuid4

from django.conf import settings

from ledger.domain.ids import BidId, HostId
from ledger.domain.money import NANOS_PER_UNIT, Rate
from ledger.models import DisputeRow
from marketplace.commands import bids
from marketplace.domain.bids.bid import BidTerms
from marketplace.domain.facts.events import GpuRequest, Workload
from marketplace.loops import advance_leases
from marketplace.models import LeaseRow
from metering.agent.wire import Interval, Report, ReportBatch, SampleBatch
from metering.comparing import compare_meters
from metering.domain.instants import instant_of, millis_up
from metering.domain.two_meters import Tolerance
from metering.ingest.grants import Grants
from metering.ingest.reports import take_reports
from metering.ingest.samples import take_samples
from metering.loops import close_usage_windows
from tests.pages.world import BY, CONSUMER, OWNER, World

MINUTE = 60_000
WORKED_MINUTES, METERED_MINUTES = 25, 60


class Disputed(World):
    """A lease of an hour whose work gave its last sign of life after 25 minutes."""

    bid_id = BidId(UUID(int=4_722))

    @property
    def lease(self) -> LeaseRow:
        return LeaseRow.objects.get(bid_id=self.bid_id)

    @property
    def dispute(self) -> DisputeRow:
        """Return the larger one: usage windows end at whole hours, so there may be two."""
        return DisputeRow.objects.order_by("-contested_nanos")[0]

    @property
    def later(self) -> datetime:
        """Return when all is metered, and compared."""
        return self.lease.starts_at + timedelta(hours=3)

    def work(self, *, beats: bool = True) -> None:
        """Let the lease run, be metered to its end, and be charged."""
        self.list_gpus(0, hours=40)
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
            duration_seconds=METERED_MINUTES * 60,
            limit=Rate(2 * NANOS_PER_UNIT),
            service_class="on-demand",
            patience="immediate",
            workload=Workload(kind="other", command=("python", "train.py")),
        )
        bids.place_bid(self.store, terms=terms, by=BY, now=self.now)
        self.settle()
        lease, grace = self.lease, timedelta(minutes=10)
        advance_leases(self.store, now=lease.starts_at, start_grace=grace)
        self.settle()
        start, grants, boot = millis_up(lease.starts_at), Grants(), uuid4()
        host_id, end = HostId(lease.host_ids[0]), start + METERED_MINUTES * MINUTE
        self._report("started", start, grants, boot)
        if beats:
            self._report("alive", start + WORKED_MINUTES * MINUTE, grants, boot, since=start)
        intervals = tuple(
            Interval(
                seq=1 + at,
                lease_id=lease.lease_id,
                gpu_uuid="GPU-0",
                start_ms=start + at * 5 * MINUTE,
                end_ms=start + (at + 1) * 5 * MINUTE,
                granted_ms=5 * MINUTE,
                occupied_ms=5 * MINUTE,
                busy_ms=MINUTE,
                memory_used_mib=2_000,
            )
            for at in range(METERED_MINUTES // 5)
        )
        take_samples(
            self.store,
            grants,
            SampleBatch(boot_id=boot, batch=intervals, health=()),
            host_id=host_id,
            tenant_id=self.tenant(OWNER),
            now=self.later,
        )
        self.settle()
        self._report("exited", end, grants, boot)
        advance_leases(self.store, now=instant_of(end), start_grace=grace)
        self.settle()
        close_usage_windows(
            self.store, now=self.later, window_seconds=3_600, grace=timedelta(hours=1)
        )
        self.settle()

    def compare(self) -> int:
        """Compare both meters, as the loop does."""
        tolerance = Tolerance(ppm=20_000, millis=MINUTE)
        found = compare_meters(self.store, tolerance=tolerance, now=self.later)
        self.settle()
        return found

    def _report(
        self, what: str, at_ms: int, grants: Grants, boot: UUID, *, since: int | None = None
    ) -> None:
        lease = self.lease
        report = Report(
            report_id=uuid4(),
            lease_id=lease.lease_id,
            what=what,  # type: ignore[arg-type]  # one of its words
            at=instant_of(at_ms),
            since=None if since is None else instant_of(since),
            exit_code=0 if what == "exited" else None,
            detail="",
        )
        take_reports(
            self.store,
            grants,
            ReportBatch(boot_id=boot, reports=(report,)),
            host_id=HostId(lease.host_ids[0]),
            by=BY,
            now=max(self.now, instant_of(at_ms)),
        )
        self.settle()
