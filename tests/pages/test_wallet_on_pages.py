"""The page of a wallet: topping up, what came of it, cards, money back by two people."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from ledger import commands, payments
from ledger.domain.account_ids import funds_account
from ledger.domain.ids import SubscriberId
from ledger.eventstore.port import Meta
from ledger.funding import inbox, outbox
from ledger.models import (
    Checkpoint,
    PaymentNotice,
    WalletMethodRow,
    WalletPaymentRow,
    WalletRefundRow,
)
from ledger.payments.stripe import StripePayments
from tests.pages.reading import html
from tests.pages.world import CONSUMER, OWNER, PLATFORM, World
from tests.stripe_double.double import KEY, SECRET, StripeDouble

pytestmark = pytest.mark.django_db
SITE = "http://testserver"


@pytest.fixture
def double() -> Iterator[StripeDouble]:
    double = StripeDouble().start()
    payments.install(lambda: StripePayments(KEY, secret=SECRET, url=double.url))
    yield double
    payments.install(lambda: None)
    double.stop()
    assert double.faults == []


def carry_on(world: World, double: StripeDouble, client: Client) -> None:
    """Let the loops do their work, and Stripe tell what happened."""
    world.settle()
    now = timezone.now() + timedelta(minutes=1)
    outbox.run_once(world.store, site=SITE, now=now)
    for notice in double.notices:
        body, signature = double.signed(notice)
        answer = client.post(
            "/webhooks/stripe",
            body,
            content_type="application/json",
            headers={"Stripe-Signature": signature},
        )
        assert answer.status_code == 200
    world.settle()
    inbox.run_once(world.store, now=now)
    world.settle()


def top_up(client: Client, world: World, **form: str) -> str:
    said = {"amount": "50.00", "method": "", "token": str(uuid4()), **form}
    answer = client.post(f"/wallet/{world.account_id}/top-up", said)
    world.settle()
    return str(answer["Location"]) if answer.status_code == 302 else html(answer.content)


def refund(client: Client, world: World, **form: str) -> str:
    said = {"amount": "20.00", "reason": "not needed", "token": str(uuid4()), **form}
    client.post(f"/wallet/{world.account_id}/refund", said)
    world.settle()
    return html(client.get("/wallet").content)


def paid(world: World, double: StripeDouble, client: Client) -> None:
    top_up(client, world)
    carry_on(world, double, client)
    double.pay(WalletPaymentRow.objects.get(state="open").reference)
    carry_on(world, double, client)


def test_without_a_key_the_page_says_how_a_wallet_is_topped_up(world: World) -> None:
    page = html(world.member(CONSUMER, "finance").get("/wallet").content)

    assert "No card payments are set up here" in page and "$100.00" in page
    assert "Saved cards" not in page
    said = top_up(world.member(CONSUMER, "finance"), world)
    assert "No card payments are set up here." in said
    answer = Client().post("/webhooks/stripe", b"{}", content_type="application/json")
    assert answer.status_code == 404 and answer.json()["code"] == "not-taken"


def test_a_top_up_goes_to_stripes_page_and_shows_when_it_came_in(
    world: World, double: StripeDouble
) -> None:
    ann = world.member(CONSUMER, "finance")
    there = top_up(ann, world)
    assert "Asking Stripe" in html(ann.get(there).content)

    carry_on(world, double, ann)
    row = WalletPaymentRow.objects.get()
    state = f"/wallet/top-ups/{row.pk}/state"
    assert ann.get(state)["HX-Redirect"] == row.url
    waits = ann.get(f"{state}?paid=1")
    assert "HX-Redirect" not in waits and "Waiting for Stripe" in html(waits.content)

    double.pay(row.reference)
    carry_on(world, double, ann)

    came = html(ann.get(f"{state}?paid=1").content)
    assert "Came in" in came and "$150.00" in came and "hx-get" not in came
    page = html(ann.get("/wallet").content)
    assert "Visa ending in 4242" in page and "$150.00" in page


def test_an_amount_that_cannot_be_paid_is_refused_at_the_form(
    world: World, double: StripeDouble
) -> None:
    ann = world.member(CONSUMER, "finance")

    assert "whole number of cents" in top_up(ann, world, amount="10.005")
    assert "plain decimal number" in top_up(ann, world, amount="lots")
    assert not WalletPaymentRow.objects.exists()


def test_a_refund_needs_somebody_else(world: World, double: StripeDouble) -> None:
    ann, joan = world.member(CONSUMER, "finance"), world.member(PLATFORM, "finance", "operator")
    paid(world, double, ann)
    page = refund(ann, world)
    assert "Take it back" in page and "Approve" not in page
    row = WalletRefundRow.objects.get()

    mine = ann.post(f"/wallet/refunds/{row.pk}")
    assert mine.status_code == 422 and "Only finance people" in html(mine.content)
    assert "not needed" in html(joan.get("/wallet").content)
    assert "Approve" in html(joan.get(f"/wallet/{world.account_id}").content)
    joan.post(f"/wallet/refunds/{row.pk}")
    carry_on(world, double, ann)

    assert WalletRefundRow.objects.get().state == "paid"
    assert "$130.00" in html(ann.get("/wallet").content)


def test_who_asked_takes_it_back(world: World, double: StripeDouble) -> None:
    ann = world.member(CONSUMER, "finance")
    paid(world, double, ann)
    refund(ann, world)
    ann.post(f"/wallet/refunds/{WalletRefundRow.objects.get().pk}", {"decline": "1"})
    world.settle()

    assert WalletRefundRow.objects.get().state == "declined"


def test_a_wallet_is_let_top_itself_up_and_its_card_removed(
    world: World, double: StripeDouble
) -> None:
    ann = world.member(CONSUMER, "finance")
    paid(world, double, ann)
    method = WalletMethodRow.objects.get().pk
    terms = {"below": "20", "amount": "50", "most_per_day": "40", "method": method}
    address = f"/wallet/{world.account_id}/automatic"

    assert "at most as much" in html(ann.post(address, terms).content)
    ann.post(address, {**terms, "most_per_day": "100"})
    world.settle()
    assert "Below $20.00 available it adds $50.00" in html(ann.get("/wallet").content)

    ann.post(f"/wallet/{world.account_id}/cards/remove", {"method": method})
    world.settle()
    page = html(ann.get("/wallet").content)
    assert "The card that it paid with was removed." in page and "Visa" not in page


def test_nobody_sees_or_moves_the_wallet_of_others(world: World, double: StripeDouble) -> None:
    ann, other = world.member(CONSUMER, "finance"), world.member(OWNER, "finance")
    paid(world, double, ann)
    row = WalletPaymentRow.objects.get()

    for path in (f"/wallet/{world.account_id}", f"/wallet/top-ups/{row.pk}"):
        assert other.get(path).status_code == 404
    assert other.post(f"/wallet/{world.account_id}/top-up", {}).status_code == 404
    assert world.member(CONSUMER, "consumer").get("/wallet").status_code == 403
    auditor = world.member(CONSUMER, "auditor")
    assert auditor.get("/wallet").status_code == 200
    assert auditor.post(f"/wallet/{world.account_id}/top-up", {}).status_code == 403


@pytest.mark.parametrize("signature", ["", "t=1,v1=00", "nonsense"])
def test_a_notice_that_is_not_signed_is_a_problem_and_not_kept(
    double: StripeDouble, signature: str
) -> None:
    answer = Client().post(
        "/webhooks/stripe",
        b'{"id": "evt_1"}',
        content_type="application/json",
        headers={"Stripe-Signature": signature},
    )

    assert answer.status_code == 400 and answer.json()["code"] == "notice-not-signed"
    assert not PaymentNotice.objects.exists()


def test_a_form_sent_to_two_wallets_asks_each_for_its_own(
    world: World, double: StripeDouble
) -> None:
    """One token for both names two top-ups and two refunds: else the books would stop at it."""
    other = funds_account(SubscriberId(uuid4()), "USD")
    commands.open_account(
        world.store,
        account_id=other,
        tenant_id=world.tenant(CONSUMER),
        subscriber_id=None,
        kind="prepaid",
        title="Another wallet",
        currency="USD",
        overdraft_nanos=0,
        by=Meta(actor="user:test"),
        now=world.now,
    )
    world.settle()
    ann, token = world.member(CONSUMER, "finance"), str(uuid4())

    for account_id in (world.account_id, other):
        ann.post(f"/wallet/{account_id}/top-up", {"amount": "50.00", "method": "", "token": token})
    world.settle()

    asked = WalletPaymentRow.objects.values_list("account_id", flat=True)
    assert set(asked) == {world.account_id, other}
    assert not Checkpoint.objects.exclude(error="").exists()
