"""Invoices that are sent and paid afterwards: by Stripe, by transfer, late, or never."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from ledger import payments
from ledger.commands import credit_payment
from ledger.commands import receivables as commands
from ledger.domain.accounts import CreditIsStopped
from ledger.domain.closing import SecondPersonNeeded
from ledger.domain.ids import HoldId, LeaseId
from ledger.domain.payments import PaymentRecorded, PaymentUnnamed
from ledger.domain.receivables import (
    BLOCKED_AFTER,
    NothingOwed,
    PaysTooMuch,
    WriteOffReasonMissing,
    WriteOffUnknown,
)
from ledger.eventstore.memory import MemoryStore
from ledger.funding import billing, reconciling
from ledger.models import AccountRow, InvoiceRow, JournalEntryRow, PaymentCall, ReceivableRow
from ledger.queries.depletion import left_on
from tests.conftest import SOMEBODY
from tests.ledger import invoiced
from tests.ledger import ledgerbook as book
from tests.ledger.funding_desk import install
from tests.ledger.invoiced import JOAN, OSCAR
from tests.ledger.ledgerbook import usd
from tests.ledger.postpay import ISSUED, STUDIO, PostpayDesk
from tests.stripe_double import bills
from tests.stripe_double.double import StripeDouble

pytestmark = pytest.mark.django_db
DUE = ISSUED + timedelta(days=30)
BLOCKED = DUE + timedelta(minutes=1) + BLOCKED_AFTER


@pytest.fixture
def double() -> Iterator[StripeDouble]:
    double = StripeDouble().start()
    install(double)
    yield double
    payments.install(lambda: None)
    double.stop()
    assert double.faults == []


@pytest.fixture
def desk(store: MemoryStore, double: StripeDouble) -> PostpayDesk:
    return PostpayDesk(store, double)


@pytest.fixture
def by_hand(store: MemoryStore, double: StripeDouble) -> PostpayDesk:
    """The same without a key."""
    payments.install(lambda: None)
    return PostpayDesk(store, double)


def is_blocked(desk: PostpayDesk) -> bool:
    return desk.receivable.blocked


def bids(desk: PostpayDesk) -> None:
    book.hold(desk.store, usd(1), hold_id=HoldId(uuid4()), purpose="bid:2", now=desk.now)


# --- at Stripe ------------------------------------------------------------------------------------


def test_an_invoice_is_sent_with_our_lines_and_number_and_paid_once(desk: PostpayDesk) -> None:
    row = desk.handed_over()
    [bill] = desk.double.all_of("invoice")
    assert (bill["number"], bill["status"], bill["total"]) == (row.number, "open", 1234)
    assert bill["collection_method"] == "send_invoice" and row.url == bill["hosted_invoice_url"]
    assert [each["amount"] for each in desk.double.all_of("invoiceitem")] == [1234]

    bills.pay_bill(desk.double, row.reference)
    desk.hear()
    for notice in desk.double.notices:
        desk.take({**notice, "id": f"{notice['id']}_again"})
    desk.look()

    assert desk.receivable.state == "paid" and desk.owed == usd(0)
    assert desk.total == usd(0) and desk.kinds().count("funds") == 1
    assert desk.call() == 0 and desk.left() == []


def test_tax_is_a_line_of_its_own(desk: PostpayDesk) -> None:
    desk.use()
    invoiced.tax_the_eu(desk.store)
    invoiced.details(desk.store, STUDIO, name="Studio", country="DE", email="ap@studio.example")
    row = desk.invoice()
    desk.call()

    [bill] = desk.double.all_of("invoice")
    said = {each["description"]: each["amount"] for each in desk.double.all_of("invoiceitem")}
    assert bill["total"] * 10_000_000 == row.total_nanos
    assert said[row.taxes[0]["title"]] * 10_000_000 == row.tax_nanos


@pytest.mark.parametrize("how", ["before", "after", "500"])
@pytest.mark.parametrize(
    "path", ["/v1/customers", "/v1/invoices", "/v1/invoiceitems", "finalize", "send"]
)
def test_an_invoice_whose_call_was_not_answered_is_sent_once(
    desk: PostpayDesk, path: str, how: str
) -> None:
    left = [how]
    desk.double.breaks.append(
        lambda method, asked: (
            left.pop()
            if left and method == "POST" and (asked == path or asked.endswith(f"/{path}"))
            else ""
        )
    )
    desk.use()
    desk.invoice()
    assert desk.call() == 0 and PaymentCall.objects.get().tries == 1
    desk.later(seconds=6)
    assert desk.call() == 1

    [bill] = desk.double.all_of("invoice")
    assert (bill["status"], bill["total"]) == ("open", 1234)
    assert len(desk.double.all_of("invoiceitem")) == 1


def test_a_process_that_ends_before_it_notes_what_it_sent_sends_it_once(
    desk: PostpayDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    desk.use()
    desk.invoice()
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(commands, "note_handed_over", killed)
        desk.call()
    desk.call()

    assert desk.receivable.reference and len(desk.double.all_of("invoice")) == 1


def test_without_an_address_it_is_not_handed_over_and_says_why(desk: PostpayDesk) -> None:
    desk.use(email="")
    desk.invoice()
    desk.call()

    assert desk.receivable.refused == billing.NO_ADDRESS
    assert desk.double.all_of("invoice") == [] and desk.call() == 0


def test_an_older_invoice_is_sent_to_nobody(desk: PostpayDesk) -> None:
    desk.use()
    desk.invoice()
    desk.later(days=4)

    assert desk.call() == 0 and desk.double.all_of("invoice") == []


def test_a_notice_that_never_came_is_made_up_for(desk: PostpayDesk) -> None:
    row = desk.handed_over()
    bills.pay_bill(desk.double, row.reference)

    reconciling.run_once(desk.store, now=desk.now)

    assert desk.receivable.state == "paid"


def test_a_try_that_fails_is_told_and_it_is_still_owed(desk: PostpayDesk) -> None:
    row = desk.handed_over()
    bills.try_to_pay(desk.double, row.reference)
    desk.hear()

    assert desk.receivable.failed == "Your card was declined." and desk.owed == usd(12.34)
    assert f"{row.number}: a payment did not come about" in desk.notices()
    bills.pay_bill(desk.double, row.reference)
    desk.hear()
    assert (desk.receivable.state, desk.receivable.failed) == ("paid", "")


@pytest.mark.parametrize(
    ("status", "why"),
    [("void", "voided"), ("uncollectible", "uncollectible"), ("paid", "paid-elsewhere")],
)
def test_what_is_ended_at_stripe_moves_nothing_and_is_told(
    desk: PostpayDesk, status: str, why: str
) -> None:
    row = desk.handed_over()
    bills.end(desk.double, row.reference, status)
    desk.hear()

    assert (desk.receivable.ended, desk.receivable.state) == (why, "open")
    assert "funds" not in desk.kinds() and any(row.number in each for each in desk.notices())


def test_what_is_paid_by_transfer_is_collected_no_longer(desk: PostpayDesk) -> None:
    row = desk.handed_over()
    told = desk.notices()
    desk.enter()
    desk.call()
    desk.hear()

    assert desk.double.one(row.reference)["status"] == "paid"
    assert desk.receivable.state == "paid" and desk.kinds().count("funds") == 1
    assert desk.notices() == told and desk.call() == 0


def test_a_part_that_was_paid_leaves_the_rest_owed(desk: PostpayDesk) -> None:
    row = desk.handed_over()
    bills.pay_bill(desk.double, row.reference, 1000)
    desk.double.tell("invoice.updated", desk.double.one(row.reference))
    desk.hear()
    assert desk.owed == usd(2.34) and desk.receivable.state == "open"

    bills.pay_bill(desk.double, row.reference)
    desk.hear()
    assert desk.receivable.state == "paid" and desk.total == usd(0)


@pytest.mark.parametrize("how", ["credited", "paid by transfer"])
def test_what_is_settled_here_is_collected_no_more(desk: PostpayDesk, how: str) -> None:
    row = desk.handed_over()
    told = desk.notices()
    if how == "credited":
        invoice = InvoiceRow.objects.get()
        invoiced.credit(desk.store, invoice, (invoice.lines[0]["line_id"], usd(10).nanos))
    else:
        desk.enter("TX 1", 10)
    assert desk.owed == usd(2.34)

    assert desk.call() == 1
    bill = desk.double.one(row.reference)
    assert (bill["status"], bill["amount_remaining"], bill["total"]) == ("open", 234, 1234)
    desk.follow()
    assert desk.call() == 0 and desk.receivable.collected_nanos == 2_340_000_000

    bills.pay_bill(desk.double, row.reference)
    desk.hear()
    assert desk.receivable.state == "paid"
    assert desk.total == usd(0)
    assert [each for each in desk.notices() if each not in told] == []


@pytest.mark.parametrize("how", ["before", "after", "500"])
def test_it_is_lowered_once_whatever_is_lost_on_the_way(desk: PostpayDesk, how: str) -> None:
    row = desk.handed_over()
    left = [how]
    desk.double.breaks.append(
        lambda method, asked: (
            left.pop() if left and method == "POST" and asked == "/v1/credit_notes" else ""
        )
    )
    desk.enter("TX 1", 10)
    assert desk.call() == 0 and desk.double.one(row.reference)["status"] == "open"
    desk.later(seconds=6)
    assert desk.call() == 1

    assert desk.double.one(row.reference)["amount_remaining"] == 234
    assert len(desk.double.all_of("credit_note")) == 1
    desk.enter("TX 2", 1)
    desk.call()
    assert desk.double.one(row.reference)["amount_remaining"] == 134


def test_what_was_paid_there_meanwhile_is_not_taken_off_again(desk: PostpayDesk) -> None:
    row = desk.handed_over()
    bills.pay_bill(desk.double, row.reference, 1000)  # and no notice of it has come yet
    desk.enter("TX 1", 1)
    assert desk.call() == 1

    assert desk.double.one(row.reference)["amount_remaining"] == 134
    assert desk.owed == usd(1.34)


@pytest.mark.parametrize("won", [True, False])
def test_a_payment_that_a_bank_takes_back_is_owed_again(desk: PostpayDesk, won: bool) -> None:
    row = desk.handed_over()
    intent = bills.pay_bill(desk.double, row.reference)
    desk.hear()
    assert desk.receivable.state == "paid"
    told = desk.notices()

    taken = desk.double.dispute(intent["id"])
    for _ in range(2):
        desk.double.tell("charge.dispute.created", taken)
        desk.hear()

    assert (desk.receivable.state, desk.owed) == ("open", usd(12.34))
    assert desk.total == usd(-12.34)
    [entry] = JournalEntryRow.objects.filter(kind="dispute")
    assert entry.reference == taken["id"]
    new = [each for each in desk.notices() if each not in told]
    assert any("A bank took 12.34 USD of" in each for each in new), new
    assert desk.call() == 0  # Stripe has it as paid, and does not collect it a second time

    desk.double.decide(taken["id"], "won" if won else "lost")
    desk.hear()
    if won:
        assert (desk.receivable.state, desk.total) == ("paid", usd(0))
    else:
        assert (desk.receivable.state, desk.owed) == ("open", usd(12.34))
        desk.enter("TX 9")
        assert (desk.receivable.state, desk.total) == ("paid", usd(0))
    desk.double.tell("charge.dispute.closed", desk.double.one(taken["id"]))
    desk.hear()
    assert desk.receivable.state == "paid"


def test_a_bank_that_takes_back_is_heard_before_the_payment_is(desk: PostpayDesk) -> None:
    row = desk.handed_over()
    intent = bills.pay_bill(desk.double, row.reference)
    desk.double.dispute(intent["id"], 500)
    for notice in reversed(desk.double.notices[desk.told :]):
        desk.take(notice)
    desk.look()

    assert (desk.receivable.state, desk.owed, desk.total) == ("open", usd(5), usd(-5))
    assert desk.kinds()[-2:] == ["funds", "dispute"]


# --- by hand --------------------------------------------------------------------------------------


def test_without_a_key_finance_enters_the_transfer_once(by_hand: PostpayDesk) -> None:
    desk = by_hand
    desk.use()
    desk.invoice()
    desk.enter("TX 1", 10)
    desk.enter("tx  1", 10)
    assert desk.owed == usd(2.34)
    with pytest.raises(PaysTooMuch):
        desk.enter("TX 2", 3)
    desk.enter("TX 2")

    row = desk.receivable
    assert (row.state, row.paid_by, desk.total) == ("paid", "TX 2", usd(0))
    with pytest.raises(NothingOwed):
        desk.enter("TX 3")
    assert desk.kinds().count("funds") == 2


def test_a_transfer_needs_a_reference_and_is_not_one_that_was_entered_as_funds(
    by_hand: PostpayDesk,
) -> None:
    desk = by_hand
    desk.use()
    desk.invoice()
    credit_payment(
        desk.store,
        account_id=desk.account_id,
        money=usd(5),
        reference="TX 1",
        platform_id=book.PLATFORM,
        by=SOMEBODY,
        now=desk.now,
    )
    for reference, refused in (("TX 1", PaymentRecorded), ("  ", PaymentUnnamed)):
        with pytest.raises(refused):
            desk.enter(reference)
    assert desk.receivable.paid_nanos == 0


def test_a_credit_note_for_all_of_it_leaves_nothing_owed(by_hand: PostpayDesk) -> None:
    desk = by_hand
    desk.use()
    invoiced.credit(desk.store, desk.invoice())

    assert (desk.receivable.state, desk.owed) == ("credited", usd(0))
    with pytest.raises(NothingOwed):
        desk.enter()


# --- overdue --------------------------------------------------------------------------------------


def overdue(desk: PostpayDesk) -> None:
    desk.use()
    desk.invoice()
    desk.pass_time(DUE - timedelta(seconds=1))
    assert desk.receivable.overdue_at is None
    desk.pass_time(DUE + timedelta(minutes=1))


def test_an_overdue_invoice_is_told_then_new_bids_are_refused_until_it_is_paid(
    by_hand: PostpayDesk,
) -> None:
    desk = by_hand
    overdue(desk)
    assert desk.receivable.overdue_at == DUE
    assert sum("is overdue" in each for each in desk.notices()) >= 1
    bids(desk)

    desk.pass_time(BLOCKED)
    assert left_on([desk.account_id]) == {desk.account_id: 0} and is_blocked(desk)
    with pytest.raises(CreditIsStopped) as refused:
        bids(desk)
    assert refused.value.details == {"invoices": desk.receivable.number}

    desk.enter()
    assert not is_blocked(desk)
    bids(desk)


def test_what_runs_is_charged_and_extended_while_new_bids_are_refused(
    by_hand: PostpayDesk,
) -> None:
    desk = by_hand
    desk.use()
    book.hold(desk.store, usd(10), hold_id=HoldId(uuid4()), purpose="bid:9")
    running = HoldId(uuid4())
    book.hold(desk.store, usd(10), hold_id=running, purpose="bid:8")
    desk.invoice()
    desk.pass_time(DUE + timedelta(minutes=1))
    desk.pass_time(BLOCKED)

    book.resize(desk.store, usd(20), hold_id=running)
    book.capture(desk.store, book.hours(5), 3_600_000, hold_id=running, lease_id=LeaseId(uuid4()))


def test_a_write_off_lets_the_account_bid_again(by_hand: PostpayDesk) -> None:
    desk = by_hand
    overdue(desk)
    desk.pass_time(BLOCKED)
    write_off(desk)

    bids(desk)


def test_an_account_that_was_carried_forward_still_takes_no_bids(by_hand: PostpayDesk) -> None:
    from ledger.domain.accounts import Account
    from ledger.domain.carrying import carry

    desk = by_hand
    overdue(desk)
    desk.pass_time(BLOCKED)
    account = book.account(desk.store)
    carried = carry(account, up_to_version=9, event_id=uuid4(), now=desk.now)

    again = Account.reopened(carried, lambda _: [])

    assert again.stopped == account.stopped == {desk.receivable.number}


# --- given up -------------------------------------------------------------------------------------


def ask(desk: PostpayDesk, reason: str = "insolvent") -> None:
    commands.ask_write_off(
        desk.store,
        desk.receivable.pk,
        write_off_id=uuid4(),
        reason=reason,
        user_id=JOAN,
        by=SOMEBODY,
        now=desk.now,
    )


def write_off(desk: PostpayDesk) -> None:
    ask(desk)
    commands.approve_write_off(
        desk.store, desk.receivable.pk, user_id=OSCAR, by=SOMEBODY, now=desk.now
    )
    desk.follow()


def test_what_is_owed_is_given_up_by_two_people_with_an_entry(by_hand: PostpayDesk) -> None:
    desk = by_hand
    desk.use()
    desk.invoice()
    desk.enter("TX 1", 2.34)
    with pytest.raises(WriteOffReasonMissing):
        ask(desk, " ")
    ask(desk)
    for approve in (True, False):
        with pytest.raises(SecondPersonNeeded if approve else PaysTooMuch):
            if approve:
                commands.approve_write_off(
                    desk.store, desk.receivable.pk, user_id=JOAN, by=SOMEBODY, now=desk.now
                )
            else:
                desk.enter("TX 2", 11)
    commands.approve_write_off(
        desk.store, desk.receivable.pk, user_id=OSCAR, by=SOMEBODY, now=desk.now
    )

    row = desk.receivable
    assert (row.state, row.written_off_nanos, desk.total) == ("written-off", 10 * 10**9, usd(0))
    entry = JournalEntryRow.objects.get(kind="write-off")
    assert (entry.reference, sum(entry.nanos)) == (row.number, 0)
    assert AccountRow.objects.get(kind="bad-debts").total_nanos == -10 * 10**9
    with pytest.raises(WriteOffUnknown):
        commands.approve_write_off(desk.store, row.pk, user_id=OSCAR, by=SOMEBODY, now=desk.now)


def test_a_write_off_that_is_declined_changes_nothing(by_hand: PostpayDesk) -> None:
    desk = by_hand
    desk.use()
    desk.invoice()
    ask(desk)
    commands.decline_write_off(
        desk.store, desk.receivable.pk, user_id=JOAN, by=SOMEBODY, now=desk.now
    )

    assert desk.receivable.write_off_id is None and desk.owed == usd(12.34)


def test_what_is_written_off_is_given_up_at_stripe_too(desk: PostpayDesk) -> None:
    row = desk.handed_over()
    write_off(desk)
    desk.call()
    desk.hear()

    assert desk.double.one(row.reference)["status"] == "uncollectible"
    assert desk.call() == 0 and desk.left() == []


def test_money_that_comes_after_all_is_on_the_account(desk: PostpayDesk) -> None:
    row = desk.handed_over()
    write_off(desk)
    bills.pay_bill(desk.double, row.reference)
    desk.hear()

    assert desk.receivable.state == "written-off" and desk.total == usd(12.34)


def test_receipts_and_internal_invoices_are_owed_by_nobody(by_hand: PostpayDesk) -> None:
    desk = by_hand
    desk.use()
    invoiced.details(desk.store, STUDIO, name="Studio", country="")
    desk.invoice()

    assert not ReceivableRow.objects.exists()
