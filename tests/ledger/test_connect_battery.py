"""Owners paid over Stripe's own library and HTTP, whatever becomes of calls and notices.

Every request and answer is checked by Stripe's own document (`tests/stripe_double`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from ledger import payments
from ledger.commands import connect as commands
from ledger.connect import transfers as carrying
from ledger.connect.comparing import transfers_and_stripe, transfers_are_there
from ledger.domain.connect_events import TransferReversed
from ledger.domain.connecting import StripeAccountMissing, StripeAccountNotReady
from ledger.domain.payees import Payee, PayoutPaidOtherwise, PayoutStateOtherwise, StripeDecides
from ledger.domain.periods import Period
from ledger.domain.reconciling import unexplained, with_the_rest
from ledger.domain.transfers import MoreThanArrived, NotPaidOverStripe, NotWholeUnits
from ledger.eventstore.memory import MemoryStore
from ledger.funding import reconciling
from ledger.models import (
    BankPayoutRow,
    JournalEntryRow,
    PaymentCall,
    PaymentReconciliation,
    PayoutRow,
    TransferReversalRow,
)
from ledger.projections.money import MONEY
from ledger.queries.payouts_add_up import payouts_that_differ
from ledger.rebuilding import fingerprint, rebuild
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book
from tests.ledger import paying
from tests.ledger.connect_desk import WAIT, Desk, opened
from tests.ledger.ledgerbook import usd
from tests.ledger.paying import EARNINGS
from tests.stripe_double import connect
from tests.stripe_double.double import StripeDouble

pytestmark = pytest.mark.django_db


@pytest.fixture
def double() -> Iterator[StripeDouble]:
    double = StripeDouble().start()
    yield double
    payments.install(lambda: None)
    double.stop()
    assert double.faults == []


@pytest.fixture
def desk(store: MemoryStore, double: StripeDouble) -> Iterator[Desk]:
    desk = opened(store, double)
    desk.bring()
    yield desk
    desk.follow()
    assert sum(book.totals(store).values()) == 0
    assert payouts_that_differ() == []
    before = fingerprint(MONEY.tables)
    rebuild(store, MONEY)
    assert fingerprint(MONEY.tables) == before


def once(path: str, how: str) -> Callable[[str, str], str]:
    """Break one request that changes something at this path."""
    left = [how]
    return lambda method, asked: (
        left.pop() if left and method == "POST" and asked.startswith(path) else ""
    )


# --- accounts -----------------------------------------------------------------------------------


def test_an_account_goes_from_asked_to_ready_by_what_stripe_says(desk: Desk) -> None:
    desk.ask("DE")
    assert desk.row.stripe_state == "asked"
    desk.call()
    assert desk.row.stripe_state == "details-missing" and desk.row.stripe_missing
    [made] = desk.double.all_of("account")
    assert (made["country"], made["type"]) == ("DE", "express")
    connect.onboard(desk.double, desk.account)
    assert desk.row.stripe_state == "details-missing"
    desk.hear()
    assert (desk.row.stripe_state, desk.row.stripe_missing) == ("ready", [])
    connect.restrict(desk.double, desk.account, "The document is not legible.")
    desk.hear()
    assert desk.row.stripe_state == "restricted"
    assert desk.row.stripe_words == "The document is not legible."


def test_what_a_lost_notice_would_have_said_is_asked_for(desk: Desk) -> None:
    desk.ask()
    desk.call()
    desk.call()
    connect.onboard(desk.double, desk.account)
    desk.later(minutes=11)
    desk.call()
    assert desk.row.stripe_state == "ready"


@pytest.mark.parametrize("how", ["before", "after", "500", "429"])
def test_an_account_whose_call_was_not_answered_is_made_once(desk: Desk, how: str) -> None:
    desk.double.breaks.append(once("/v1/accounts", how))
    desk.ask()
    assert desk.call() == 0
    desk.later(seconds=6)
    assert desk.call() >= 1
    assert len(desk.double.all_of("account")) == 1 and desk.row.stripe_account == desk.account


def test_word_of_an_account_may_come_before_our_own_note_of_it(desk: Desk) -> None:
    desk.double.breaks.append(once("/v1/accounts", "after"))
    desk.ask()
    desk.call()
    desk.hear()
    [made] = desk.double.all_of("account")
    assert desk.row.stripe_account == made["id"]
    desk.later(seconds=6)
    desk.call()
    assert len(desk.double.all_of("account")) == 1


def test_only_a_ready_account_is_chosen_and_it_waits_as_a_bank_account_does(desk: Desk) -> None:
    with pytest.raises(StripeAccountMissing):
        desk.choose()
    desk.ask()
    desk.call()
    with pytest.raises(StripeAccountNotReady):
        desk.choose()
    connect.onboard(desk.double, desk.account)
    desk.hear()
    desk.choose()
    payout = desk.approved()
    desk.call()
    assert desk.payout(payout).state == "approved" and desk.double.all_of("transfer") == []
    desk.later(seconds=WAIT)
    desk.call()
    assert desk.payout(payout).state == "paid"


def test_an_owner_may_go_back_to_a_bank_account_at_once(desk: Desk) -> None:
    desk.ready()
    desk.choose("bank-file")
    payout = desk.approved()
    desk.call()
    assert desk.payout(payout).state == "approved" and desk.payee.channel == "bank-file"


# --- transfers ----------------------------------------------------------------------------------


def test_an_approved_payout_is_a_transfer_and_paid_by_it(desk: Desk) -> None:
    account = desk.ready()
    payout = desk.approved(20)
    before = desk.totals()
    assert before["transit"] == usd(20)
    desk.call()

    [made] = desk.double.all_of("transfer")
    assert (made["amount"], made["destination"]) == (2_000, account)
    row = desk.shown(payout)
    assert (row.state, row.channel, row.reference, row.file_id) == (
        "paid",
        "stripe",
        made["id"],
        None,
    )
    after = desk.totals()
    assert (after["transit"], after["cash"] - before["cash"]) == (usd(0), usd(20))
    desk.hear()
    assert desk.totals() == after and desk.left() == []


@pytest.mark.parametrize("how", ["before", "after", "500", "429"])
@pytest.mark.parametrize("hears", [True, False])
def test_a_transfer_whose_answer_was_lost_is_made_and_posted_once(
    desk: Desk, how: str, *, hears: bool
) -> None:
    desk.ready()
    desk.double.breaks.append(once("/v1/transfers", how))
    payout = desk.approved()
    desk.call()
    assert desk.payout(payout).state == "sent"
    if hears:
        desk.hear()
    desk.later(seconds=6)
    desk.call()
    desk.hear()
    assert desk.payout(payout).state == "paid" and len(desk.double.all_of("transfer")) == 1


def test_a_transfer_that_is_there_under_a_forgotten_key_is_found(desk: Desk) -> None:
    desk.ready()
    desk.double.breaks.append(once("/v1/transfers", "after"))
    payout = desk.approved()
    desk.call()
    desk.double.answers.clear()
    desk.later(days=2)
    desk.call()
    assert desk.payout(payout).state == "paid" and len(desk.double.all_of("transfer")) == 1


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize(
    "step",
    ["send_over_stripe", "note_transfer", "note_waiting", "note_back", "note_stripe_account"],
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_ends_at_any_step_leaves_what_the_next_one_goes_on_with(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    said = getattr(commands, step)
    killed: list[str] = []

    def kill(*args: object, **given: object) -> object:
        if killed:
            return said(*args, **given)
        killed.append(step)
        if when == "after":
            said(*args, **given)
        raise Killed

    def go_on(doing: Callable[[], object]) -> None:
        try:
            doing()
        except Killed:
            doing()

    monkeypatch.setattr(commands, step, kill)
    desk.ask()
    go_on(desk.call)
    connect.onboard(desk.double, desk.account)
    desk.hear()
    desk.choose()
    desk.later(seconds=WAIT)
    left = desk.double.balance("usd")
    desk.double.move("payout", -left, "po_ours", currency="usd")
    payout = desk.approved(20)
    go_on(desk.call)
    desk.bring()
    desk.later(hours=12)
    go_on(desk.call)
    desk.back(payout, 5)
    go_on(desk.call)
    assert killed == [step]
    desk.hear()

    assert len(desk.double.all_of("account")) == 1
    assert [each["amount"] for each in desk.double.all_of("transfer")] == [2_000]
    assert [each["amount"] for each in desk.double.all_of("transfer_reversal")] == [500]
    found = desk.payout(payout)
    assert (found.state, sum(found.came_back.values())) == ("paid", usd(5).nanos)


def test_our_balance_there_may_be_too_low_for_a_while(desk: Desk) -> None:
    desk.ready()
    desk.double.move("payout", -desk.double.balance("usd"), "po_ours", currency="usd")
    payout = desk.approved()
    desk.call()
    row = desk.shown(payout)
    assert (row.state, row.waits) == ("sent", 1) and "insufficient" in row.waits_because
    desk.call()
    assert desk.shown(payout).waits == 1
    desk.later(hours=1)
    desk.call()
    assert desk.shown(payout).waits == 2
    desk.bring()
    desk.later(hours=2)
    desk.call()
    row = desk.shown(payout)
    assert (row.state, row.again_at) == ("paid", None)
    keys = [key for key in desk.double.answers if ":transfer:" in key]
    assert len(keys) == 3, "a refusal is kept under its key, so each try has its own"


def test_what_waited_for_a_week_is_earnings_again(desk: Desk) -> None:
    desk.ready()
    desk.double.move("payout", -desk.double.balance("usd"), "po_ours", currency="usd")
    payout = desk.approved()
    before = desk.totals()
    tries = 0
    while desk.payout(payout).state != "returned":
        desk.call()
        desk.later(hours=12)
        tries += 1
        assert tries < 30
    found = desk.payout(payout)
    assert desk.now - NOON <= timedelta(days=9) and found.waited is not None
    assert desk.totals()["earnings"] == before["earnings"] + usd(20)
    assert desk.payee.paid_out == 0


def test_a_transfer_that_stripe_refuses_is_earnings_again_with_its_words(desk: Desk) -> None:
    account = desk.ready()
    payout = desk.approved()
    connect.restrict(desk.double, account, "The document is not legible.")
    desk.call()
    row = desk.shown(payout)
    assert row.state == "returned" and "transfers capability" in row.reason
    desk.hear()
    second = desk.approved()
    desk.call()
    assert desk.payout(second).state == "approved", "it waits until the account is ready again"


def test_what_is_wrong_with_our_own_key_returns_no_payout(desk: Desk) -> None:
    desk.ready()
    payout = desk.approved()
    desk.double.breaks.append(lambda method, path: "403" if method == "POST" else "")
    desk.call()
    assert desk.payout(payout).state == "sent"
    [row] = PaymentCall.objects.all()
    assert row.call == f"transfer:{payout}" and row.again_at is not None
    desk.double.breaks.clear()
    desk.later(seconds=6)
    desk.call()
    assert desk.payout(payout).state == "paid"


def test_one_owners_failure_stalls_nobody(desk: Desk) -> None:
    desk.ready()
    payout = desk.approved()
    broken = UUID(int=5)
    row = desk.shown(payout)
    PayoutRow.objects.create(
        **{
            field.attname: getattr(row, field.attname)
            for field in PayoutRow._meta.fields
            if field.attname not in ("payout_id", "state", "channel")
        },
        payout_id=broken,
        state="sent",
        channel="stripe",
    )
    carrying.run_once(desk.store, now=desk.now)
    assert PaymentCall.objects.get().call == f"transfer:{broken}"
    PayoutRow.objects.filter(pk=broken).delete()
    desk.call()
    assert desk.payout(payout).state == "paid"


def test_people_mark_nothing_that_stripe_tells(desk: Desk) -> None:
    desk.ready()
    payout = desk.arrived()
    with pytest.raises(StripeDecides):
        paying.returned(desk.store, payout)
    with pytest.raises(StripeDecides):
        paying.paid(desk.store, payout)


def test_a_second_transfer_for_a_payout_is_refused_by_the_books(desk: Desk) -> None:
    desk.ready()
    payout = desk.arrived()
    with pytest.raises(PayoutPaidOtherwise):
        commands.note_transfer(
            desk.store,
            EARNINGS,
            payout,
            reference="tr_another",
            paid_on=NOON.date(),
            currency="USD",
            platform_id=book.PLATFORM,
            by=SOMEBODY,
            now=desk.now,
        )


# --- what comes back ------------------------------------------------------------------------------


def test_a_part_of_a_transfer_comes_back_by_an_entry_that_names_the_payment(desk: Desk) -> None:
    desk.ready()
    payout = desk.arrived(20)
    before = desk.totals()
    desk.back(payout, 5)
    desk.call()

    row = desk.shown(payout)
    assert (row.state, row.reversed_nanos) == ("paid", usd(5).nanos)
    after = desk.totals()
    assert after["earnings"] - before["earnings"] == usd(5)
    assert before["cash"] - after["cash"] == usd(5)
    paid = desk.payout(payout).paid
    assert paid is not None
    [entry] = [each for each in book.entries(desk.store) if isinstance(each, TransferReversed)]
    assert (entry.corrects, entry.reason) == (paid.entry_id, "charged twice")
    assert JournalEntryRow.objects.get(pk=entry.entry_id).kind == "payout-back"
    desk.hear()
    assert desk.totals() == after and desk.left() == []


def test_a_transfer_that_came_back_whole_is_returned(desk: Desk) -> None:
    desk.ready()
    payout = desk.arrived(20)
    desk.back(payout, 5)
    desk.back(payout, 15, number=2)
    desk.call()
    assert desk.shown(payout).state == "returned" and desk.payee.paid_out == 0
    assert sorted(TransferReversalRow.objects.values_list("state", flat=True)) == ["back", "back"]
    with pytest.raises(PayoutStateOtherwise):
        desk.back(payout, 1, number=3)


def test_what_was_reversed_at_stripe_itself_is_put_on_the_books_once(desk: Desk) -> None:
    desk.ready()
    payout = desk.arrived(20)
    [made] = desk.double.all_of("transfer")
    connect.reverse(desk.double, made["id"], 700)
    connect.reverse(desk.double, made["id"], 300)
    shuffled = [*desk.double.notices, *desk.double.notices]
    random.Random(3).shuffle(shuffled)
    for notice in shuffled:
        desk.take(notice)
        desk.look()
    assert desk.shown(payout).reversed_nanos == usd(10).nanos and desk.left() == []
    assert {row.number for row in TransferReversalRow.objects.all()} == {0}


@pytest.mark.parametrize("how", ["before", "after", "500"])
@pytest.mark.parametrize("forgets", [True, False])
def test_a_reversal_whose_answer_was_lost_is_made_once(
    desk: Desk, how: str, *, forgets: bool
) -> None:
    desk.ready()
    payout = desk.arrived(20)
    [made] = desk.double.all_of("transfer")
    desk.double.breaks.append(once(f"/v1/transfers/{made['id']}/reversals", how))
    desk.back(payout, 5)
    desk.call()
    if forgets:
        desk.double.answers.clear()
    desk.later(seconds=6)
    desk.call()
    desk.hear()
    assert desk.shown(payout).reversed_nanos == usd(5).nanos
    assert len(desk.double.all_of("transfer_reversal")) == 1


def test_no_more_comes_back_than_arrived(desk: Desk) -> None:
    desk.ready()
    payout = desk.arrived(20)
    desk.back(payout, 15)
    with pytest.raises(MoreThanArrived):
        desk.back(payout, 6, number=2)
    with pytest.raises(NotWholeUnits):
        desk.back(payout, 0.001, number=2)
    other = desk.approved()
    with pytest.raises(NotPaidOverStripe):
        desk.back(other, 1)


def test_a_reversal_that_stripe_refuses_says_why_and_moves_nothing(desk: Desk) -> None:
    account = desk.ready()
    payout = desk.arrived(20)
    connect.pay_out(desk.double, account, 2_000)
    before = desk.totals()
    desk.back(payout, 5)
    desk.call()
    row = TransferReversalRow.objects.get()
    assert (row.state, "insufficient" in row.reason) == ("failed", True)
    assert desk.totals() == before
    desk.back(payout, 5, number=2)


# --- payouts to owners' banks ---------------------------------------------------------------------


def test_what_became_of_a_payout_to_an_owners_bank_is_noted_and_moves_nothing(desk: Desk) -> None:
    account = desk.ready()
    desk.arrived(20)
    before = desk.totals()
    made = connect.pay_out(desk.double, account, 2_000)
    desk.hear()
    row = BankPayoutRow.objects.get()
    assert (row.state, row.nanos, row.tenant_id) == ("arrived", usd(20).nanos, book.OWNER)
    connect.bank_refuses(desk.double, made["id"])
    for notice in reversed(desk.double.notices):
        desk.take({**notice, "id": f"{notice['id']}_again"})
        desk.look()
    row = BankPayoutRow.objects.get()
    assert (row.state, row.words) == ("failed", "The bank account has been closed.")
    assert desk.totals() == before and desk.left() == []


def test_word_about_accounts_transfers_and_payouts_of_others_changes_nothing(desk: Desk) -> None:
    desk.ready()
    payout = desk.arrived()
    head = desk.store.head()
    stranger = desk.double.make(
        "account",
        type="express",
        metadata={},
        capabilities={"transfers": "active"},
        payouts_enabled=True,
        details_submitted=True,
    )
    desk.double.tell("account.updated", stranger, account=stranger["id"])
    transfer = desk.double.make("transfer", amount=1, destination=stranger["id"], metadata={})
    desk.double.tell("transfer.created", transfer)
    connect.pay_out(desk.double, stranger["id"], 5)
    desk.double.tell("payout.paid", desk.double.make("payout", amount=1, status="paid"))
    desk.hear()
    assert desk.left() == [] and desk.store.head() == head
    assert desk.payout(payout).state == "paid"


def test_without_a_key_nothing_is_asked_of_stripe(desk: Desk) -> None:
    desk.ready()
    payout = desk.approved()
    payments.install(lambda: None)
    assert desk.call() == 0
    assert desk.payout(payout).state == "approved"


def test_a_payee_read_anew_is_the_one_that_was_remembered(desk: Desk) -> None:
    desk.ready()
    payout = desk.arrived()
    desk.back(payout, 5)
    desk.call()
    state: Payee | None = None
    for recorded in desk.store.read_stream(f"payee-{EARNINGS}"):
        state = Payee.evolve(state, recorded.event)  # type: ignore[arg-type]
    assert state == desk.payee


# --- compared with Stripe -------------------------------------------------------------------------


def compared(desk: Desk) -> list[str]:
    """Compare as the loop does, a while later than all that happened."""
    now = datetime.now(UTC) + timedelta(seconds=2)
    desk.follow()
    reconciling.run_once(desk.store, now=now)
    desk.follow()
    found = PaymentReconciliation.objects.order_by("-pk")[0].differences
    return sorted(each["kind"] for each in found if each["about"].startswith("tr"))


def test_transfers_and_reversals_are_in_both_books(desk: Desk) -> None:
    desk.ready()
    desk.now = datetime.now(UTC)
    payout = desk.arrived(20)
    desk.back(payout, 5)
    desk.call()
    assert compared(desk) == []
    month = Period.of(desk.now)
    leg = with_the_rest(transfers_and_stripe(month, desk.now))
    assert [(each.one, each.other) for each in leg.pairs] == [
        (usd(20).nanos, usd(20).nanos),
        (-usd(5).nanos, -usd(5).nanos),
    ]
    assert leg.differences == [] and transfers_are_there(month, desk.now).passed


def test_transfers_and_reversals_that_no_notice_told_of_are_put_on_the_books(desk: Desk) -> None:
    desk.ready()
    desk.now = datetime.now(UTC)
    payout = desk.arrived(20)
    [made] = desk.double.all_of("transfer")
    connect.reverse(desk.double, made["id"], 300)
    assert compared(desk) == ["late"] and compared(desk) == []
    assert desk.shown(payout).reversed_nanos == usd(3).nanos


def test_what_only_one_side_has_of_transfers_is_found_and_keeps_the_month_open(desk: Desk) -> None:
    desk.ready()
    desk.now = datetime.now(UTC)
    desk.arrived(20)
    stranger = desk.double.make("transfer", amount=900, metadata={}, currency="usd")
    desk.double.move("transfer", -900, stranger["id"], currency="usd")
    assert compared(desk) == ["missing-here"]
    month = Period.of(desk.now)
    [left] = unexplained([with_the_rest(transfers_and_stripe(month, desk.now))])
    assert (left.subject, left.amount) == (stranger["id"], usd(9).nanos)
    check = transfers_are_there(month, desk.now)
    assert not check.passed and stranger["id"] in check.words
