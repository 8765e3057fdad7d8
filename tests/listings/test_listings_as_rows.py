"""Read models, policies and the clock of supply, on the memory store and real tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, time, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import models

from ledger.access import Actor
from ledger.domain.events import UsageCaptured
from ledger.domain.ids import AccountId, EntryId, HoldId, LeaseId, OfferId
from ledger.domain.money import Money, Rate
from ledger.domain.span import Window
from ledger.domain.usage_items import UsageItem
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import Expect, NewEvent, load
from ledger.following import follow_projections
from ledger.reacting import follow_policies
from ledger.rows import Rows
from listings import commands, queries
from listings.domain.changes import TermsChange
from listings.domain.earnings import ASSUMED, DayOfMarket, Fill, fill_of, preview_earnings
from listings.domain.events import ByDemand, Division, Form, ReclaimStep, WeeklyRule
from listings.domain.hosts import Host, HostUnknown
from listings.domain.offers import Offer, OfferUnknown
from listings.loops import expire_offers
from listings.models import HealthBookRow, HealthSpanRow, HostRow, OfferRow
from listings.policies import POLICIES
from listings.projections import PROJECTIONS
from tests.conftest import NOON, SOMEBODY
from tests.listings.conftest import (
    ADA,
    EVE,
    HOST,
    OFFER,
    OTHER_HOST,
    OTHER_OFFER,
    OWNER,
    STRANGER,
    gpu,
    publish,
    span,
    terms,
)
from tests.listings.crashing import Crashed, CrashingStore

pytestmark = pytest.mark.django_db

OWNING = Actor(tenant_id=OWNER, roles=frozenset({"owner"}))
SOMEBODY_ELSE = Actor(tenant_id=STRANGER, roles=frozenset({"owner"}))
NIGHTS = WeeklyRule(
    zone="Europe/London",
    days=(0, 1, 2, 3, 4),
    since=time(22),
    until=time(6),
    first=date(2026, 1, 5),
)


def read(store: MemoryStore) -> None:
    while follow_projections(store, PROJECTIONS):
        pass


def as_told(model: type[models.Model]) -> list[dict[str, Any]]:
    return list(model._base_manager.order_by("pk").values())


def test_rows_equal_their_rebuild_from_the_first_event(market: MemoryStore) -> None:
    publish(market, wanted=terms("GPU-a", weekly=NIGHTS, windows=()))
    read(market)
    publish(market, OTHER_OFFER, terms("GPU-b", labels=(("nvme", "yes"),)))
    commands.reprice_offer(market, offer_id=OFFER, floor=Rate(7), by=ADA, now=NOON)
    read(market)
    change = TermsChange(
        notice_seconds=600, reclaim_fee_ppm=9, reclaim_steps=(ReclaimStep(900, 1),)
    )
    commands.change_offer(market, offer_id=OFFER, terms=change, by=ADA, now=NOON)
    commands.pause_offer(market, offer_id=OFFER, by=ADA, now=NOON)
    commands.withdraw_offer(market, offer_id=OTHER_OFFER, by=ADA, now=NOON)
    read(market)
    commands.retire_host(market, host_id=OTHER_HOST, by=EVE, now=NOON)
    read(market)
    live = {model: as_told(model) for model in (HostRow, OfferRow, HealthBookRow, HealthSpanRow)}

    for model in live:
        model._base_manager.all().delete()
    rows = Rows(fresh=True)
    for recorded in market.read_all(limit=10_000).events:
        for projection in PROJECTIONS:
            if recorded.type in projection.on:
                projection.project(recorded, rows)
    rows.flush()

    assert {model: as_told(model) for model in live} == live
    assert [row["state"] for row in live[OfferRow]] == ["paused", "withdrawn"]
    assert [row["notice_seconds"] for row in live[OfferRow]] == [600, 300]
    assert queries.steps_of_row(queries.offer(OWNING, OFFER)) == (ReclaimStep(900, 1),)


def test_a_page_and_a_row_tell_the_version_of_the_stream(market: MemoryStore) -> None:
    publish(market)
    commands.pause_offer(market, offer_id=OFFER, by=ADA, now=NOON)
    read(market)

    assert queries.offer(OWNING, OFFER).version == 2


def test_another_tenant_sees_neither_host_nor_offer(market: MemoryStore) -> None:
    publish(market)
    read(market)

    assert [row.host_id for row in queries.hosts(OWNING)] == [HOST]
    assert [row.host_id for row in queries.hosts(SOMEBODY_ELSE)] == [OTHER_HOST]
    assert not queries.offers(SOMEBODY_ELSE)
    assert not queries.grid(SOMEBODY_ELSE, since=NOON, until=NOON + timedelta(days=1))
    with pytest.raises(HostUnknown):
        queries.host(SOMEBODY_ELSE, HOST)
    with pytest.raises(OfferUnknown):
        queries.offer(SOMEBODY_ELSE, OFFER)


def test_the_market_is_shown_without_its_owners_lowest_floor_first(market: MemoryStore) -> None:
    publish(market, wanted=terms("GPU-a", floor=Rate(2_000_000_000)))
    publish(market, OTHER_OFFER, terms("GPU-b", floor=Rate(1_000_000_000)))
    read(market)

    found = queries.listed_offers(since=NOON, until=NOON + timedelta(days=1), model="H100")

    assert [each.offer_id for each in found] == [OTHER_OFFER, OFFER]
    assert found[0].window == span(6, 8)
    shown = str(found)
    assert str(OWNER) not in shown
    assert str(HOST) not in shown
    assert "GPU-a" not in shown


@pytest.mark.parametrize("away", ["paused", "withdrawn", "reserved", "later", "other model"])
def test_what_cannot_be_had_is_not_on_the_market(market: MemoryStore, away: str) -> None:
    reserved = {"reserved_for": uuid4()} if away == "reserved" else {}
    later = {"windows": (span(24 * 8, 4),)} if away == "later" else {}
    publish(market, wanted=terms(**reserved, **later))
    if away == "paused":
        commands.pause_offer(market, offer_id=OFFER, by=ADA, now=NOON)
    if away == "withdrawn":
        commands.withdraw_offer(market, offer_id=OFFER, by=ADA, now=NOON)
    read(market)
    model = "A100" if away == "other model" else "H100"

    found = queries.listed_offers(since=NOON, until=NOON + timedelta(days=7), model=model)

    assert found == []


def test_supply_counts_gpus_now_within_a_day_and_within_a_week(market: MemoryStore) -> None:
    publish(market, wanted=terms("GPU-a", windows=(span(-1, 4),), floor=Rate(3)))
    publish(market, OTHER_OFFER, terms("GPU-b", windows=(span(24 * 2, 4),), floor=Rate(2)))
    read(market)

    assert queries.supply(now=NOON) == [queries.Supply("H100-80GB", 1, 1, 2, Rate(2))]


def test_the_grid_works_out_weekly_windows_for_each_gpu(market: MemoryStore) -> None:
    publish(market, wanted=terms("GPU-a", "GPU-b", weekly=NIGHTS, windows=(span(2, 4),)))
    read(market)

    found = queries.grid(OWNING, since=NOON, until=NOON + timedelta(days=2))

    assert [(each.gpu_uuid, each.window) for each in found] == [
        (uuid, window)
        for uuid in ("GPU-a", "GPU-b")
        for window in (span(2, 4), span(10, 8), span(34, 8))
    ]


def test_what_a_dead_process_left_undone_is_done_by_the_policies(market: MemoryStore) -> None:
    for appends, ask in (
        (1, publish),
        (1, lambda store: commands.retire_host(store, host_id=HOST, by=ADA, now=NOON)),
    ):
        with pytest.raises(Crashed):
            ask(CrashingStore(market, appends=appends))
        while follow_policies(market, POLICIES):
            pass

    host, offer = load(market, Host, HOST), load(market, Offer, OFFER)
    assert host is not None
    assert offer is not None
    assert (host.is_retired, dict(host.listed), offer.state) == (True, {}, "withdrawn")
    head = market.head()
    for recorded in market.read_all(limit=10_000).events:
        for policy in POLICIES:
            if recorded.type in policy.on:
                policy.react(recorded, market)
    assert market.head() == head


def test_one_tick_expires_every_open_offer_that_is_over(market: MemoryStore) -> None:
    publish(market)
    publish(market, OTHER_OFFER, terms("GPU-b"))
    publish(market, OfferId(UUID(int=102)), terms("GPU-b", windows=(span(20, 4),)))
    commands.pause_offer(market, offer_id=OTHER_OFFER, by=ADA, now=NOON)
    read(market)

    looked_at = expire_offers(market, now=NOON + timedelta(hours=14))

    read(market)
    assert looked_at == 2
    states = [row.state for row in OfferRow.objects.order_by("pk")]
    assert states == ["expired", "expired", "listed"]
    assert expire_offers(market, now=NOON + timedelta(hours=14)) == 0


def test_recent_fill_is_what_was_sold_of_what_was_listed(market: MemoryStore) -> None:
    """One GPU is listed for 8 hours of each of six days; 2 to 7 hours of it are sold."""
    for day in range(6):
        at = NOON + timedelta(days=day)
        publish(
            market,
            OfferId(UUID(int=200 + day)),
            terms(windows=(span(1, 8, now=at),)),
            now=at,
        )
        sold(market, Window(at + timedelta(hours=1), at + timedelta(hours=3 + day)))
    read(market)

    fill = queries.recent_fill(now=NOON + timedelta(days=6))

    assert fill == Fill(low_ppm=375_000, high_ppm=750_000, basis="measured", days=6)


def test_time_on_offer_counts_each_card_once_and_as_long_as_its_offer_lives(
    market: MemoryStore,
) -> None:
    """GPU-a is offered for hours 1 to 9 as two shares, GPU-b for 6 to 14 and withdrawn at 8."""
    halves = terms("GPU-a", windows=(span(1, 8),), division=Division("mps", 2))
    publish(market, OFFER, halves)
    publish(market, OTHER_OFFER, terms("GPU-b", windows=(span(6, 8),)))
    at = NOON + timedelta(hours=8)
    commands.withdraw_offer(market, offer_id=OTHER_OFFER, by=ADA, now=at)
    read(market)

    def hours(actor: Actor, since: float, until: float) -> float:
        asked = {"since": NOON + timedelta(hours=since), "until": NOON + timedelta(hours=until)}
        return queries.listed_millis(actor, **asked) / 3_600_000

    assert hours(OWNING, 0, 24) == 8 + 2
    assert hours(OWNING, 4, 7.5) == 3.5 + 1.5
    assert hours(OWNING, 20, 24) == 0
    assert hours(SOMEBODY_ELSE, 0, 24) == 0


def sold(store: MemoryStore, window: Window) -> None:
    captured = UsageCaptured(
        account_id=AccountId(UUID(int=7)),
        hold_id=HoldId(UUID(int=7)),
        entry_id=EntryId(uuid4()),
        lease_id=LeaseId(UUID(int=7)),
        window=window,
        gpu_millis=window.millis,
        price=Rate(1),
        fee_ppm=0,
        charged=Money(1),
        fee=Money(0),
        owners=(),
        cost_centre="CC",
        item=UsageItem(),
        postings=(),
        at=window.ends_at,
    )
    store.append("account-7", [NewEvent(uuid4(), captured)], expected=Expect.ANY, by=SOMEBODY)


def test_too_short_a_history_is_assumed_and_says_so() -> None:
    assert fill_of([DayOfMarket(listed_ms=10, sold_ms=5)] * 4) == ASSUMED
    assert fill_of([DayOfMarket(listed_ms=0, sold_ms=5)] * 9) == ASSUMED
    assert fill_of([DayOfMarket(listed_ms=4, sold_ms=8)] * 5).high_ppm == 1_000_000


def test_a_preview_is_floor_times_use_less_the_fee() -> None:
    fill = replace(ASSUMED, low_ppm=250_000, high_ppm=500_000)

    earnings = preview_earnings(
        [span(1, 4), span(6, 4)],
        gpus=2,
        floor=Rate(1_500_000_000),
        fee_ppm=50_000,
        fill=fill,
    )

    assert earnings.listed_ms == 16 * 3_600_000
    assert earnings.low == Money(5_700_000_000)
    assert earnings.high == Money(11_400_000_000)
    assert earnings.full == Money(22_800_000_000)


def test_a_changed_inventory_replaces_the_hosts_gpus(market: MemoryStore) -> None:
    commands.report_inventory(market, host_id=HOST, gpus=[gpu("GPU-c")], by=ADA, now=NOON)
    read(market)

    row = queries.host(OWNING, HOST)
    assert [each.uuid for each in queries.gpus_of_row(row)] == ["GPU-c"]
    assert (row.state, row.gpu_count) == ("known", 1)


def test_markets_by_demand_are_those_with_a_listed_offer_of_that_kind(
    market: MemoryStore,
) -> None:
    ways = ByDemand((Form(None), Form(Division("mps", 2))))
    publish(market, wanted=terms())
    publish(market, OTHER_OFFER, terms("GPU-b", by_demand=ways))
    read(market)
    assert queries.markets_by_demand() == ["eu"]

    commands.pause_offer(market, offer_id=OTHER_OFFER, by=ADA, now=NOON)
    read(market)

    assert queries.markets_by_demand() == []
