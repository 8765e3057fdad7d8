"""One lease of two GPUs on two owners' hosts, with money behind it, and what agents would send."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

from ledger.access import Actor
from ledger.commands import money
from ledger.domain import account_ids
from ledger.domain.accounts import Account
from ledger.domain.event import Event
from ledger.domain.ids import (
    BidId,
    EntryId,
    HoldId,
    HostId,
    LeaseId,
    OfferId,
    SubscriberId,
    TenantId,
)
from ledger.domain.money import Money, Rate
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.span import Window
from ledger.eventstore.port import EventStore, Expect, NewEvent, load
from ledger.following import follow_projections
from ledger.reacting import follow_policies
from marketplace.domain.facts.events import (
    LeaseClosed,
    LeaseScheduled,
    LeaseStarting,
    Share,
    Workload,
)
from metering.agent.wire import Health, Interval, Report, ReportBatch, SampleBatch
from metering.domain.instants import millis_down
from metering.ingest.contacts import note_seen
from metering.ingest.grants import Grants
from metering.ingest.reports import take_reports
from metering.ingest.samples import take_samples
from metering.loops import close_usage_windows
from metering.policies import POLICIES
from metering.projections import PROJECTIONS
from tests.conftest import NOON, SOMEBODY

E = TypeVar("E", bound=Event)

OWNER = TenantId(UUID(int=31))
OTHER_OWNER = TenantId(UUID(int=32))
CONSUMER = TenantId(UUID(int=33))
STRANGER = TenantId(UUID(int=34))
UNIT = SubscriberId(UUID(int=35))
HOST = HostId(UUID(int=41))
OTHER_HOST = HostId(UUID(int=42))
LEASE = LeaseId(UUID(int=51))
HOLD = HoldId(UUID(int=52))
BID = BidId(UUID(int=53))
BOOT = UUID(int=61)
FUNDS = account_ids.funds_account(UNIT, "USD")
PRICE = Rate(1_730_000_001)
MINUTE = 60_000
START = millis_down(NOON)
GRACE = timedelta(hours=1)

CONSUMING = Actor(tenant_id=CONSUMER, roles=frozenset({"consumer"}))
OWNING = Actor(tenant_id=OWNER, roles=frozenset({"owner"}))
OTHER_OWNING = Actor(tenant_id=OTHER_OWNER, roles=frozenset({"owner"}))
NOSY = Actor(tenant_id=STRANGER, roles=frozenset({"owner", "consumer"}))


def share(host_id: HostId, owner_id: TenantId, *uuids: str) -> Share:
    return Share(OfferId(UUID(int=7)), host_id, owner_id, uuids, 60, 0, "local")


SHARES = (share(HOST, OWNER, "GPU-a"), share(OTHER_HOST, OTHER_OWNER, "GPU-b"))


def interval(
    seq: int, start_minute: float, end_minute: float, uuid: str = "GPU-a", **fields: Any
) -> Interval:
    """Return what an agent sends of [start, end), in minutes after noon."""
    start_ms, end_ms = (START + round(minute * MINUTE) for minute in (start_minute, end_minute))
    length = end_ms - start_ms
    known: dict[str, Any] = {
        "lease_id": LEASE,
        "occupied_ms": length,
        "busy_ms": length // 2,
        "memory_used_mib": 1_000,
    }
    return Interval(
        seq=seq,
        gpu_uuid=uuid,
        start_ms=start_ms,
        end_ms=end_ms,
        granted_ms=length,
        **(known | fields),
    )


def minute(number: float) -> datetime:
    return NOON + timedelta(minutes=number)


@dataclass
class World:
    """The store, and each step as the product would take it."""

    store: EventStore
    grants: Grants = field(default_factory=Grants)

    def fund(self, units: int = 1_000) -> None:
        for kind, account_id in (
            ("earnings", account_ids.earnings_account(OWNER, "USD")),
            ("earnings", account_ids.earnings_account(OTHER_OWNER, "USD")),
            ("fees", account_ids.fee_account(PLATFORM_ID, "USD")),
            ("cash", account_ids.cash_account(PLATFORM_ID, "USD")),
            ("prepaid", FUNDS),
        ):
            money.open_account(
                self.store,
                account_id=account_id,
                tenant_id=CONSUMER if kind == "prepaid" else PLATFORM_ID,
                subscriber_id=UNIT if kind == "prepaid" else None,
                kind=kind,  # type: ignore[arg-type]  # all of them are AccountKinds
                title=kind,
                currency="USD",
                overdraft_nanos=0 if kind == "prepaid" else None,
                by=SOMEBODY,
                now=NOON,
            )
        money.add_funds(
            self.store,
            account_id=FUNDS,
            entry_id=EntryId(UUID(int=71)),
            money=Money(units * 10**9),
            reference="test",
            platform_id=PLATFORM_ID,
            by=SOMEBODY,
            now=NOON,
        )

    def hold(self, window: Window, gpus: int) -> None:
        money.place_hold(
            self.store,
            account_id=FUNDS,
            hold_id=HOLD,
            money=PRICE.charge(window.millis * gpus),
            purpose="lease",
            by=SOMEBODY,
            now=NOON,
        )

    def tell(self, *events: Event) -> None:
        """Put events on the lease's stream, as the market would."""
        lease_id = events[0].lease_id  # type: ignore[attr-defined]  # lease events have it
        self.store.append(
            f"lease-{lease_id}",
            [NewEvent(uuid4(), event) for event in events],
            expected=Expect.ANY,
            by=SOMEBODY,
        )
        self.follow()

    def schedule(
        self,
        *shares: Share,
        lease_id: LeaseId = LEASE,
        minutes: float = 60,
        starts_at: datetime = NOON,
        fee_ppm: int = 50_000,
        bid_id: BidId = BID,
        asked: bool = True,
    ) -> None:
        """A lease from noon on, whose hosts are asked to start at once, or not yet."""
        window = Window(starts_at, starts_at + timedelta(minutes=minutes))
        mine = shares or SHARES
        self.tell(
            LeaseScheduled(
                lease_id=lease_id,
                bid_id=bid_id,
                tenant_id=CONSUMER,
                subscriber_id=UNIT,
                user_id=None,
                account_id=FUNDS,
                hold_id=HOLD,
                market="main",
                shares=mine,
                gpu_model="H100-80GB",
                window=window,
                price=PRICE,
                fee_ppm=fee_ppm,
                service_class="on-demand",
                workload=Workload(kind="train", command=("true",)),
                cost_centre="CC-1",
                at=NOON,
            ),
            *([LeaseStarting(lease_id=lease_id, at=starts_at)] if asked else []),
        )

    def over(self, at: datetime, *, lease_id: LeaseId = LEASE) -> None:
        self.tell(
            LeaseClosed(
                lease_id=lease_id,
                market="main",
                reason=101,
                failed=False,
                compensation=None,
                compensation_from=None,
                at=at,
            )
        )

    def send(
        self,
        *intervals: Interval,
        health: tuple[Health, ...] = (),
        host_id: HostId = HOST,
        boot_id: UUID = BOOT,
        now: datetime = NOON + timedelta(hours=2),
    ) -> int:
        return take_samples(
            self.store,
            self.grants,
            SampleBatch(boot_id=boot_id, batch=tuple(intervals), health=health),
            host_id=host_id,
            tenant_id=OWNER,
            now=now,
        )

    def report(
        self, what: Any, at_minute: float, *, host_id: HostId = HOST, exit_code: int | None = None
    ) -> None:
        report = Report(
            report_id=UUID(int=81 if what == "started" else 82),
            lease_id=LEASE,
            what=what,
            at=minute(at_minute),
            exit_code=exit_code,
            detail="",
        )
        batch = ReportBatch(boot_id=BOOT, reports=(report,))
        take_reports(
            self.store, self.grants, batch, host_id=host_id, by=SOMEBODY, now=minute(at_minute)
        )

    def seen(self, at: datetime, *, host_id: HostId = HOST) -> None:
        note_seen(host_id=host_id, tenant_id=OWNER, now=at)

    def close(self, now: datetime, *, window_seconds: int = 600, grace: timedelta = GRACE) -> int:
        closed = close_usage_windows(
            self.store, now=now, window_seconds=window_seconds, grace=grace
        )
        self.follow()
        return closed

    def follow(self) -> None:
        while follow_projections(self.store, PROJECTIONS) + follow_policies(self.store, POLICIES):
            pass

    def events(self, kind: type[E], lease_id: LeaseId = LEASE) -> list[E]:
        """Return the events of one kind on a lease's meter."""
        stream = self.store.read_stream(f"meter-{lease_id}")
        return [each.event for each in stream if isinstance(each.event, kind)]

    def account(self) -> Account:
        account = load(self.store, Account, FUNDS)
        assert account is not None
        return account
