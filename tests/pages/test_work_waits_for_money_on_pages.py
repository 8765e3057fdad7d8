"""A wallet runs dry: its people are told, the work saves itself, waits, and goes on."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.test import Client

from ledger.domain.money import Money
from ledger.models import AccountWatchRow, InboxRow
from marketplace.depleting import watch_accounts
from marketplace.domain.facts.close_reasons import AWAITS_MONEY
from marketplace.domain.leases.renewals import next_id
from marketplace.loops import extend_leases, go_on_where_there_is_money
from marketplace.models import BidRow, LeaseShareRow, MoneyWaitRow
from marketplace.queries.depletion import forecasts
from tests.pages.reading import text
from tests.pages.running_dry import HOUR, UNIT, Dry
from tests.pages.world import CONSUMER, OWNER

pytestmark = pytest.mark.django_db


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
    assert (told["left"], told["used_ppm"]) == ("1.00", 990_000)
    [seen] = forecasts([dry.account_id], now=dry.lease.starts_at).values()
    assert seen.per_hour == Money(2 * UNIT)
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
    assert waiting["account"] == "Language models"
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
