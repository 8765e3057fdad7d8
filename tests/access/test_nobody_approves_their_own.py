"""Four eyes: whatever one person asks for and another has to approve refuses whoever asked for it.

The table has every such thing in the product; a command that approves and is not in it fails here.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

import ledger.commands
import marketplace.commands
from ledger.domain import payees, receivables, refunds
from ledger.domain.closing import Periods, SecondPersonNeeded
from ledger.domain.closing_events import PeriodClosed, ReopeningAsked
from ledger.domain.dispute_events import DisputeOpened
from ledger.domain.disputes import Dispute, PartyCannotDecide
from ledger.domain.ids import TenantId, UserId
from ledger.domain.invoice_events import CreditNoteAsked, InvoiceIssued
from ledger.domain.invoices import Invoices
from ledger.domain.money import Money
from ledger.domain.payees import OwnPayout, Payee
from ledger.domain.payout_events import PayoutRequested
from ledger.domain.periods import read_period
from ledger.domain.receivable_events import WriteOffAsked
from ledger.domain.refunds import OwnRefund
from ledger.domain.wallet import Wallet
from ledger.domain.wallet_events import RefundAsked
from marketplace.domain.facts.policy_events import QuotaRequested
from marketplace.domain.governance.authority import Setter
from marketplace.domain.governance.quota_requests import OwnQuotaRequest, approve_request
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.domain.spending.budgets import Budgets, GrantIsYourOwn, decide_grant
from marketplace.domain.spending.events import SpendingBudgetSet, SpendingGrantAsked
from tests.conftest import NOON
from tests.contracts.stored import example

ASKED, ANOTHER = UserId(UUID(int=1)), UserId(UUID(int=2))


def refund(by: UserId) -> object:
    asked = replace(example(RefundAsked), asked_by=ASKED)
    wallet = Wallet.evolve(None, asked)
    return refunds.approve(
        wallet, account_id=asked.account_id, refund_id=asked.refund_id, approved_by=by, now=NOON
    )


def payout(by: UserId) -> object:
    asked = replace(example(PayoutRequested), requested_by=ASKED, approvals_needed=1)
    payee = Payee.evolve(None, asked)
    return payees.approve(payee, asked.payout_id, by_user=by, is_own=False, now=NOON)


def credit_note(by: UserId) -> object:
    issued = replace(example(InvoiceIssued), number="INV-2020-1")
    asked = replace(example(CreditNoteAsked), invoice_id=issued.invoice_id, asked_by=ASKED)
    known = Invoices.evolve(Invoices.evolve(None, issued), asked)
    return known.approve_credit(asked.credit_id, by=by, now=NOON)


def opening_a_month_again(by: UserId) -> object:
    closed = replace(example(PeriodClosed), period="2020-01")
    asked = replace(example(ReopeningAsked), period="2020-01", asked_by=ASKED)
    known = Periods.evolve(Periods.evolve(None, closed), asked)
    return known.approve(read_period("2020-01"), by=by, now=NOON)


def quota(by: UserId) -> object:
    ends = NOON + timedelta(days=1)
    asked = replace(example(QuotaRequested), user_id=ASKED, expires_at=ends, ends_at=ends)
    known = Policies.evolve(None, asked)
    setter = Setter(TenantId(UUID(int=9)), True, by)
    return approve_request(known, asked.request_id, setter, token_id=UUID(int=3), now=NOON)


def grant_of_a_budget(by: UserId) -> object:
    budget = example(SpendingBudgetSet)
    asked = replace(
        example(SpendingGrantAsked),
        budget_id=budget.budget_id,
        by=ASKED,
        alone=False,
        until=NOON + timedelta(days=1),
    )
    known = Budgets.evolve(Budgets.evolve(None, budget), asked)
    return decide_grant(
        known, budget.tenant_id, budget.budget_id, asked.grant_id, approved=True, by=by, at=NOON
    )


def contested_charge(by: UserId) -> object:
    opened = Dispute.evolve(None, replace(example(DisputeOpened), opened_by=ASKED))
    return opened.decide("dismissed", reason="as metered", by=by, parties=(), now=NOON)


def write_off(by: UserId) -> object:
    issued = replace(example(InvoiceIssued), kind="invoice")
    asked = replace(
        example(WriteOffAsked), invoice_id=issued.invoice_id, asked_by=ASKED, money=Money(1)
    )
    bill = receivables.Bill(issued, credited_nanos=0)
    known = receivables.Receivable.evolve(None, asked)
    return receivables.approve_write_off(known, bill, by=by, now=NOON)


APPROVALS: dict[str, tuple[Callable[[UserId], object], type[Exception]]] = {
    "approve_refund": (refund, OwnRefund),
    "approve_payout": (payout, OwnPayout),
    "approve_credit_note": (credit_note, SecondPersonNeeded),
    "approve_write_off": (write_off, SecondPersonNeeded),
    "approve_reopening": (opening_a_month_again, SecondPersonNeeded),
    "approve_request": (quota, OwnQuotaRequest),
    "decide_spending_grant": (grant_of_a_budget, GrantIsYourOwn),
    "decide_dispute": (contested_charge, PartyCannotDecide),
}
"""By the command that approves it."""
OF_OTHER_KINDS = {
    "confirm_bank_details": "waits three days instead, and anybody of the owner may withdraw it",
    "decide_on": "what any rule decides on a lease",
}


@pytest.mark.parametrize("name", APPROVALS)
def test_whoever_asked_for_it_is_refused(name: str) -> None:
    ask, refusal = APPROVALS[name]

    with pytest.raises(refusal):
        ask(ASKED)


@pytest.mark.parametrize("name", sorted(set(APPROVALS) - {"approve_refund", "approve_credit_note"}))
def test_somebody_else_is_not_refused_for_that(name: str) -> None:
    """Of refunds and credit notes their own tests say so: they need payments and lines as well."""
    assert APPROVALS[name][0](ANOTHER)


def test_every_command_that_approves_is_in_the_table() -> None:
    found: set[str] = set()
    for package in (ledger.commands, marketplace.commands):
        for module in pkgutil.iter_modules(package.__path__):
            held: Any = importlib.import_module(f"{package.__name__}.{module.name}")
            for name, value in vars(held).items():
                is_own = inspect.isfunction(value) and value.__module__ == held.__name__
                if is_own and name.startswith(("approve_", "decide_", "confirm_")):
                    found.add(name)

    assert found == set(APPROVALS) | set(OF_OTHER_KINDS)
