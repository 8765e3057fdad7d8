"""A month of money from its first lease to its bank file, on the pages, by the people who do it.

What hosts, engine and clock do is done by the real commands in a month that is over; Stripe is the
double. Each screen is looked at for its width on a phone and kept as a picture, light and dark, in
the test's folder, for whoever wants to see it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from django.test import Client
from playwright.sync_api import BrowserContext, Locator, Page

from ledger import closing, exporting, payments
from ledger.funding import inbox, outbox, reconciling
from ledger.models import PayoutRow, WalletPaymentRow
from ledger.payments.stripe import StripePayments
from ledger.queries import disagreements
from marketplace.models import LeaseRow
from tests.ledger import pain001
from tests.pages.browser import browsing, enter, overflow, paint, served
from tests.pages.lived_month import LivedMonth
from tests.pages.world import CONSUMER, OWNER, PLATFORM
from tests.stripe_double.double import KEY, SECRET, StripeDouble

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("committed_store")]
IBAN = "DE89370400440532013000"
PHONE, DESK = 390, 1280
FOCUS = "a[href*='/finance/export/focus?']"


@pytest.fixture
def double() -> Iterator[StripeDouble]:
    double = StripeDouble().start()
    payments.install(lambda: StripePayments(KEY, secret=SECRET, url=double.url))
    yield double
    payments.install(lambda: None)
    double.stop()
    assert double.faults == []


class Journey:
    """A browser on the site, in which one person after the other does something."""

    def __init__(
        self, world: LivedMonth, site: str, opened: tuple[BrowserContext, Page], pictures: Path
    ) -> None:
        self.world, self.site, self.pictures = world, site, pictures
        self.context, self.page = opened
        self.grace = world.member(CONSUMER, "finance")
        self.aurora = world.member(OWNER, "owner")
        self.joan = world.member(PLATFORM, "finance", "auditor")
        self.oscar = world.member(PLATFORM, "operator")
        self.seen = list[str]()
        self.wrong = list[str]()

    def come(self, person: Client, path: str) -> None:
        """Let a person open a page."""
        enter(self.context, self.site, person.cookies)
        self.go(path)

    def go(self, path: str) -> None:
        self.page.goto(self.site + path)

    def press(self, button: str | re.Pattern[str]) -> None:
        """Press a button that sends a form, and show the page as of what was done."""
        with self.page.expect_response(lambda answer: answer.request.method == "POST"):
            self.page.get_by_role("button", name=button, exact=isinstance(button, str)).first.click(
                no_wait_after=True
            )
        self.world.follow()
        self.page.wait_for_load_state("load")
        if "not on this page yet" in self.page.inner_text("main"):
            self.page.reload()

    def type(self, **texts: str) -> None:
        """Type into fields by their names."""
        for name, text in texts.items():
            self.page.locator(f"[name='{name.replace('__', '-')}']").first.fill(text)

    def look(self, name: str, *shown: str) -> None:
        """Look at what is open: what it says, how wide it is, and a picture of it."""
        said = self.page.inner_text("main")
        self.wrong += [f"{name}: no {each}" for each in shown if each not in said]
        number = f"{len(self.seen) + 1:02d}"
        self.seen.append(name)
        self.page.screenshot(path=self.pictures / f"{number}-{name}.png", full_page=True)
        self.page.set_viewport_size({"width": PHONE, "height": 900})
        if (wide := overflow(self.page)) > 0:
            self.wrong.append(f"{name}: {wide} px too wide on a phone")
        paint(self.page, "dark")
        self.page.screenshot(path=self.pictures / f"{number}-{name}-phone.png", full_page=True)
        paint(self.page, "light")
        self.page.set_viewport_size({"width": DESK, "height": 900})


@contextmanager
def journey(world: LivedMonth, double: StripeDouble, folder: Path) -> Iterator[Journey]:
    pictures = folder / "pictures"
    pictures.mkdir()
    with (
        served(
            folder / "site.log",
            OFFPEAK_STRIPE_KEY=KEY,
            OFFPEAK_STRIPE_WEBHOOK_SECRET=SECRET,
            OFFPEAK_STRIPE_URL=double.url,
            OFFPEAK_PAYOUT_IBAN=IBAN,
            OFFPEAK_PAYOUT_NAME="Offpeak",
            OFFPEAK_PAYOUT_DETAILS_WAIT_SECONDS="0",
        ) as site,
        browsing() as (context, page, complaints),
    ):
        on = Journey(world, site, (context, page), pictures)
        yield on
        assert on.wrong == []
        assert [each for each in complaints if "422" not in each] == []


def told_by_stripe(on: Journey, double: StripeDouble) -> None:
    """Let the loops ask Stripe, and Stripe tell what happened."""
    now = datetime.now(UTC) + timedelta(minutes=1)
    outbox.run_once(on.world.store, site=on.site, now=now)
    for notice in double.notices:
        body, signature = double.signed(notice)
        head = {"Stripe-Signature": signature, "Content-Type": "application/json"}
        with urlopen(Request(f"{on.site}/webhooks/stripe", body, head)) as answer:
            assert answer.status == 200
    on.world.follow()
    inbox.run_once(on.world.store, now=now)
    on.world.follow()


def freeze(world: LivedMonth) -> None:
    closing.freeze_closed(world.store, now=datetime.now(UTC))
    world.follow()


def loaded(on: Journey, link: Locator) -> bytes:
    """Load a file that a link names, as who is signed in."""
    return bytes(on.context.request.get(f"{on.site}{link.get_attribute('href')}").body())


def test_a_month_is_lived_closed_opened_again_corrected_and_paid_out(
    double: StripeDouble, tmp_path: Path
) -> None:
    world = LivedMonth.begin()
    world.list_gpus(0, 1, 2, floor="4.00", hours=60)
    with journey(world, double, tmp_path) as on:
        first, second = warned(on)
        topped_up(on, double)
        metered(world, first, second)
        invoice = closed(on)
        before = exported(on)
        drilled_into(on, invoice)
        opened_again(on)
        world.correct(first, hour=9, minutes=30)
        credited(on, invoice)
        after = closed_again(on, before)
        assert after.count(b"\n") == before.count(b"\n") + 1
        paid_out(on)

    world.follow()
    assert disagreements() == []


def warned(on: Journey) -> tuple[LeaseRow, LeaseRow]:
    """Work holds four fifths of the wallet, then nearly all of it, and its people are told."""
    first = on.world.lease(hours=10, gpus=2, limit="4.00", project="llm-eval")
    on.world.watch()
    second = on.world.lease(hours=4, limit="4.00", project="vision", kind="finetune-7b")
    on.world.watch()
    on.come(on.grace, "/notifications")
    on.look("warned", "80 %", "95 %")
    return first, second


def topped_up(on: Journey, double: StripeDouble) -> None:
    """By a transfer that the platform enters, and by card."""
    account = on.world.account_id
    place = f"/settings/organisations/{on.world.tenant(CONSUMER)}/accounts/{account}"
    on.come(on.oscar, place)
    on.type(funds__amount="50.00", funds__reference="transfer 4711")
    on.press("Add")
    on.look("topped-up-by-hand", "is added", "$54.00 available")
    on.come(on.grace, f"/wallet/{account}")
    on.type(amount="25.00")
    on.press("Top up")
    on.look("asking-stripe", "Asking Stripe")
    on.go("/notifications")  # else the page goes on to Stripe's, which nobody may reach here
    told_by_stripe(on, double)
    paid = WalletPaymentRow.objects.get()
    double.pay(paid.reference)
    told_by_stripe(on, double)
    on.go(f"/wallet/top-ups/{paid.pk}?paid=1")
    on.look("topped-up-by-card", "$25.00 came in", "$79.00 is available")


def metered(world: LivedMonth, first: LeaseRow, second: LeaseRow) -> None:
    """All is used, but the last hour of the first lease, which no host proved in time."""
    world.use(first, hours=9)
    world.use(second, hours=4)
    world.end(first)
    world.end(second)


def closed(on: Journey) -> str:
    """The checklist says what is left, until nothing is. Returns: the number of the invoice."""
    month = on.world.period
    on.come(on.joan, f"/finance/months/{month}")
    on.look("open-month", "Soft-close it first", "Stripe reconciled", "1 to do")
    reconciling.run_once(on.world.store, now=datetime.now(UTC))
    on.world.follow()
    on.press(f"Soft-close {month}")
    on.look("soft-closed", "everything is in order", "account without an invoice")
    on.go("/invoices")
    on.press(f"Issue {month}")
    on.look("invoiced", "1 issued", "REC-")
    number = on.page.locator("a[href^='/invoices/REC']").first.inner_text()
    on.go(f"/finance/months/{month}")
    on.press(f"Close {month}")
    on.look("closed", "They are being written")
    freeze(on.world)
    on.page.get_by_text("A file that is loaded again has the same bytes").wait_for()
    on.look("frozen", "FOCUS 1.2", "as of event")
    return number


def exported(on: Journey) -> bytes:
    """A file is asked for on the page, and the frozen one loaded. Returns: that."""
    focus = loaded(on, on.page.locator(FOCUS).first)
    on.go(f"/finance/exports?period={on.world.period}")
    on.press("Write it")
    exporting.make_exports(on.world.store, exporting.kept_in(), now=datetime.now(UTC))
    on.world.follow()
    on.page.get_by_text("ready", exact=True).first.wait_for()
    on.look("exported", "ready")
    return focus


def drilled_into(on: Journey, invoice: str) -> None:
    """From sums to entries, and from an entry to its events."""
    month = on.world.period
    on.go(f"/finance/matrix?period={month}")
    on.look("who-owes-whom", "Language models", "$88.00")
    on.go(f"/finance/costs?period={month}&by=project&then=day")
    on.look("costs", "llm-eval", "$72.00", "vision", "$16.00")
    on.go(f"/invoices/{invoice}")
    on.page.locator("a[href*='line=']").first.click()
    on.look("entries-of-a-line", "$88.00", f"{invoice}, ")
    on.page.locator("#entries tbody th a").first.click()
    on.look("an-entry", "they sum to zero", "How it came about")


def opened_again(on: Journey) -> None:
    """One asks with a reason, and cannot approve it; another does."""
    month = on.world.period
    on.go(f"/finance/months/{month}")
    on.type(reason="the last hour came late")
    on.press("Ask to open it again")
    on.look("asked-to-open", "Somebody else has to approve it", "the last hour came late")
    on.come(on.oscar, f"/finance/months/{month}")
    on.press(f"Open {month} again")
    on.look("opened-again", "What changed since it was closed before", "No entry came")


def credited(on: Journey, invoice: str) -> None:
    """One asks for a credit note of a part of a line, another issues it."""
    on.come(on.joan, f"/invoices/{invoice}")
    on.type(reason="a slow disk")
    on.page.get_by_text("Only parts of lines").click()
    on.type(amount__001="1.50")
    on.press("Ask for a credit note")
    on.come(on.oscar, "/invoices")
    on.look("credit-asked", "$1.50", "a slow disk")
    on.press("Issue the credit note")
    on.look("credited", "The credit note is issued", "CN-")


def closed_again(on: Journey, before: bytes) -> bytes:
    """The month says what is other than before. Returns: the new export."""
    month = on.world.period
    on.come(on.joan, f"/finance/months/{month}")
    on.press(f"Soft-close {month}")
    on.press(f"Close {month}")
    freeze(on.world)
    on.page.get_by_text("A file that is loaded again has the same bytes").wait_for()
    on.page.reload()
    on.look("what-changed", "Use of GPUs (1)", "differ", "sha256 before")
    was = on.page.locator(f"section[aria-labelledby=h-changes] {FOCUS}").first
    again = loaded(on, was)
    assert again == before
    assert hashlib.sha256(again).hexdigest() == was.get_attribute("title")
    return loaded(on, on.page.locator(f"#frozen {FOCUS}").first)


def paid_out(on: Journey) -> None:
    """Settled by one, approved by another, and in a file for the bank."""
    on.come(on.aurora, "/payouts")
    on.type(name="Aurora", iban=IBAN)
    on.press("Enter")
    on.press(re.compile("^Confirm"))
    on.look("owner-is-paid-to", "You are paid to this account")
    on.come(on.joan, "/payouts")
    on.press("Pay now")
    on.look("payout-asked", "somebody else has to approve it")
    payout = f"/payouts/{PayoutRow.objects.get().payout_id}"
    on.come(on.oscar, payout)
    on.press(re.compile("^Approve"))
    on.look("payout-approved", "Approved")
    on.come(on.joan, "/payouts")
    on.press("Write a bank file")
    on.look("bank-file", "pain.001")
    with on.page.expect_download() as came:
        on.page.get_by_role("button", name="Load").first.click()
    pain001.read(Path(came.value.path()).read_bytes())
    on.come(on.joan, payout)
    on.type(reference="TX-1", paid_on=f"{datetime.now(UTC):%Y-%m-%d}")
    on.press("Mark as paid")
    on.come(on.aurora, payout)
    on.look("owner-sees-it", "Paid", "TX-1")
