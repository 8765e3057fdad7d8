"""The platform's accounts for payouts, tax, rounding and bad debts open with their first entry."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from uuid import UUID

import pytest

from ledger.commands.closing import soft_close_period
from ledger.commands.invoices import issue_invoice
from ledger.commands.payouts import settle_earnings
from ledger.domain import account_ids
from ledger.domain.accounts import Account, AccountUnknown
from ledger.domain.ids import TenantId, UserId
from ledger.domain.invoices import NothingToInvoice
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.payee_settling import NothingPayable
from ledger.domain.payees import PayeeOf
from ledger.domain.periods import Period
from ledger.domain.refusal import Refusal
from ledger.domain.settling import Due, Earned, PayoutTerms
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import EventStore, load
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book
from tests.ledger.drafts import draft

CENT = 10_000_000
TRANSIT = account_ids.transit_account(PLATFORM_ID, "USD")
PERSON = UserId(UUID(int=5))
OF = PayeeOf(
    account_id=account_ids.earnings_account(book.OWNER, "USD"),
    tenant_id=TenantId(book.OWNER),
    currency="USD",
)


def settle(store: EventStore, earned: int) -> None:
    settle_earnings(
        store,
        OF,
        Due("2026-01-05", date(2026, 1, 5)),
        Earned(total=earned, later=0, recent=0, set_aside=0),
        terms=PayoutTerms(),
        unit=CENT,
        platform_id=PLATFORM_ID,
        user_id=PERSON,
        by=SOMEBODY,
        now=NOON,
    )


def test_a_settlement_that_pays_nothing_leaves_nothing_and_one_that_pays_opens_it_once() -> None:
    store = MemoryStore()
    book.open_everybody(store)
    head = store.head()

    for earned in (0, -(10**9), CENT - 1):
        with pytest.raises(NothingPayable):
            settle(store, earned)
    assert store.head() == head

    settle(store, 5 * CENT)
    transit = load(store, Account, TRANSIT)
    assert transit is not None and transit.opened.kind == "payouts"


@pytest.mark.parametrize(
    ("nanos", "refusal"), [((), NothingToInvoice), ((CENT,), AccountUnknown)], ids=["none", "whose"]
)
def test_an_invoice_that_is_refused_opens_no_account_for_tax_or_rounding(
    nanos: tuple[int, ...], refusal: type[Refusal]
) -> None:
    store = MemoryStore()
    before = NOON.replace(day=1) - timedelta(days=1)
    month = Period(before.year, before.month)
    soft_close_period(store, month, user_id=PERSON, by=SOMEBODY, now=NOON)
    head = store.head()

    with pytest.raises(refusal):
        issue_invoice(
            store, replace(draft(*nanos), period=month), user_id=PERSON, by=SOMEBODY, now=NOON
        )

    assert store.head() == head
