"""Payments over Stripe's own library and HTTP, whatever becomes of calls and notices.

Every request and answer is checked by Stripe's own document (`tests/stripe_double`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from ledger import payments
from ledger.commands import wallet as commands
from ledger.domain.accounts import FundsInsufficient
from ledger.domain.ids import HoldId, PaymentId, SubscriberId
from ledger.domain.periods import Period
from ledger.domain.refunds import NothingToRefundTo, OwnRefund
from ledger.domain.returns import NotUnused
from ledger.domain.top_ups import MethodUnknown
from ledger.eventstore.memory import MemoryStore
from ledger.funding import inbox, reconciling, tries
from ledger.models import (
    JournalEntryRow,
    PaymentCall,
    PaymentNotice,
    PaymentReconciliation,
    WalletRefundRow,
    WalletRow,
)
from ledger.payments.port import NoticeForged
from tests.conftest import SOMEBODY
from tests.ledger import ledgerbook as book
from tests.ledger.funding_desk import JOAN, Desk, install
from tests.ledger.ledgerbook import usd
from tests.stripe_double.double import DECLINED, StripeDouble

pytestmark = pytest.mark.django_db


@pytest.fixture
def double() -> Iterator[StripeDouble]:
    double = StripeDouble().start()
    install(double)
    yield double
    payments.install(lambda: None)
    double.stop()
    assert double.faults == []


@pytest.fixture
def desk(store: MemoryStore, double: StripeDouble) -> Desk:
    book.open_everybody(store)
    book.open_funds(store)
    return Desk(store, double)


def once(path: str, how: str) -> Callable[[str, str], str]:
    """Break one request of this path."""
    left = [how]
    return lambda _, asked: left.pop() if left and asked.startswith(path) else ""


def test_a_top_up_is_posted_when_its_payment_succeeded_and_not_before(desk: Desk) -> None:
    payment_id = desk.ask(50)
    assert desk.call() == 1
    row = desk.row(payment_id)
    assert (row.state, desk.total) == ("open", usd(0)) and row.url.startswith(desk.double.url)

    desk.double.pay(row.reference)
    assert desk.total == usd(0)
    desk.hear()

    assert (desk.row(payment_id).state, desk.total) == ("succeeded", usd(50))
    assert desk.kinds() == ["funds"] and desk.left() == []


def test_a_card_that_the_payer_let_be_kept_pays_the_next_top_up_alone(desk: Desk) -> None:
    method = desk.saved()
    assert desk.wallet.methods == {method: "Visa ending in 4242, 12/2030"}

    payment_id = desk.ask(20, method=method)
    desk.call()

    assert (desk.row(payment_id).state, desk.total) == ("succeeded", usd(70))
    desk.hear()
    assert desk.total == usd(70)


def test_a_declined_card_posts_nothing_and_says_why(desk: Desk) -> None:
    method = desk.saved(DECLINED)

    payment_id = desk.ask(20, method=method)
    desk.call()
    desk.hear()

    row = desk.row(payment_id)
    assert (row.state, row.reason) == ("failed", "Your card was declined.")
    assert desk.total == usd(50)


def test_a_page_that_ran_out_is_over(desk: Desk) -> None:
    payment_id = desk.ask()
    desk.call()
    desk.double.expire(desk.row(payment_id).reference)
    desk.hear()

    assert desk.row(payment_id).state == "failed" and desk.total == usd(0)


# --- notices ------------------------------------------------------------------------------------


def test_notices_that_come_twice_and_in_any_order_post_once(desk: Desk) -> None:
    for _ in range(3):
        payment_id = desk.ask(10)
        desk.call()
        intent = desk.double.pay(desk.row(payment_id).reference)
    dispute = desk.double.dispute(intent["id"])
    desk.double.decide(dispute["id"], "won")
    shuffled = [*desk.double.notices, *desk.double.notices]
    random.Random(7).shuffle(shuffled)

    new = 0
    for notice in shuffled:
        new += desk.take(notice)
        desk.look()

    assert new == len(desk.double.notices)
    assert desk.total == usd(30) and desk.left() == []
    assert sorted(desk.kinds()) == ["dispute", "funds", "funds", "funds", "reversal"]


def test_the_same_word_in_two_notices_posts_once(desk: Desk) -> None:
    desk.paid(50)
    [first] = [each for each in desk.double.notices if each["type"] == "payment_intent.succeeded"]
    again = {**first, "id": "evt_another"}

    assert desk.take(again)
    desk.look()

    assert desk.total == usd(50) and desk.kinds() == ["funds"]


def test_a_notice_that_was_changed_forged_or_is_late_is_refused(desk: Desk) -> None:
    notice = desk.double.make("event", type="payment_intent.succeeded", data={"object": {}})
    body, signature = desk.double.signed(notice)
    old = desk.double.signed(notice, at=0)

    for raw, said in ((body + b" ", signature), (body, ""), (body, "t=1,v1=ab"), old):
        with pytest.raises(NoticeForged):
            inbox.take(raw, said, now=desk.now)

    assert not PaymentNotice.objects.exists()


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b"\xff", b'{"object":"event","id":1}'])
def test_a_body_that_is_no_notice_is_refused_even_where_it_is_signed(
    desk: Desk, raw: bytes
) -> None:
    import hashlib
    import hmac
    import time

    from tests.stripe_double.double import SECRET

    moment = int(time.time())
    mac = hmac.new(SECRET.encode(), f"{moment}.".encode() + raw, hashlib.sha256).hexdigest()
    with pytest.raises(NoticeForged):
        inbox.take(raw, f"t={moment},v1={mac}", now=desk.now)


def test_notices_of_unknown_kinds_are_kept_and_left(desk: Desk) -> None:
    about = desk.double.make("customer")
    desk.double.tell("customer.tax_id.created", about)
    desk.hear()

    assert PaymentNotice.objects.get().state == "ignored"


def test_notices_about_payments_of_others_change_nothing(desk: Desk) -> None:
    intent = desk.double.make(
        "payment_intent", amount=500, currency="usd", customer=None, metadata={}
    )
    desk.double.succeed(intent)
    desk.hear()

    assert desk.left() == [] and desk.total == usd(0)


def test_one_wallets_failure_stalls_no_other(desk: Desk) -> None:
    broken = desk.double.make(
        "payment_intent",
        amount=500,
        currency="usd",
        customer=None,
        metadata={"offpeak_account": str(uuid4()), "offpeak_payment": str(uuid4())},
    )
    desk.double.succeed(broken)
    desk.paid(50)

    assert desk.total == usd(50)
    [(kind, why)] = desk.left()
    assert kind == "payment_intent.succeeded" and why.startswith("payment-unknown")

    for _ in range(inbox.TRIES_MAX):
        desk.later(hours=2)
        desk.look()
    assert [row.kind for row in inbox.given_up()] == ["payment_intent.succeeded"]


# --- calls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/customers", "/v1/checkout/sessions"])
@pytest.mark.parametrize("how", ["before", "after", "500", "429"])
def test_a_page_whose_call_was_not_answered_is_made_once(desk: Desk, path: str, how: str) -> None:
    desk.double.breaks.append(once(path, how))
    payment_id = desk.ask(50)

    assert desk.call() == 0 and PaymentCall.objects.get().tries == 1
    assert desk.call() == 0
    desk.later(seconds=6)
    assert desk.call() == 1

    assert len(desk.double.all_of("checkout.session")) == 1
    assert len(desk.double.all_of("customer")) == 1
    desk.double.pay(desk.row(payment_id).reference)
    desk.hear()
    assert desk.total == usd(50) and not PaymentCall.objects.exists()


@pytest.mark.parametrize("heard_first", [True, False])
def test_a_charge_whose_answer_was_lost_is_made_and_posted_once(
    desk: Desk, heard_first: bool
) -> None:
    method = desk.saved()
    desk.double.breaks.append(once("/v1/payment_intents", "after"))
    payment_id = desk.ask(20, method=method)
    assert desk.call() == 0

    if heard_first:
        desk.hear()
        assert desk.total == usd(70)
    desk.later(seconds=6)
    desk.call()
    desk.hear()

    assert (desk.row(payment_id).state, desk.total) == ("succeeded", usd(70))
    assert len(desk.double.all_of("payment_intent")) == 2
    assert desk.kinds() == ["funds", "funds"]


def test_a_process_that_ends_after_the_call_leaves_what_the_next_one_goes_on_with(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = desk.saved()
    payment_id = desk.ask(20, method=method)

    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(commands, "post_top_up", killed)
        desk.call()
    assert desk.total == usd(50)
    desk.call()

    assert (desk.row(payment_id).state, desk.total) == ("succeeded", usd(70))
    assert len(desk.double.all_of("payment_intent")) == 2


def test_calls_are_given_up_before_their_keys_are_forgotten(desk: Desk) -> None:
    desk.double.breaks.append(lambda _, path: "500")
    desk.ask(50)
    for _ in range(60):
        desk.call()
        desk.later(hours=1)

    [row] = tries.given_up()
    assert row.again_at is None and row.tries < 60
    assert timedelta(hours=24) > tries.TRIED_FOR_MAX + tries.PAUSE_MAX


def test_what_the_service_refuses_fails_and_says_why(desk: Desk) -> None:
    method = desk.saved()
    desk.double.one(method)["customer"] = "cus_another"
    payment_id = desk.ask(20, method=method)
    desk.call()

    row = desk.row(payment_id)
    assert row.state == "failed" and "not attached" in row.reason


def test_fifty_top_ups_at_once_are_all_there_once(desk: Desk) -> None:
    asked = [desk.ask(10) for _ in range(50)]
    desk.call()
    rows = [desk.row(each) for each in asked]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda row: desk.double.pay(row.reference), rows))
    desk.hear()
    while PaymentNotice.objects.filter(state="new").exists():
        desk.look()

    assert desk.total == usd(500)
    assert desk.kinds() == ["funds"] * 50
    assert len(set(JournalEntryRow.objects.values_list("reference", flat=True))) == 50


# --- refunds ----------------------------------------------------------------------------------


def test_a_refund_goes_to_the_newest_payments_first_and_leaves_what_is_set_aside(
    desk: Desk,
) -> None:
    desk.paid(50)
    desk.paid(30)

    refund_id = desk.refund(40)
    assert (desk.available, desk.total) == (usd(40), usd(80))
    desk.approve(refund_id)
    desk.call()

    assert (desk.available, desk.total) == (usd(40), usd(40))
    assert WalletRefundRow.objects.get().state == "paid"
    assert sorted(each["amount"] for each in desk.double.all_of("refund")) == [1000, 3000]
    assert desk.kinds() == ["funds", "funds", "refund", "refund"]
    desk.hear()
    assert desk.total == usd(40) and desk.left() == []


def test_nobody_approves_their_own_refund(desk: Desk) -> None:
    desk.paid(50)
    refund_id = desk.refund(40)

    with pytest.raises(OwnRefund):
        desk.approve(refund_id, by=JOAN)
    desk.call()

    assert desk.double.all_of("refund") == []


def test_only_what_is_unused_and_came_by_card_goes_back(desk: Desk) -> None:
    desk.paid(50)
    book.hold(desk.store, usd(30))
    with pytest.raises(NotUnused):
        desk.refund(21)
    book.fund(desk.store, usd(100))
    with pytest.raises(NothingToRefundTo):
        desk.refund(51)
    desk.refund(50)
    with pytest.raises(NothingToRefundTo):
        desk.refund(1)


@pytest.mark.parametrize("how", ["after", "before", "500"])
def test_a_refund_whose_answer_was_lost_goes_out_once(desk: Desk, how: str) -> None:
    desk.paid(50)
    refund_id = desk.refund(20)
    desk.approve(refund_id)
    desk.double.breaks.append(once("/v1/refunds", how))
    assert desk.call() == 0
    desk.later(seconds=6)
    desk.call()
    desk.hear()

    assert len(desk.double.all_of("refund")) == 1 and desk.total == usd(30)


def test_a_refund_that_is_there_already_under_a_forgotten_key_is_found(desk: Desk) -> None:
    desk.paid(50)
    refund_id = desk.refund(50)
    desk.approve(refund_id)
    desk.double.breaks.append(once("/v1/refunds", "after"))
    desk.call()
    desk.double.answers.clear()
    desk.later(seconds=6)
    desk.call()

    assert len(desk.double.all_of("refund")) == 1
    assert (desk.total, WalletRefundRow.objects.get().state) == (usd(0), "paid")


def test_a_refund_that_comes_back_is_available_again_by_an_entry_that_names_it(
    desk: Desk,
) -> None:
    desk.paid(50)
    desk.approve(desk.refund(50))
    desk.call()
    desk.hear()
    [refund] = desk.double.all_of("refund")
    desk.double.bounce(refund["id"])
    desk.hear()

    assert desk.available == usd(50)
    assert desk.kinds() == ["funds", "refund", "reversal"]
    desk.approve(desk.refund(50))
    desk.call()
    assert desk.total == usd(0)


# --- disputes ---------------------------------------------------------------------------------


def test_a_chargeback_takes_what_was_spent_already_and_blocks_new_bids(desk: Desk) -> None:
    desk.paid(50)
    book.hold(desk.store, usd(40))
    [intent] = desk.double.all_of("payment_intent")
    dispute = desk.double.dispute(intent["id"])
    desk.hear()

    assert desk.available == usd(-40)
    with pytest.raises(FundsInsufficient):
        book.hold(desk.store, usd(0), hold_id=HoldId(uuid4()))
    book.capture(desk.store, book.hours(0), 3_600_000)
    desk.double.decide(dispute["id"], "won")
    desk.hear()
    assert desk.available == usd(10)
    assert desk.kinds()[:2] == ["funds", "dispute"] and desk.kinds()[-1] == "reversal"


def test_a_dispute_that_is_lost_moves_nothing_more(desk: Desk) -> None:
    desk.paid(50)
    [intent] = desk.double.all_of("payment_intent")
    dispute = desk.double.dispute(intent["id"], 2000)
    desk.double.decide(dispute["id"], "lost")
    desk.hear()

    assert desk.total == usd(30) and desk.kinds() == ["funds", "dispute"]
    with pytest.raises(NothingToRefundTo):
        book.fund(desk.store, usd(100))
        desk.refund(31)


def test_an_inquiry_moves_nothing(desk: Desk) -> None:
    desk.paid(50)
    [intent] = desk.double.all_of("payment_intent")
    dispute = desk.double.dispute(intent["id"])
    dispute["status"] = "warning_needs_response"
    desk.hear()

    assert desk.total == usd(50)


# --- cards and automatic top-ups -----------------------------------------------------------------


def let_it_top_itself_up(desk: Desk, method: str, most: float = 100) -> None:
    commands.set_automatic_top_up(
        desk.store,
        account_id=desk.account_id,
        below=usd(60),
        amount=usd(20),
        most_per_day=usd(most),
        method=method,
        set_by=JOAN,
        by=SOMEBODY,
        now=desk.now,
    )


def test_a_wallet_tops_itself_up_below_its_threshold_of_what_is_available(desk: Desk) -> None:
    method = desk.saved()
    let_it_top_itself_up(desk, method)

    assert desk.top_up_by_itself() == 1 and desk.top_up_by_itself() == 0
    desk.call()
    assert desk.total == usd(70)
    assert desk.top_up_by_itself() == 0

    book.hold(desk.store, usd(20))
    assert desk.top_up_by_itself() == 1


def test_a_wallet_adds_no_more_on_a_day_than_it_may(desk: Desk) -> None:
    let_it_top_itself_up(desk, desk.saved(), most=40)
    for number in range(5):
        book.hold(desk.store, desk.available, hold_id=HoldId(uuid4()), purpose=f"bid:{number}")
        desk.top_up_by_itself()
        desk.call()
    assert desk.total == usd(90)

    desk.later(days=1)
    desk.top_up_by_itself()
    desk.call()
    assert desk.total == usd(110)


def test_after_declines_it_pauses_and_after_the_fourth_it_ends(desk: Desk) -> None:
    let_it_top_itself_up(desk, desk.saved(DECLINED))
    tried = []
    for hour in range(48):
        if desk.top_up_by_itself():
            tried.append(hour)
        desk.call()
        desk.later(hours=1)

    assert tried == [0, 1, 7, 31]
    row = WalletRow.objects.get()
    assert row.below_nanos is None and "declined" in row.ended_because


def test_a_removed_card_is_used_no_more_and_ends_what_used_it(desk: Desk) -> None:
    method = desk.saved()
    let_it_top_itself_up(desk, method)
    commands.remove_method(
        desk.store,
        account_id=desk.account_id,
        method=method,
        asked_by=JOAN,
        by=SOMEBODY,
        now=desk.now,
    )

    assert desk.wallet.automatic is None
    with pytest.raises(MethodUnknown):
        desk.ask(20, method=method)
    desk.call()
    desk.hear()
    assert desk.double.one(method)["customer"] is None and desk.left() == []
    assert desk.wallet.methods == {} and desk.wallet.leaving == frozenset()


def test_many_wallets_have_payers_of_their_own(desk: Desk) -> None:
    other = book.open_funds(desk.store, unit=SubscriberId(uuid4()), title="Chemistry")
    mine, theirs = desk.ask(10), desk.ask(20, account_id=other)
    desk.call()
    assert (
        desk.double.pay(desk.row(mine).reference)["customer"]
        != (desk.double.pay(desk.row(theirs).reference)["customer"])
    )
    desk.hear()
    assert desk.total == usd(10)


def test_what_stripe_keeps_holds_no_more_of_us_than_our_ids(desk: Desk) -> None:
    desk.paid(50)
    sent = json.dumps([params for _, _, params in desk.double.requests])
    assert "Astro" in sent and "@" not in sent


def test_asking_again_under_the_same_id_is_the_same_top_up(desk: Desk) -> None:
    payment_id = PaymentId(uuid4())
    for _ in range(2):
        commands.request_top_up(
            desk.store,
            account_id=desk.account_id,
            payment_id=payment_id,
            money=usd(10),
            asked_by=JOAN,
            by=SOMEBODY,
            now=desk.now,
        )
    with pytest.raises(Exception, match="already names"):
        commands.request_top_up(
            desk.store,
            account_id=desk.account_id,
            payment_id=payment_id,
            money=usd(11),
            asked_by=JOAN,
            by=SOMEBODY,
            now=desk.now,
        )


# --- compared with Stripe -------------------------------------------------------------------------


def compare(desk: Desk) -> list[str]:
    """Compare as the loop does, a while later than all that happened."""
    now = datetime.now(UTC) + timedelta(seconds=2)
    desk.follow()
    reconciling.run_once(desk.store, now=now)
    desk.follow()
    found = PaymentReconciliation.objects.order_by("-pk")[0].differences
    return sorted(each["kind"] for each in found)


def test_what_both_sides_have_is_no_difference_and_fees_are_entries(desk: Desk) -> None:
    desk.paid(50)
    desk.approve(desk.refund(20))
    desk.call()
    desk.double.dispute(desk.double.all_of("payment_intent")[0]["id"], 1000)
    desk.hear()

    assert compare(desk) == [] and compare(desk) == []
    fees = JournalEntryRow.objects.filter(kind="processing")
    assert sorted(max(row.nanos) for row in fees) == [1_750_000_000, 15_000_000_000]


def test_what_a_lost_notice_missed_is_put_on_the_books(desk: Desk) -> None:
    payment_id = desk.ask(50)
    desk.call()
    desk.double.pay(desk.row(payment_id).reference)

    assert compare(desk) == ["late"]
    assert desk.total == usd(50)
    assert compare(desk) == []


def test_what_only_one_side_has_and_other_amounts_are_found(desk: Desk) -> None:
    stranger = desk.double.make(
        "payment_intent", amount=500, currency="usd", customer=None, metadata={}
    )
    desk.double.succeed(stranger)
    desk.paid(50)
    line = desk.double.all_of("balance_transaction")[0]
    line["amount"] += 1
    book.fund(desk.store, usd(5), reference="pi_of_nobody", entry="odd", now=datetime.now(UTC))

    assert compare(desk) == ["amount", "in-flight", "missing-here"]
    month = Period.of(datetime.now(UTC))
    assert not reconciling.stripe_is_reconciled(month, datetime.now(UTC)).passed
    payments.install(lambda: None)
    assert reconciling.stripe_is_reconciled(month, datetime.now(UTC)).passed
