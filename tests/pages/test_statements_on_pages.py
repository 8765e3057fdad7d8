"""A statement shows what is newest first, by page, kind and day, and its amounts add up by eye."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.test import Client

from config.site.pages.finance.views import LINES_SHOWN
from config.site.parts.figures import aligned_text, places_of
from ledger import commands
from ledger.domain.ids import EntryId
from ledger.domain.money import Money
from tests.pages.reading import html
from tests.pages.world import BY, CONSUMER, PLATFORM, World

pytestmark = pytest.mark.django_db

NANOS = 1_000_000_000


@pytest.fixture
def finance(world: World) -> Client:
    return world.member(CONSUMER, "finance")


def add(world: World, number: int, *, at: datetime, nanos: int = NANOS) -> None:
    commands.add_funds(
        world.store,
        account_id=world.account_id,
        entry_id=EntryId(uuid4()),
        money=Money(nanos),
        reference=f"payment {number:03d}.",
        platform_id=world.tenant(PLATFORM),
        by=BY,
        now=at,
    )


def payments(page: str) -> list[int]:
    return [int(number) for number in re.findall(r"payment (\d{3})\.", page)]


def get(client: Client, world: World, **query: str) -> str:
    answer = client.get(f"/finance/accounts/{world.account_id}", query)
    assert answer.status_code == 200
    return html(answer.content)


def link(page: str, text: str) -> str | None:
    found = re.search(rf'href="\?([^"]*)">{text}</a>', page)
    return found[1].replace("&amp;", "&") if found else None


def test_the_newest_lines_come_first_and_every_line_can_be_reached(
    world: World, finance: Client
) -> None:
    count = 2 * LINES_SHOWN + 5
    for number in range(count):
        add(world, number, at=world.now)
    world.settle()

    first = get(finance, world)
    assert payments(first) == list(range(count - 1, count - 1 - LINES_SHOWN, -1))
    assert "newest first" in first
    assert link(first, "Newer") is None

    seen, page = payments(first), first
    while (older := link(page, "Older")) is not None:
        page = finance.get(f"/finance/accounts/{world.account_id}?{older}").content.decode()
        seen += payments(page)
    assert seen == list(range(count - 1, -1, -1)), "none is shown twice, none is left out"

    newer = link(page, "Newer")
    back = finance.get(f"/finance/accounts/{world.account_id}?{newer}").content.decode()
    assert payments(back) == list(range(LINES_SHOWN + 4, 4, -1))


def test_a_total_counts_what_a_filter_leaves_out(world: World, finance: Client) -> None:
    add(world, 1, at=world.now, nanos=2 * NANOS)
    add(world, 2, at=world.now, nanos=NANOS // 8)
    world.settle()

    page = get(finance, world, kind="funds")
    none = get(finance, world, kind="usage")

    assert payments(page) == [2, 1]
    assert '$102.12<span class="beyond">5</span>' in page
    assert '$102.00<span class="beyond">0</span>' in page, "one number of decimals"
    assert payments(none) == []
    assert "Nothing of that was posted" in none


def test_a_day_of_the_readers_zone_can_be_read(world: World, finance: Client) -> None:
    finance.cookies["zone"] = "Asia/Kathmandu"
    month = world.now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0)
    add(world, 1, at=month + timedelta(days=3, hours=18, minutes=14))
    add(world, 2, at=month + timedelta(days=3, hours=18, minutes=15))  # midnight there
    world.settle()

    period = f"{month:%Y-%m}"
    before = get(finance, world, period=period, day=f"{month:%Y-%m}-04")
    after = get(finance, world, period=period, day=f"{month:%Y-%m}-05")

    assert payments(before) == [1]
    assert payments(after) == [2]
    assert "Day, +0545" in before or "Day, NPT" in before


@pytest.mark.parametrize("wrong", ["yesterday", "2026-02-30", "9999-12-31", "0001-01-01", "%00"])
def test_a_day_that_is_none_filters_nothing(world: World, finance: Client, wrong: str) -> None:
    add(world, 1, at=world.now)
    world.settle()

    answer = finance.get(f"/finance/accounts/{world.account_id}", {"day": wrong, "before": "x:y"})

    assert answer.status_code == 200


def test_another_account_can_be_chosen(world: World, finance: Client) -> None:
    query = {"account": str(world.account_id), "kind": "funds", "period": "2026-11"}
    answer = finance.get("/finance/accounts", query)

    assert answer["Location"] == (f"/finance/accounts/{world.account_id}?period=2026-11&kind=funds")
    assert finance.get("/finance/accounts", {"account": "x"})["Location"] == "/finance"


def test_the_api_has_the_newest_first_and_no_line_twice(world: World, finance: Client) -> None:
    for number in range(7):
        add(world, number, at=world.now)
    world.settle()
    url = f"/api/v1/accounts/{world.account_id}/statement"
    query = {"period": f"{world.now:%Y-%m}", "limit": "3", "kind": "funds"}

    seen, cursor = [], None
    while True:
        told = finance.get(url, query | ({"cursor": cursor} if cursor else {})).json()
        seen += told["data"]
        cursor = told["next"]
        if cursor is None:
            break

    amounts = [each["reference"] for each in seen if each["reference"].startswith("payment")]
    assert amounts == [f"payment {number:03d}." for number in range(6, -1, -1)]
    assert [float(each["balance"]) for each in seen] == [107, 106, 105, 104, 103, 102, 101, 100]


@pytest.mark.parametrize(
    ("amounts", "currency", "places", "shown"),
    [
        ([10**9], "USD", 2, [("$1.00", "")]),
        ([10**9, 125_000_000], "USD", 3, [("$1.00", "0"), ("$0.12", "5")]),
        ([-1, 10**9], "USD", 9, [("\N{MINUS SIGN}$0.00", "0000001"), ("$1.00", "0000000")]),
        ([5 * 10**9], "JPY", 0, [("¥5", "")]),
        ([5 * 10**8], "JPY", 1, [("¥0", ".5")]),
        ([], "EUR", 2, []),
    ],
)
def test_a_column_has_one_number_of_decimals(
    amounts: list[int], currency: str, places: int, shown: list[tuple[str, str]]
) -> None:
    assert places_of(amounts, currency) == places
    assert [aligned_text(nanos, currency, places) for nanos in amounts] == shown


def test_the_trial_balance_has_both_sides_and_their_totals(world: World) -> None:
    add(world, 1, at=world.now, nanos=NANOS // 8)
    world.settle()
    page = world.member(PLATFORM, "operator", "finance").get("/finance").content.decode()

    both = page.count('$100.12<span class="beyond">5</span>')
    assert both == 4, "cash on one side, the unit's money on the other, and both totals"
    assert "Debit" in page
    assert "Credit" in page
    assert "\N{MINUS SIGN}$100.12<span" not in page
    assert "it is below zero by what others have of it" in page
    assert "Credit limit" in page
