"""What is owed of an invoice on its page: transfers entered, write-offs by two, overdue, looks."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from ledger import receivables
from ledger.domain.receivables import BLOCKED_AFTER
from ledger.models import ReceivableRow
from tests.pages.browser import FIRST_SCHEME, browsing, enter, faults, served
from tests.pages.owing import owe
from tests.pages.reading import html
from tests.pages.world import CONSUMER, OWNER, PLATFORM, World

pytestmark = pytest.mark.django_db


def post(client: Client, world: World, path: str, **form: str) -> str:
    answer = client.post(f"/invoices/{path}", form)
    world.settle()
    if answer.status_code == 302:
        answer = client.get(answer["Location"])
    return html(answer.content)


def late(world: World) -> None:
    """Let so much time go by that the account takes no new bids."""
    due = ReceivableRow.objects.get().due_at
    for now in (due, due + BLOCKED_AFTER + timedelta(minutes=1)):
        receivables.see_to_receivables(world.store, now=now)
        world.settle()


def test_finance_enters_a_transfer_and_the_payer_sees_that_it_is_paid(world: World) -> None:
    row = owe(world)
    joan, grace = world.member(PLATFORM, "finance"), world.member(CONSUMER, "finance")
    mine = html(grace.get(f"/invoices/{row.number}").content)
    assert "Still to be paid" in mine and "A transfer came in" not in mine
    assert "It is paid by transfer" in mine

    refused = post(joan, world, f"{row.number}/payment", reference="TX 1", amount="100")
    assert "more than is owed" in refused
    assert "on the account" in post(joan, world, f"{row.number}/payment", reference="TX 1")

    assert ReceivableRow.objects.get().state == "paid"
    paid = html(grace.get(f"/invoices/{row.number}").content)
    assert "by TX 1" in paid and "$0.00" in paid
    assert "Paid" in html(grace.get("/invoices").content)


def test_what_is_owed_is_written_off_by_two_people(world: World) -> None:
    row = owe(world)
    joan, oscar = world.member(PLATFORM, "finance"), world.member(PLATFORM, "operator")
    asked = post(joan, world, f"{row.number}/write-off", reason="insolvent")
    assert "Take it back" in asked
    assert "Another person" in post(joan, world, f"{row.number}/write-off/decide")
    assert "Write it off" in html(oscar.get(f"/invoices/{row.number}").content)

    done = post(oscar, world, f"{row.number}/write-off/decide")

    assert "Written off" in done and ReceivableRow.objects.get().state == "written-off"


def test_an_overdue_invoice_is_on_top_and_says_what_it_keeps_away(world: World) -> None:
    row = owe(world)
    late(world)

    page = html(world.member(CONSUMER, "finance").get("/invoices").content)

    assert f"{row.number}</a> is overdue" in page and "takes no new bids" in page


def test_nobody_else_enters_payments_or_sees_what_is_owed(world: World) -> None:
    row = owe(world)
    grace, other = world.member(CONSUMER, "finance"), world.member(OWNER, "finance")

    for path in ("payment", "write-off", "write-off/decide"):
        assert grace.post(f"/invoices/{row.number}/{path}", {}).status_code == 403
        assert other.post(f"/invoices/{row.number}/{path}", {}).status_code == 403
    assert other.get(f"/invoices/{row.number}").status_code == 404
    assert ReceivableRow.objects.get().state == "open"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("committed_store")
@pytest.mark.parametrize("scheme", FIRST_SCHEME)
def test_pages_of_what_is_owed_are_accessible_and_fit(tmp_path: Path, scheme: str) -> None:
    world = World()
    world.found()
    row = owe(world)
    late(world)
    joan = world.member(PLATFORM, "finance", "operator")
    visits = ("/invoices", f"/invoices/{row.number}", "/wallet", f"/wallet/{world.account_id}")
    wrong: dict[str, list[str]] = {}
    with (
        served(tmp_path / "site.log") as address,
        browsing(scheme=scheme) as (context, page, said),
    ):
        enter(context, address, joan.cookies)
        for path in visits:
            page.set_viewport_size({"width": 1280, "height": 900})
            page.goto(address + path)
            page.wait_for_load_state("networkidle")
            if found := [*faults(page, scheme), *said]:
                wrong[path] = found
            said.clear()

    assert wrong == {} and timezone.now() > row.issued_at
