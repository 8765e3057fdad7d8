"""A wallet runs dry: its people are told, the work saves itself, waits, and goes on."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from django.test import Client

from ledger import commands
from ledger.domain.ids import BidId, EntryId, HoldId, HostId, LeaseId
from ledger.domain.money import NANOS_PER_UNIT, Money, Rate
from ledger.domain.span import Window
from ledger.models import AccountWatchRow, InboxRow
from marketplace.commands import bids, leases
from marketplace.depleting import watch_accounts
from marketplace.domain.bids.bid import BidTerms
from marketplace.domain.facts.close_reasons import AWAITS_MONEY
from marketplace.domain.facts.events import GpuRequest, Workload
from marketplace.domain.leases.renewals import next_id
from marketplace.loops import advance_leases, extend_leases, go_on_where_there_is_money
from marketplace.models import BidRow, LeaseRow, LeaseShareRow, MoneyWaitRow
from tests.pages.reading import text
from tests.pages.world import BY, CONSUMER, OWNER, PLATFORM, World

pytestmark = pytest.mark.django_db

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

    def end(self) -> None:
        """Let the lease's time be over, its work gone, and all of its time be charged."""
        lease, now = self.lease, self.lease.ends_at
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
        millis = 7_200_000
        commands.capture_usage(
            self.store,
            account_id=self.account_id,
            hold_id=HoldId(self.bid_id),
            lease_id=LeaseId(lease.lease_id),
            window=Window(lease.starts_at, lease.ends_at),
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


@pytest.fixture
def dry() -> Dry:
    dry = Dry()
    dry.found()
    return dry


def titles() -> list[str]:
    """Return what people were told, oldest first."""
    told = InboxRow.objects.order_by("at", "title").values_list("title", flat=True)
    return list(dict.fromkeys(told))


def shown(client: Client, path: str) -> str:
    """Return the words of a page."""
    return text(client.get(path).content)


def test_a_wallet_runs_dry_is_warned_pauses_is_topped_up_and_goes_on(dry: Dry) -> None:
    finance, consumer = dry.member(CONSUMER, "finance"), dry.member(CONSUMER, "consumer")
    dry.begin()
    ends_at = dry.lease.ends_at

    # The account is nearly used, and what runs on it has nothing left half an hour after its lease.
    assert watch_accounts(dry.store, now=dry.now) == 1
    dry.settle()
    assert watch_accounts(dry.store, now=dry.now) == 0, "each is told once"
    row = AccountWatchRow.objects.get(account_id=dry.account_id)
    assert (row.level, row.depletes) == (95, True)
    told = finance.get(f"/api/v1/accounts/{dry.account_id}/forecast").json()
    assert (told["left"], told["used_ppm"], told["per_hour"]) == ("1.00", 990_000, "2.00")
    assert datetime.fromisoformat(told["lasts_until"]) == ends_at + HOUR / 2
    assert "99.0% of $100.00 used" in shown(finance, "/finance")

    # Its next step is not covered: the work is asked to save itself, and goes on meanwhile.
    assert extend_leases(dry.store, now=ends_at - timedelta(minutes=10)) == 0
    dry.settle()
    assert LeaseShareRow.objects.get(lease_id=dry.lease.lease_id).phase == "warn"
    assert dry.lease.state == "active"
    assert "goes on after a top-up" in shown(consumer, f"/leases/{dry.lease.lease_id}")

    # At the end of its granted time it is paused; the GPU is free, and the work waits.
    dry.end()
    assert dry.lease.close_reason == AWAITS_MONEY
    wait = MoneyWaitRow.objects.get()
    assert (wait.needs_nanos, wait.lease_id) == (2 * UNIT, dry.lease.lease_id)
    assert go_on_where_there_is_money(dry.store, now=ends_at) == 0
    [waiting] = consumer.get("/api/v1/money-waits").json()["data"]
    assert (waiting["needs"], waiting["missing"]) == ("2.00", "1.00")
    assert "Top up $1.00 to let it go on." in shown(consumer, f"/bids/{dry.bid_id}")
    assert "Work that waits for money" in shown(finance, "/finance")

    # A top-up lets it go on by itself, once.
    dry.top_up(50)
    later = ends_at + timedelta(seconds=1)
    assert go_on_where_there_is_money(dry.store, now=later) == 1
    dry.settle()
    assert go_on_where_there_is_money(dry.store, now=later) == 0
    assert BidRow.objects.get(bid_id=next_id(dry.bid_id)).resumes_lease_id == dry.lease.lease_id
    assert not MoneyWaitRow.objects.exists()

    told_by_then = titles()
    wanted = [
        "Language models: 95 % is charged or set aside",
        f"Language models lasts until {ends_at + HOUR / 2:%Y-%m-%d %H:%M} UTC",
        f"A lease has no money to go on after {ends_at:%Y-%m-%d %H:%M} UTC",
        "Work waits for money: 2.00 USD",
        "Work goes on that waited for money",
    ]
    # Others tell of leases that end, too.
    told_of_money = [title for title in told_by_then if title in wanted]
    assert set(told_of_money[:2]) == set(wanted[:2]), "at one moment, in any order"
    assert told_of_money[2:] == wanted[2:]


def test_nobody_sees_what_waits_at_others(dry: Dry) -> None:
    stranger = dry.member(OWNER, "operator")
    dry.begin()
    extend_leases(dry.store, now=dry.lease.ends_at - timedelta(minutes=10))
    dry.settle()
    dry.end()

    assert MoneyWaitRow.objects.exists()
    assert stranger.get("/api/v1/money-waits").json()["data"] == []
    assert stranger.get(f"/api/v1/accounts/{dry.account_id}/forecast").status_code == 404
