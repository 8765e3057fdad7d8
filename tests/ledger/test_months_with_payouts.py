"""A month in which owners are paid, by bank and over Stripe, in exports that others read."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from ledger import exports
from ledger.access import Actor
from ledger.commands import connect as over_stripe
from ledger.commands import payouts as by_bank
from ledger.domain.account_ids import cash_account, transit_account
from ledger.domain.bank_details import BankDetails
from ledger.domain.bank_files import Debtor, Draft
from ledger.domain.payout_events import BankFileLine
from ledger.eventstore.memory import MemoryStore
from ledger.queries import disagreements
from ledger.queries.payouts_add_up import payouts_that_differ
from tests.conftest import NOON, SOMEBODY
from tests.ledger import busy_month, paying
from tests.ledger import ledgerbook as book
from tests.ledger.bookkeepers import bean_check, hledger
from tests.ledger.busy_month import AUDITOR, JANUARY, OWNER_FINANCE
from tests.ledger.exported import nanos, rows_of
from tests.ledger.ledgerbook import usd
from tests.ledger.paying import EARNINGS, IRIS, JOAN, OSCAR

pytestmark = pytest.mark.django_db
PAID, BACK = usd(3).nanos, usd(1).nanos


@pytest.fixture
def month(store: MemoryStore) -> MemoryStore:
    """Live through January; pay by bank, cancel, return, pay over Stripe and take a part back."""
    busy_month.live_through(store)
    details = uuid4()
    by_bank.propose_bank_details(
        store,
        paying.of(),
        BankDetails(name="Lab", iban="DE89370400440532013000"),
        details_id=details,
        wait_seconds=0,
        user_id=IRIS,
        by=SOMEBODY,
        now=NOON,
    )
    by_bank.confirm_bank_details(store, EARNINGS, details, user_id=IRIS, by=SOMEBODY, now=NOON)
    paid, returned = requested(store, "w1"), requested(store, "w2")
    paying.cancel(store, requested(store, "w3"))
    for payout in (paid, returned):
        send(store, payout, details)
    paying.paid(store, paid)
    paying.paid(store, returned, "TX-2")
    paying.returned(store, returned)
    pay_over_stripe(store, requested(store, "w4"))
    requested(store, "w5")
    busy_month.follow(store)
    return store


def requested(store: MemoryStore, period: str) -> UUID:
    found = paying.earned(paying.payee(store).paid_out + PAID)
    made = paying.settle(store, found, period=period, user=JOAN)
    assert made is not None
    paying.approve(store, made, OSCAR)
    return made


def send(store: MemoryStore, payout: UUID, details: UUID) -> None:
    line = BankFileLine(
        payout_id=payout,
        account_id=EARNINGS,
        details_id=details,
        end_to_end_id=payout.hex[:20],
        nanos=PAID,
    )
    draft = Draft(
        file_id=uuid4(),
        format="csv",
        currency="USD",
        debtor=Debtor(),
        execute_on=NOON.date(),
        lines=[line],
    )
    by_bank.write_bank_file(
        store,
        draft,
        render=lambda event: event.message_id.encode(),
        platform_id=book.PLATFORM,
        user_id=JOAN,
        by=SOMEBODY,
        now=NOON,
    )


def pay_over_stripe(store: MemoryStore, payout: UUID) -> None:
    by, later = SOMEBODY, NOON + timedelta(hours=1)
    over_stripe.ask_stripe_account(store, paying.of(), country="", user_id=IRIS, by=by, now=NOON)
    over_stripe.note_stripe_account(store, EARNINGS, made="acct_1", by=by, now=NOON)
    over_stripe.note_account_state(
        store, EARNINGS, state="ready", missing=(), words="", by=by, now=NOON
    )
    over_stripe.choose_channel(
        store, paying.of(), "stripe", wait_seconds=0, user_id=IRIS, by=by, now=NOON
    )
    over_stripe.send_over_stripe(store, EARNINGS, payout, by=by, now=later)
    over_stripe.note_transfer(
        store,
        EARNINGS,
        payout,
        reference="tr_1",
        paid_on=NOON.date(),
        currency="USD",
        platform_id=book.PLATFORM,
        by=by,
        now=later,
    )
    over_stripe.note_back(
        store,
        EARNINGS,
        payout,
        number=0,
        reference="trr_1",
        money=usd(1),
        platform_id=book.PLATFORM,
        by=by,
        now=later,
    )


def written(name: str, store: MemoryStore, actor: Actor) -> str:
    data = b"".join(exports.export(actor, name, period=JANUARY, position=store.head()))
    return data.decode()


def test_the_books_are_those_of_what_was_paid(month: MemoryStore) -> None:
    totals = book.totals(month)
    assert sum(totals.values()) == 0
    assert totals[transit_account(book.PLATFORM, "USD")] == PAID
    assert paying.payee(month).paid_out == 3 * PAID - BACK
    assert disagreements() == [] and payouts_that_differ() == []


@pytest.mark.parametrize("actor", [AUDITOR, OWNER_FINANCE])
def test_bean_check_accepts_them(month: MemoryStore, tmp_path: Path, actor: Actor) -> None:
    text = written("beancount", month, actor)
    assert bean_check(text, tmp_path) == (0, "")
    # What left for the owner's account is the platform's entry; what came back is the owner's, too.
    assert ('tr_1"' in text) == (actor is AUDITOR)
    assert "trr_1" in text and "account closed" in text


@pytest.mark.parametrize("actor", [AUDITOR, OWNER_FINANCE])
def test_hledger_accepts_them(month: MemoryStore, tmp_path: Path, actor: Actor) -> None:
    assert hledger(written("hledger", month, actor), tmp_path) == (0, "")


def test_general_ledgers_have_what_was_paid_in_cents_that_balance(month: MemoryStore) -> None:
    rows = rows_of(written("gl", month, AUDITOR))
    by_entry: Counter[str] = Counter()
    for row in rows:
        by_entry[row["entry_no"]] += nanos(row["credit"] or "0") - nanos(row["debit"] or "0")
    assert set(by_entry.values()) == {0}
    on_its_way = [row for row in rows if row["account_kind"] == "payouts"]
    assert sum(nanos(r["credit"] or "0") - nanos(r["debit"] or "0") for r in on_its_way) == PAID


def test_nobody_is_charged_for_an_owners_payout(month: MemoryStore) -> None:
    text = written("focus", month, AUDITOR)
    assert "tr_1" not in text and "TX-1" not in text and "payout" not in text.lower()
    assert str(cash_account(book.PLATFORM, "USD")) not in text
