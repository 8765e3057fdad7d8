"""What every payment service does, whoever it is: `ledger.payments.port`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from ledger.payments.port import BillWanted, CardDeclined, PageWanted, PaymentsRefused
from tests.contracts.payments.conftest import Service, key

MARKS = {"offpeak_account": "a", "offpeak_payment": "p"}


def charge(service: Service, payer: str, method: str, *, minor: int = 500, under: str = "") -> str:
    state = service.payments.charge(
        payer=payer,
        method=method,
        minor=minor,
        currency="USD",
        marks=MARKS,
        key=under or key(),
    )
    assert (state.state, state.minor, state.currency) == ("succeeded", minor, "USD")
    return state.intent


def wanted(payer: str, *lines: int, minor: int | None = None) -> BillWanted:
    return BillWanted(
        payer=payer,
        number=f"T-{uuid4().hex[:10]}",
        lines=tuple((f"Line {number}", each) for number, each in enumerate(lines)),
        minor=sum(lines) if minor is None else minor,
        currency="USD",
        due_days=14,
        marks={"offpeak_invoice": "i"},
    )


def test_a_card_that_is_kept_is_charged_once_for_its_key(service: Service) -> None:
    payer = service.payer()
    method, once = service.card(payer), key()

    first = charge(service, payer, method, under=once)

    assert charge(service, payer, method, under=once) == first
    assert charge(service, payer, method) != first
    state = service.payments.intent(first)
    assert dict(state.marks) == MARKS and service.payments.method(method).payer == payer


def test_other_terms_under_the_same_key_are_refused(service: Service) -> None:
    payer = service.payer()
    method, once = service.card(payer), key()
    charge(service, payer, method, under=once)

    with pytest.raises(PaymentsRefused):
        charge(service, payer, method, minor=600, under=once)


def test_a_declined_card_is_told_from_what_the_service_refuses(service: Service) -> None:
    payer = service.payer()
    method = service.card(payer, declined=True)

    with pytest.raises(CardDeclined):
        charge(service, payer, method)
    with pytest.raises(PaymentsRefused):
        service.payments.intent("pi_of_nobody")


def test_what_was_paid_goes_back_once_for_its_key_and_never_more(service: Service) -> None:
    payer = service.payer()
    intent, once = charge(service, payer, service.card(payer)), key()

    def back(minor: int, under: str) -> str:
        state = service.payments.give_back(
            intent=intent, minor=minor, marks={"offpeak_refund": "r:0"}, key=under
        )
        assert (state.intent, state.minor) == (intent, minor)
        return state.refund

    assert back(200, once) == back(200, once)
    with pytest.raises(PaymentsRefused):
        back(400, key())
    [refund] = service.payments.refunds_of(intent)
    assert refund.marks["offpeak_refund"] == "r:0"
    assert service.payments.refund(refund.refund).state == "paid"
    assert service.payments.intent_of(refund.refund) == intent


def test_a_page_is_made_once_and_is_open_until_it_is_paid(service: Service) -> None:
    payer, once = service.payer(), key()
    page = PageWanted(
        payer=payer,
        minor=500,
        currency="USD",
        title="Top-up",
        marks=MARKS,
        back="https://gpu.example/?paid=1",
        away="https://gpu.example/?left=1",
        keep_card=True,
    )

    made = service.payments.open_page(page, key=once)

    assert service.payments.open_page(page, key=once).page == made.page
    seen = service.payments.page(made.page)
    assert seen.url and not seen.is_expired and not seen.intent and dict(seen.marks) == MARKS


def test_a_card_is_forgotten_and_once_more_is_nothing(service: Service) -> None:
    payer = service.payer()
    method = service.card(payer)
    for _ in range(2):
        service.payments.forget_method(method, key=key())

    assert service.payments.method(method).payer == ""
    with pytest.raises(PaymentsRefused):
        charge(service, payer, method)


def test_what_came_in_is_a_line_of_our_account(service: Service) -> None:
    since = datetime.now(UTC) - timedelta(minutes=5)
    payer = service.payer()
    intent = charge(service, payer, service.card(payer))

    lines = service.payments.movements(since, datetime.now(UTC) + timedelta(minutes=5))
    mine = [each for each in lines if service.payments.intent_of(each.source) == intent]

    assert [(each.minor, each.currency) for each in mine] == [(500, "USD")]
    assert mine[0].fee_minor >= 0


def test_an_invoice_is_sent_once_with_its_lines_and_is_open(service: Service) -> None:
    bill, once = wanted(service.payer(), 1000, 234, -100), key()

    made = service.payments.send_bill(bill, key=once)

    assert (made.state, made.minor, made.payments) == ("open", 1134, ())
    assert made.url and service.payments.send_bill(bill, key=once).bill == made.bill
    assert service.payments.bill(made.bill).marks["offpeak_invoice"] == "i"


def test_an_invoice_that_comes_to_something_else_is_not_sent(service: Service) -> None:
    with pytest.raises(PaymentsRefused):
        service.payments.send_bill(wanted(service.payer(), 1000, minor=999), key=key())


@pytest.mark.parametrize("ends", ["paid", "uncollectible"])
def test_an_invoice_is_collected_no_longer_and_once_more_is_nothing(
    service: Service, ends: str
) -> None:
    made = service.payments.send_bill(wanted(service.payer(), 1000), key=key())
    for _ in range(2):
        if ends == "paid":
            service.payments.settle_bill(made.bill, key=key())
        else:
            service.payments.give_bill_up(made.bill, key=key())

    seen = service.payments.bill(made.bill)
    assert (seen.state, seen.payments) == (ends, ())


def test_less_is_collected_of_an_open_invoice_and_never_more_than_is_left(
    service: Service,
) -> None:
    made = service.payments.send_bill(wanted(service.payer(), 1000), key=key())
    once = key()
    for _ in range(2):
        service.payments.lower_bill(made.bill, 400, words="Credited.", key=once)

    seen = service.payments.bill(made.bill)
    assert (seen.state, seen.minor, seen.left) == ("open", 1000, 600)
    with pytest.raises(PaymentsRefused):
        service.payments.lower_bill(made.bill, 601, words="Credited.", key=key())
