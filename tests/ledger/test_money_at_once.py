"""Two finance people, a bank and a loop at the same moment, on PostgreSQL: each thing once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from ledger import invoicing
from ledger.commands import closing, invoices, refunds, wallet
from ledger.domain.accounts import Account
from ledger.domain.events import UsageCaptured
from ledger.domain.ids import PaymentId, RefundId
from ledger.domain.invoice_events import CreditNoteIssued
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.refusal import Refusal
from ledger.domain.wallet import Wallet
from ledger.eventstore.port import EventStore, StreamMoved, load
from ledger.eventstore.postgres import PostgresStore
from ledger.models import InvoiceRow, PeriodRow
from ledger.queries.money import disagreements
from tests.conftest import SOMEBODY
from tests.ledger.all_kinds import lived
from tests.ledger.all_kinds.lived import AFTER, BUDGET, MET, MONTH, WALLET, usd
from tests.ledger.all_kinds.world import IRIS, JOAN, OSCAR, START, found

pytestmark = pytest.mark.django_db(transaction=True)
JOIN_SECONDS = 60
WHO: dict[str, Any] = {"by": SOMEBODY, "now": START}


@pytest.fixture
def store(committed_store: None) -> PostgresStore:
    made = PostgresStore()
    found(made)
    return made


def at_once(*asks: Callable[[], object]) -> list[str]:
    """Ask in threads that start together; return what each was refused for, or nothing."""
    outcomes = [""] * len(asks)
    ready = threading.Barrier(len(asks))

    def run(index: int, ask: Callable[[], object]) -> None:
        try:
            ready.wait(JOIN_SECONDS)
            ask()
        except Refusal as refusal:
            outcomes[index] = refusal.code
        except StreamMoved:
            outcomes[index] = "stream-moved"
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=each) for each in enumerate(asks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(JOIN_SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    return outcomes


def paid_in(store: EventStore, number: int, units: float) -> None:
    who = {"account_id": WALLET, "payment_id": PaymentId(uuid4()), **WHO}
    wallet.request_top_up(store, money=usd(units), asked_by=JOAN, **who)
    wallet.post_top_up(
        store, intent=f"pi_{number}", money=usd(units), platform_id=PLATFORM_ID, **who
    )


def asked_refund(store: EventStore, units: float) -> RefundId:
    refund_id = RefundId(uuid4())
    terms = {"account_id": WALLET, "refund_id": refund_id, "reason": "unused", **WHO}
    refunds.ask_for_refund(store, money=usd(units), asked_by=JOAN, **terms)
    return refund_id


def balanced(store: EventStore) -> None:
    lived.follow(store)
    assert disagreements() == []


def test_one_approves_a_refund_while_another_declines_it(store: PostgresStore) -> None:
    paid_in(store, 1, 50)
    refund_id = asked_refund(store, 20)
    terms: dict[str, Any] = {"account_id": WALLET, "refund_id": refund_id, **WHO}

    outcomes = at_once(
        lambda: refunds.approve_refund(store, approved_by=OSCAR, **terms),
        lambda: refunds.approve_refund(store, approved_by=IRIS, **terms),
        lambda: refunds.decline_refund(store, declined_by=IRIS, **terms),
    )

    known, account = load(store, Wallet, WALLET), load(store, Account, WALLET)
    assert known is not None and account is not None
    if known.refunds[refund_id].state == "declined":
        assert (outcomes[2], account.held) == ("", usd(0))
    else:
        assert outcomes[2] == "refund-decided" and account.held == usd(20)
    balanced(store)


def test_a_bank_takes_back_while_a_refund_is_approved(store: PostgresStore) -> None:
    """What went back and what was taken back is never more than that payment."""
    paid_in(store, 1, 50)
    refund_id = asked_refund(store, 50)
    terms: dict[str, Any] = {"account_id": WALLET, "refund_id": refund_id, **WHO}

    outcomes = at_once(
        lambda: refunds.approve_refund(store, approved_by=OSCAR, **terms),
        lambda: refunds.note_dispute(
            store,
            account_id=WALLET,
            dispute="du_1",
            intent="pi_1",
            money=usd(50),
            reason="fraudulent",
            platform_id=PLATFORM_ID,
            **WHO,
        ),
    )

    known, account = load(store, Wallet, WALLET), load(store, Account, WALLET)
    assert known is not None and account is not None
    assert outcomes[1] == "" and account.total == usd(0)
    assert (outcomes[0] == "") == (known.refunds[refund_id].state == "approved")
    balanced(store)


def used(store: EventStore) -> None:
    """Let a cost centre use an hour of the month that is over."""
    for _, ask in (lived.placed(1, BUDGET), *lived.uses(1, BUDGET)):
        ask(store)


def test_two_people_invoice_a_month_while_it_is_closed(store: PostgresStore) -> None:
    used(store)
    closing.soft_close_period(store, MONTH, user_id=JOAN, by=SOMEBODY, now=AFTER)
    lived.follow(store)
    issue = partial(invoicing.issue_month, store, MONTH, by=SOMEBODY, now=AFTER)

    outcomes = at_once(
        lambda: issue(user_id=JOAN),
        lambda: issue(user_id=OSCAR),
        lambda: closing.close_period(
            store, MONTH, checks=[MET], user_id=IRIS, by=SOMEBODY, now=AFTER
        ),
    )

    balanced(store)
    assert outcomes == [""] * 3
    assert InvoiceRow.objects.get().account_id == BUDGET
    assert PeriodRow.objects.get(period=str(MONTH)).state == "closed"
    entries = [each for each in store.read_all(limit=1_000).events if "rounded" in each.type]
    assert len(entries) == 1


def test_two_people_approve_two_credits_of_one_invoice(store: PostgresStore) -> None:
    """Each says all that is left; the second is refused before it is asked for."""
    used(store)
    closing.soft_close_period(store, MONTH, user_id=JOAN, by=SOMEBODY, now=AFTER)
    lived.follow(store)
    invoicing.issue_month(store, MONTH, user_id=JOAN, by=SOMEBODY, now=AFTER)
    ids = [uuid4(), uuid4()]

    asked = at_once(
        *(
            partial(
                invoices.ask_credit_note,
                store,
                credit_id=each,
                invoice_id=lived.INVOICE,
                lines=[],
                reason="charged twice",
                user_id=JOAN,
                **WHO,
            )
            for each in ids
        )
    )
    approved = at_once(
        *(
            partial(invoices.approve_credit_note, store, each, user_id=person, **WHO)
            for each in ids
            for person in (OSCAR, IRIS)
        )
    )

    assert sorted(asked) == ["", "nothing-to-credit"]
    assert approved.count("") == 1
    events = [each.event for each in store.read_all(limit=1_000).events]
    assert sum(isinstance(each, CreditNoteIssued) for each in events) == 1
    balanced(store)


def test_late_use_is_charged_while_the_month_is_closed_and_opened(store: PostgresStore) -> None:
    used(store)
    closing.soft_close_period(store, MONTH, user_id=JOAN, by=SOMEBODY, now=AFTER)
    terms: dict[str, Any] = {"by": SOMEBODY, "now": AFTER}
    late = [lived.captured(1, BUDGET, hour, 1_000_000)[1] for hour in (20, 21, 22)]

    at_once(
        *(partial(each, store) for each in late),
        lambda: closing.close_period(store, MONTH, checks=[MET], user_id=IRIS, **terms),
    )
    for each in late:
        each(store)

    balanced(store)
    events = [each.event for each in store.read_all(limit=1_000).events]
    assert sum(isinstance(each, UsageCaptured) for each in events) == 8
