"""Payouts on pages: an owner sees what it earned and when it is paid; finance pays step by step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from ledger import paying
from ledger.domain.account_ids import earnings_account
from ledger.domain.bank_files import Debtor
from ledger.domain.settling import PayoutTerms
from ledger.models import PayeeRow, PayoutRow
from tests.ledger import pain001
from tests.ledger.camt054_files import entry, notice
from tests.pages.earning import earn, post
from tests.pages.reading import html
from tests.pages.world import BY, OWNER, PLATFORM, World

pytestmark = pytest.mark.django_db
IBAN = "DE89370400440532013000"


@pytest.fixture(autouse=True)
def platform_pays() -> Iterator[None]:
    kept = paying.terms(), paying.debtor()
    paying.install(PayoutTerms(details_wait_seconds=0), Debtor(name="Offpeak", iban=IBAN))
    yield
    paying.install(*kept)


@pytest.fixture
def earned(world: World) -> str:
    """Let the owner have earned for ten GPU-hours a month ago; return its earnings account."""
    earn(world)
    return str(earnings_account(world.tenant(OWNER), "USD"))


def with_details(world: World, owner: Client, account: str) -> None:
    page = post(owner, world, f"/payouts/of/{account}/details", name="Aurora", iban=IBAN)
    assert "DE… 3000" in page and IBAN not in page
    [confirm] = re.findall(r"/payouts/of/[^\"]*/confirm", page)
    assert "You are paid to this account" in post(owner, world, confirm)


def test_an_owner_sees_what_it_earned_and_when_it_is_paid(world: World, earned: str) -> None:
    owner = world.member(OWNER, "owner")
    page = html(owner.get("/payouts").content)
    assert "$19.00" in page and "$20.00" in page and "$1.00" in page
    for by in ("gpu", "offer", "month"):
        page = html(owner.get(f"/payouts?by={by}").content)
        assert "$19.00" in page
    assert "Use of GPUs" in page
    assert "Owed to owners" not in page


def test_a_payout_goes_from_request_to_bank_by_two_people(world: World, earned: str) -> None:
    owner = world.member(OWNER, "owner")
    joan, oscar = world.member(PLATFORM, "finance"), world.member(PLATFORM, "operator")
    with_details(world, owner, earned)

    page = post(joan, world, f"/payouts/of/{earned}/settle")
    row = PayoutRow.objects.get()
    assert "somebody else has to approve it" in page
    refused = post(joan, world, f"/payouts/{row.payout_id}/approve")
    assert "Nobody approves a payout that they asked for" in refused
    assert "Approved." in post(oscar, world, f"/payouts/{row.payout_id}/approve")

    page = post(joan, world, "/payouts/files", format="pain.001", currency="USD")
    [load] = re.findall(r"/payouts/files/[0-9a-f-]{36}", page)
    pain001.read(joan.post(load).content)
    form = {"reference": "TX-1", "paid_on": "2026-12-02"}
    assert "TX-1" in post(joan, world, f"/payouts/{row.payout_id}/paid", **form)

    page = html(owner.get(f"/payouts/{row.payout_id}").content)
    assert "Paid" in page and "Owed before" in page and "Mark as" not in page
    csv = owner.get(f"/payouts/{row.payout_id}/statement").content.decode()
    answer = owner.get(f"/payouts/{row.payout_id}/paper")
    assert answer.content.startswith(b"%PDF-")
    assert owner.get(f"/payouts/{row.payout_id}/paper").content == answer.content
    assert "payout" in csv and "-19.000000000" in csv


def test_what_is_wrong_with_a_form_is_said_on_the_page(world: World, earned: str) -> None:
    owner = world.member(OWNER, "owner")
    path = f"/payouts/of/{earned}/details"
    page = post(owner, world, path, name="Aurora", iban=IBAN[:-1] + "1")
    assert "check digits" in page
    page = post(owner, world, f"/payouts/of/{earned}/schedule", schedule="weekly", minimum="ten")
    assert "plain decimal number" in page
    assert "Saved." in post(
        owner, world, f"/payouts/of/{earned}/schedule", schedule="monthly", minimum="5"
    )


def test_payouts_are_for_owners_and_finance_and_each_sees_its_own(
    world: World, earned: str
) -> None:
    assert world.member(OWNER, "consumer").get("/payouts").status_code == 403
    payout, _ = paying.settle_now(
        world.store,
        PayeeRow.objects.get(pk=earned),
        user_id=uuid4(),  # type: ignore[arg-type]
        by=BY,
        now=world.now,
    )
    world.settle()
    assert world.member(OWNER, "owner").get(f"/payouts/{payout}").status_code == 200
    assert world.member("cirrus", "finance").get(f"/payouts/{payout}").status_code == 404
    answer = world.member(OWNER, "finance").post(f"/payouts/{payout}/approve")
    assert answer.status_code == 403


def test_a_long_statement_is_summed_up_on_the_page(
    world: World, earned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    earn(world)
    joan = world.member(PLATFORM, "finance")
    post(joan, world, f"/payouts/of/{earned}/settle")
    monkeypatch.setattr("config.site.pages.payouts.one.LINES_SHOWN", 1)
    page = html(joan.get(f"/payouts/{PayoutRow.objects.get().payout_id}").content)
    assert "1 more lines" in page and "the CSV has them" in page


def test_a_file_of_the_bank_is_uploaded_and_says_what_came_of_each_line(
    world: World, earned: str
) -> None:
    owner = world.member(OWNER, "owner")
    joan, oscar = world.member(PLATFORM, "finance"), world.member(PLATFORM, "operator")
    with_details(world, owner, earned)
    post(joan, world, f"/payouts/of/{earned}/settle")
    row = PayoutRow.objects.get()
    post(oscar, world, f"/payouts/{row.payout_id}/approve")
    post(joan, world, "/payouts/files", format="csv", currency="USD")
    name = paying.end_to_end_id(row.payout_id)
    text = notice(entry(name, "19.00", currency="USD"), entry("RENT", "900.00"))

    def uploaded(data: str) -> str:
        sent = SimpleUploadedFile("bank.xml", data.encode())
        answer = joan.post("/payouts/bank-notice", {"file": sent})
        world.settle()
        return html(answer.content)

    page = uploaded(text)
    assert "the payout is paid" in page and "Not ours" in page and "€900.00" in page
    assert PayoutRow.objects.get().state == "paid"
    assert "on the books already" in uploaded(text)
    assert "no camt.054 that can be read" in uploaded("<html/>")
