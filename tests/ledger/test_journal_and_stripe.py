"""A month of the journal beside Stripe's own lines: what differs has a reason, or fails."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from ledger import payments
from ledger.domain.periods import Period
from ledger.domain.reconciling import Leg, unexplained, with_the_rest
from ledger.eventstore.memory import MemoryStore
from ledger.funding import reconciling
from ledger.funding.comparing import journal_and_stripe
from ledger.models import PaymentMovement
from tests.ledger import ledgerbook as book
from tests.ledger.funding_desk import Desk, install
from tests.ledger.ledgerbook import usd
from tests.stripe_double.double import StripeDouble

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
    """A wallet whose time is Stripe's: the double's lines are of the moment."""
    book.open_everybody(store)
    book.open_funds(store)
    return Desk(store, double, now=datetime.now(UTC))


def compared(desk: Desk, *, later: timedelta = timedelta(seconds=2)) -> Leg:
    now = datetime.now(UTC) + later
    desk.follow()
    reconciling.run_once(desk.store, now=now)
    desk.follow()
    return with_the_rest(journal_and_stripe(Period.of(desk.now), now))


def reasons(leg: Leg) -> list[str]:
    return sorted(each.reason for each in leg.differences)


def test_payments_refunds_chargebacks_and_fees_are_the_same_on_both_sides(desk: Desk) -> None:
    desk.paid(50)
    desk.paid(30)
    desk.approve(desk.refund(40))
    desk.call()
    dispute = desk.double.dispute(desk.double.all_of("payment_intent")[1]["id"], 1000)
    desk.double.decide(dispute["id"], "won")
    desk.hear()
    desk.double.bounce(desk.double.all_of("refund")[0]["id"])
    desk.hear()

    leg = compared(desk)

    assert leg.differences == [] and len(leg.pairs) > 6
    assert all(pair.one == pair.other for pair in leg.pairs)


def test_what_stripe_has_no_line_for_yet_is_in_flight_and_later_fails(desk: Desk) -> None:
    book.fund(desk.store, usd(5), reference="pi_of_nobody", now=desk.now)

    assert reasons(compared(desk)) == ["in-flight"]
    late = compared(desk, later=timedelta(days=3))
    assert [each.subject for each in unexplained([late])] == ["pi_of_nobody"]


def test_what_only_stripe_has_and_other_amounts_fail(desk: Desk) -> None:
    stranger = desk.double.make(
        "payment_intent", amount=500, currency="usd", customer=None, metadata={}
    )
    desk.double.succeed(stranger)
    desk.paid(50)
    line = desk.double.all_of("balance_transaction")[0]
    line["amount"] += 1

    wrong = unexplained([compared(desk)])

    assert sorted(each.amount for each in wrong) == [10_000_000, 5_000_000_000]
    assert not reconciling.stripe_is_reconciled(Period.of(desk.now), desk.now).passed


def test_a_line_of_another_month_is_late_in_both(desk: Desk) -> None:
    desk.paid(50)
    compared(desk)
    month = Period.of(desk.now)
    before = month.window.starts_at - timedelta(hours=1)
    PaymentMovement.objects.update(at=before)

    here = with_the_rest(journal_and_stripe(month, desk.now))
    there = with_the_rest(journal_and_stripe(Period.of(before), desk.now))

    assert reasons(here) == ["late", "late"] and reasons(there) == ["late", "late"]
    assert sum(each.amount for each in (*here.differences, *there.differences)) == 0


def test_what_stripe_takes_for_itself_is_a_fee_and_payouts_to_us_are_no_difference(
    desk: Desk,
) -> None:
    desk.double.move("stripe_fee", -200, "", currency="usd")
    desk.double.move("payout", -4_000, "po_1", currency="usd")

    assert reasons(compared(desk)) == ["fee"]


def test_without_card_payments_nothing_is_compared(store: MemoryStore) -> None:
    month = Period.of(datetime.now(UTC))

    assert journal_and_stripe(month, datetime.now(UTC)).pairs == []
    assert reconciling.stripe_is_reconciled(month, datetime.now(UTC)).passed
