"""An owner sets itself up at Stripe on the page of payouts, and is paid there; finance looks on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client

from ledger import paying, payments
from ledger.connect import notices, transfers
from ledger.domain.account_ids import earnings_account
from ledger.domain.settling import PayoutTerms
from ledger.funding import inbox
from ledger.models import PayeeRow, PayoutRow
from tests.ledger.funding_desk import install
from tests.pages.browser import FIRST_SCHEME, browsing, enter, faults, served
from tests.pages.earning import earn, post
from tests.pages.reading import html
from tests.pages.world import OWNER, PLATFORM, World
from tests.stripe_double import connect
from tests.stripe_double.double import KEY, SECRET, StripeDouble

pytestmark = pytest.mark.django_db


@pytest.fixture
def earned(world: World) -> str:
    """Let the owner have earned; return its earnings account."""
    earn(world)
    return str(earnings_account(world.tenant(OWNER), "USD"))


@pytest.fixture
def double() -> Iterator[StripeDouble]:
    double = StripeDouble().start()
    install(double)
    notices.listen()
    kept = paying.terms(), paying.debtor()
    paying.install(PayoutTerms(details_wait_seconds=3_600), paying.debtor())
    yield double
    paying.install(*kept)
    payments.install(lambda: None)
    double.stop()
    assert double.faults == []


def hear(world: World, double: StripeDouble) -> None:
    """Take every notice in, and look into all."""
    for notice in double.notices:
        inbox.take(*double.signed(notice), now=world.now)
    inbox.run_once(world.store, now=world.now)
    world.settle()


def carry_out(world: World, *, hours: float = 0) -> None:
    """Ask Stripe for what is to be done, so many hours later."""
    for _ in range(3):
        transfers.run_once(world.store, now=world.now + timedelta(hours=hours))
        world.settle()


def set_up(world: World, double: StripeDouble, owner: Client, account: str) -> str:
    """Let an owner tell Stripe all, and choose to be paid there; return its account."""
    path = f"/payouts/of/{account}"
    page = post(owner, world, f"{path}/stripe", country="de")
    assert f"{double.url}/setup/" in page and "Go on at Stripe" in page
    [made] = double.all_of("account")
    assert made["country"] == "DE"
    page = html(owner.get("/payouts?stripe=back").content)
    assert "Details missing" in page and "external account" in page
    assert "takes no money yet" in post(owner, world, f"{path}/channel", channel="stripe")
    connect.onboard(double, made["id"])
    page = post(owner, world, f"{path}/stripe/look")
    assert "Pay me over Stripe" in page
    page = post(owner, world, f"{path}/channel", channel="stripe")
    assert "Pay to my bank account again" in page and "not in use yet" in page
    return str(made["id"])


def test_an_owner_sets_itself_up_and_is_paid_over_stripe(
    world: World, earned: str, double: StripeDouble
) -> None:
    owner = world.member(OWNER, "owner")
    joan, oscar = world.member(PLATFORM, "finance"), world.member(PLATFORM, "operator")
    account = set_up(world, double, owner, earned)
    page = post(owner, world, f"/payouts/of/{earned}/stripe/account")
    assert f"{double.url}/express/{account}" in page

    post(joan, world, f"/payouts/of/{earned}/settle")
    row = PayoutRow.objects.get()
    post(oscar, world, f"/payouts/{row.payout_id}/approve")
    page = html(joan.get("/payouts").content)
    assert "over Stripe" in page and "Write a bank file" not in page
    carry_out(world, hours=2)
    page = html(joan.get(f"/payouts/{row.payout_id}").content)
    assert "Stripe is asked" in page and "insufficient" in page and "Mark as paid" not in page

    double.move("topup", 100_000, "tu_1", currency="usd")
    carry_out(world, hours=4)
    page = html(joan.get(f"/payouts/{row.payout_id}").content)
    [made] = double.all_of("transfer")
    assert made["id"] in page and "It came back" not in page
    path = f"/payouts/{row.payout_id}/reversals"
    refused = post(joan, world, path, amount="100", reason="too much")
    assert "No more can come back" in refused
    post(joan, world, path, amount="5.00", reason="charged twice")
    carry_out(world, hours=4)
    page = html(owner.get(f"/payouts/{row.payout_id}").content)
    assert "Came back" in page and "$5.00" in page and "Take some of it back" not in page

    paid = connect.pay_out(double, account, 1_400)
    connect.bank_refuses(double, paid["id"])
    hear(world, double)
    page = html(owner.get("/payouts").content)
    assert "The bank account has been closed." in page and "$14.00" in page


def test_where_nobody_is_paid_over_stripe_the_page_says_so(world: World, earned: str) -> None:
    owner = world.member(OWNER, "owner")
    page = html(owner.get("/payouts").content)
    assert "Nobody is paid over Stripe here" in page and "Set up at Stripe" not in page
    refused = post(owner, world, f"/payouts/of/{earned}/stripe")
    assert "Nobody is paid over Stripe here" in refused and "OFFPEAK_STRIPE_KEY" in refused


def test_where_stripe_is_away_nothing_is_lost(
    world: World, earned: str, double: StripeDouble
) -> None:
    owner = world.member(OWNER, "owner")
    double.breaks.append(lambda method, path: "500")
    page = post(owner, world, f"/payouts/of/{earned}/stripe")
    assert "no account at Stripe" in page
    assert PayeeRow.objects.get(pk=earned).stripe_state == "asked"
    double.breaks.clear()
    carry_out(world)
    double.breaks.append(lambda method, path: "500")
    refused = post(owner, world, f"/payouts/of/{earned}/stripe/onboarding")
    assert "Stripe does not answer" in refused


def test_only_an_owners_own_people_set_it_up(
    world: World, earned: str, double: StripeDouble
) -> None:
    joan = world.member(PLATFORM, "finance")
    for path in ("stripe", "stripe/onboarding", "stripe/look", "stripe/account", "channel"):
        answer = joan.post(f"/payouts/of/{earned}/{path}", {"channel": "stripe"})
        assert answer.status_code == 404, path
    assert double.all_of("account") == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("scheme", FIRST_SCHEME)
def test_pages_of_being_paid_over_stripe_are_accessible_and_fit(
    committed_store: None, double: StripeDouble, tmp_path: Path, scheme: str
) -> None:
    world = World()
    world.found()
    earn(world)
    account = str(earnings_account(world.tenant(OWNER), "USD"))
    owner = world.member(OWNER, "owner")
    joan, oscar = world.member(PLATFORM, "finance"), world.member(PLATFORM, "operator")
    log = tmp_path / "site.log"
    wrong: dict[str, list[str]] = {}
    with (
        served(
            log,
            OFFPEAK_STRIPE_KEY=KEY,
            OFFPEAK_STRIPE_WEBHOOK_SECRET=SECRET,
            OFFPEAK_STRIPE_URL=double.url,
        ) as address,
        browsing(scheme=scheme) as (context, page, said),
    ):

        def look(client: Client, path: str, shown: str) -> None:
            enter(context, address, client.cookies)
            page.goto(address + path)
            found = [] if shown in page.locator("main").inner_text() else [f"no {shown}"]
            if found := [*found, *faults(page, scheme), *said]:
                wrong[shown] = found
            said.clear()

        look(owner, "/payouts", "Set up at Stripe")
        there = set_up(world, double, owner, account)
        look(owner, "/payouts", "chosen, not in use yet")
        post(joan, world, f"/payouts/of/{account}/settle")
        payout = PayoutRow.objects.get().payout_id
        post(oscar, world, f"/payouts/{payout}/approve")
        carry_out(world, hours=2)
        look(joan, f"/payouts/{payout}", "insufficient available funds")
        double.move("topup", 100_000, "tu_1", currency="usd")
        carry_out(world, hours=4)
        look(joan, f"/payouts/{payout}", "Take some of it back")
        connect.bank_refuses(double, connect.pay_out(double, there, 1_400)["id"])
        connect.restrict(double, there, "The document is not legible.")
        hear(world, double)
        look(owner, "/payouts", "The bank account has been closed.")

    assert wrong == {}
