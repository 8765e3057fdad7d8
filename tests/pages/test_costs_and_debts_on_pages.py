"""Who owes whom, costs by anything, and the way from a sum to its entries and their events."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.test import Client
from pytest_django.plugin import DjangoDbBlocker

from ledger.domain.money import nanos_of
from ledger.models import JournalEntryRow
from marketplace.queries.costs import LEASE_BYS
from tests.kept import kept
from tests.pages.lived_month import LivedMonth
from tests.pages.reading import html
from tests.pages.world import CONSUMER, OWNER, PLATFORM

pytestmark = pytest.mark.django_db
COST = 18_000_000_000
"""Of four hours on two GPUs and one hour on one, at two dollars an hour."""


@pytest.fixture(scope="module")
def lived(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[LivedMonth]:
    with kept(django_db_blocker) as made:
        world = LivedMonth.begin()
        world.list_gpus(0, 1, 2, hours=40)
        first = world.lease(hours=5, gpus=2, project="llm-eval")
        second = world.lease(hours=3, project="vision", kind="finetune-7b")
        world.use(first, hours=4)
        world.use(second, hours=1)
    yield world
    made.end()


@pytest.fixture
def joan(lived: LivedMonth, db: None) -> Client:
    return lived.member(PLATFORM, "finance", "auditor")


@pytest.fixture
def grace(lived: LivedMonth, db: None) -> Client:
    return lived.member(CONSUMER, "finance")


def read(client: Client, path: str) -> str:
    answer = client.get(unescape(path))
    assert answer.status_code == 200, path
    return html(answer.content)


def links(page: str, start: str) -> list[str]:
    return list(dict.fromkeys(re.findall(rf'href="({re.escape(start)}[^"]*)"', page)))


def test_the_matrix_leads_to_entries_and_these_to_their_events(
    lived: LivedMonth, joan: Client
) -> None:
    page = read(joan, f"/finance/matrix?period={lived.period}")
    assert "Language models" in page and "to Aurora" in page and "to Platform" in page
    assert '<data value="18.00" title="$18.00">$18.00</data>' in page

    cells = [each for each in links(page, "/finance/entries?") if "with=" in each]
    entries = read(joan, next(each for each in cells if str(lived.tenant(OWNER)) in each))
    assert "all of them together" in entries and "Only organisation <b>Cirrus</b>" in entries
    entry = read(joan, links(entries, "/finance/entries/")[0])

    assert "they sum to zero" in entry and "GPU-h" in entry
    for step in (
        "marketplace.bid-placed",
        "marketplace.lease-granted",
        "marketplace.lease-scheduled",
        "metering.usage-window-closed",
        "ledger.usage-captured",
    ):
        assert step in entry
    assert entry.index("bid-placed") < entry.index("lease-granted") < entry.index("window-closed")
    assert re.search(r"meter-[0-9a-f-]{36}", entry) and "lease-" in entry
    assert "policy:charge-when-rated" in entry and "Fields" in entry


@pytest.mark.parametrize("by", [*LEASE_BYS, "unit", "sku", "kind", "day", "lease"])
def test_costs_by_anything_come_to_the_same(lived: LivedMonth, joan: Client, by: str) -> None:
    page = read(joan, f"/finance/costs?period={lived.period}&by={by}")
    assert page.count('title="$18.00"') >= 2  # in the head and at the foot

    answer = joan.get(f"/finance/costs/file?period={lived.period}&by={by}")
    rows = list(csv.DictReader(io.StringIO(b"".join(answer).decode(), newline="")))
    assert sum(nanos_of(row["cost"]) for row in rows) == COST


def test_two_groupings_and_what_they_are_narrowed_to(lived: LivedMonth, joan: Client) -> None:
    page = read(joan, f"/finance/costs?period={lived.period}&by=project&then=work")
    assert (
        page.index("llm-eval")
        < page.index("other")
        < page.index("vision")
        < page.index("finetune-7b")
    )
    assert "$16.00" in page and "$2.00" in page

    [narrow] = [each for each in links(page, "/finance/costs?") if each.endswith("=vision")]
    only = read(joan, narrow)
    assert "Only project <b>vision</b>" in only and "$16.00" not in only
    [entries] = [
        each for each in links(page, "/finance/entries?") if each.endswith("project=vision")
    ]
    assert "$2.00" in read(joan, entries)
    assert JournalEntryRow.objects.filter(kind="usage").count() == 5


def test_a_tenant_sees_its_own_costs_and_an_owner_who_owes_it(
    lived: LivedMonth, grace: Client
) -> None:
    own = read(grace, f"/finance/costs?period={lived.period}&by=tenant")
    assert "By</label>" in own and ">Organisation<" not in own and "$18.00" in own
    entry = read(grace, f"/finance/entries?period={lived.period}&project=llm-eval")
    shown = read(grace, links(entry, "/finance/entries/")[0])
    assert "Accounts of others" in shown and "Fields" not in shown
    assert "usage-window-closed" in shown

    aurora = lived.member(OWNER, "finance")
    page = read(aurora, f"/finance/matrix?period={lived.period}")
    assert "Cirrus" in page and "Language models" not in page
    [cell] = [
        each for each in links(page, "/finance/entries?") if "with=" in each and "payer" in each
    ]
    listed = read(aurora, cell)
    assert "of others" in listed and "CI-2100" not in listed and "Language models" not in listed
    earned = read(aurora, links(listed, "/finance/entries/")[0])
    assert "How it came about" not in earned and "bid-placed" not in earned
    assert "Nothing was charged" in read(aurora, f"/finance/costs?period={lived.period}")


def test_several_months_and_none(lived: LivedMonth, joan: Client) -> None:
    page = read(joan, f"/finance/matrix?since=2026-01&period={lived.period}")
    assert f"2026-01 to {lived.period}" in page and "$18.00" in page
    assert "Nobody owes anything" in read(joan, "/finance/matrix?period=2020-01")
    assert "Nothing was charged" in read(joan, "/finance/costs?period=2020-01")
    assert "No entries" in read(joan, "/finance/entries?period=2020-01")
    for path in ("/finance/costs?by=nonsense&offer=no", "/finance/entries?with=no&day=no&lease=x"):
        assert joan.get(path).status_code == 200


def test_money_pages_are_for_finance(lived: LivedMonth, db: None) -> None:
    entry = JournalEntryRow.objects.filter(kind="usage").first()
    assert entry is not None
    consumer = lived.member(CONSUMER, "consumer")
    for path in ("matrix", "costs", "costs/file", "entries", f"entries/{entry.pk}"):
        assert consumer.get(f"/finance/{path}").status_code == 403
    stranger = lived.member(PLATFORM, "finance")
    assert stranger.get("/finance/entries").status_code == 200


def test_a_statement_leads_to_its_entries(lived: LivedMonth, grace: Client) -> None:
    page = read(grace, f"/finance/accounts/{lived.account_id}?period={lived.period}")
    assert "Lines" in read(grace, links(page, "/finance/entries/")[0])


def asked(client: Client, path: str) -> list[dict[str, Any]]:
    answer = client.get(f"/api/v1/{path}")
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["data"]
    return found


@pytest.mark.parametrize("by", [*LEASE_BYS, "unit", "account", "sku", "kind", "day", "lease"])
def test_programs_read_the_same_costs(lived: LivedMonth, joan: Client, by: str) -> None:
    found = asked(joan, f"costs?period={lived.period}&by={by}")

    assert sum(nanos_of(each["cost"]) for each in found) == COST
    assert all(each["title"] for each in found)


def test_programs_tell_costs_apart_twice_and_narrow_them(lived: LivedMonth, joan: Client) -> None:
    both = asked(joan, f"costs?period={lived.period}&by=project&then=work")
    narrow = asked(joan, f"costs?period={lived.period}&by=unit&project=vision")

    assert [(each["key"], each["then_key"], each["cost"]) for each in both] == [
        ("llm-eval", "other", "16.00"),
        ("vision", "finetune-7b", "2.00"),
    ]
    assert [(each["title"], each["cost"]) for each in narrow] == [("Language models", "2.00")]


def test_programs_read_the_same_matrix(lived: LivedMonth, joan: Client) -> None:
    cells = asked(joan, f"owed?since={lived.period}&period={lived.period}")
    netted = asked(joan, f"owed/netted?period={lived.period}")

    assert sum(nanos_of(each["left"]) for each in cells) == COST
    assert {(each["unit"], each["other"]) for each in cells} == {
        ("Language models", "Aurora"),
        ("Language models", "Platform"),
    }
    assert sum(nanos_of(each["amount"]) for each in netted) == COST
    assert {each["creditor"] for each in netted} == {"Aurora", "Platform"}


def test_an_owner_s_programs_see_who_owes_it_and_not_which_unit(lived: LivedMonth) -> None:
    aurora = lived.member(OWNER, "finance")

    [cell] = asked(aurora, f"owed?period={lived.period}")

    assert (cell["unit_id"], cell["unit"], cell["other"]) == (None, "", "Aurora")
    assert asked(aurora, f"costs?period={lived.period}") == []


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("costs?by=weather", "cost-by-unknown"),
        ("costs?period=january", "period-unreadable"),
        ("owed?since=2026-03&period=2026-01", "months-backwards"),
        ("owed/netted?since=2026-03&period=2026-01", "months-backwards"),
    ],
)
def test_what_is_asked_wrongly_is_said(joan: Client, path: str, code: str) -> None:
    answer = joan.get(f"/api/v1/{path}")

    assert (answer.status_code, answer.json()["code"]) == (422, code)
