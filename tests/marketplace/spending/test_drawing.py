"""Bids, changes and extensions draw on the budgets that cover them, and are refused beyond."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import UUID

import pytest
from django.db import connections

from ledger.domain.accounts import Account
from ledger.domain.ids import BidId
from ledger.domain.money import Money
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import EventStore, load
from ledger.eventstore.postgres import PostgresStore
from marketplace.commands import bids, leases
from marketplace.commands.spending import set_spending_budget
from marketplace.domain.bids.bid import Bid, BidTerms
from marketplace.domain.spending.budget import BudgetUsedUp
from marketplace.domain.spending.budgets import Budgets
from marketplace.domain.spending.events import BudgetScope, Threshold
from tests.conftest import NOON
from tests.marketplace.support.market import rate, somebody
from tests.marketplace.support.site import ACCOUNT, HOUR, TENANT, TERMS, Site
from tests.marketplace.support.spending import budget

PARALLEL = 8


def limited(
    store: EventStore, amount: float, *, scope: BudgetScope = "tenant", subject: str = ""
) -> None:
    terms = budget(amount=amount, scope=scope, subject=subject, tenant_id=TENANT)
    set_spending_budget(store, terms=terms, by=somebody())


def asked(number: int, *, gpus: int = 1, project: str = "") -> BidTerms:
    """Return a bid of four hours at three dollars an hour: 12 for each GPU."""
    work = replace(TERMS.workload, project=project)
    return replace(TERMS, bid_id=BidId(UUID(int=number)), gpus=gpus, workload=work)


def place(store: EventStore, terms: BidTerms) -> None:
    bids.place_bid(store, terms=terms, by=somebody(), now=NOON)


def test_a_bid_beyond_a_budget_is_refused_and_sets_nothing_aside() -> None:
    site = Site()
    limited(site.store, 30)
    place(site.store, asked(1, gpus=2))
    with pytest.raises(BudgetUsedUp) as refused:
        place(site.store, asked(2))
    assert refused.value.details["needed"] == Money(12_000_000_000)
    assert load(site.store, Bid, UUID(int=2)) is None
    account = load(site.store, Account, ACCOUNT)
    assert account is not None
    assert account.held == Money(24_000_000_000)


def test_bids_of_other_projects_do_not_count() -> None:
    site = Site()
    limited(site.store, 12, scope="project", subject="llm")
    place(site.store, asked(1, project="llm"))
    place(site.store, asked(2, project="other"))
    place(site.store, asked(3))
    with pytest.raises(BudgetUsedUp):
        place(site.store, asked(4, project="llm"))
    budgets = load(site.store, Budgets, TENANT)
    assert budgets is not None
    assert budgets.drawn == 1, "where nothing could be refused nothing is written"


def test_a_budget_that_only_notifies_refuses_nothing() -> None:
    site = Site()
    terms = budget(amount=1, thresholds=(Threshold(500_000, "notify"),), tenant_id=TENANT)
    set_spending_budget(site.store, terms=terms, by=somebody())
    place(site.store, asked(1))


def test_bids_placed_together_are_drawn_one_after_the_other() -> None:
    site = Site()
    limited(site.store, 30)
    wanted = [(asked(number), somebody()) for number in range(1, 5)]
    outcomes = bids.place_bids(site.store, wanted, now=NOON)
    assert [isinstance(each, BudgetUsedUp) for each in outcomes] == [False, False, True, True]


def test_more_for_a_bid_is_drawn_and_less_is_not() -> None:
    site = Site()
    limited(site.store, 30)
    place(site.store, asked(1))
    change = {"bid_id": BidId(UUID(int=1)), "deadline": None, "by": somebody(), "now": NOON}
    bids.amend_bid(site.store, limit=rate(6), **change)  # type: ignore[arg-type]
    with pytest.raises(BudgetUsedUp):
        bids.amend_bid(site.store, limit=rate(8), **{**change, "by": somebody()})  # type: ignore[arg-type]
    bids.amend_bid(site.store, limit=rate(1), **{**change, "by": somebody()})  # type: ignore[arg-type]


def test_a_step_of_a_running_lease_is_drawn_too_and_the_lease_runs_on() -> None:
    site = Site()
    site.offer("rack", gpus=2)
    limited(site.store, 30)
    site.ask()
    site.go()
    site.start()
    lease = site.lease
    with pytest.raises(BudgetUsedUp):
        leases.request_extension(
            site.store,
            lease_id=lease.terms.lease_id,
            ends_at=lease.ends_at + 4 * HOUR,
            by=somebody(),
            now=site.now,
        )
    assert not site.lease.over
    assert site.lease.ends_at == lease.ends_at


@pytest.mark.django_db(transaction=True)
def test_of_bids_placed_at_the_same_moment_none_slips_past(committed_store: None) -> None:
    site = Site(store=PostgresStore())
    limited(site.store, 36)

    def one(number: int) -> bool:
        try:
            place(site.store, asked(number))
        except Refusal as refusal:
            assert isinstance(refusal, BudgetUsedUp)
            return False
        finally:
            connections.close_all()
        return True

    with ThreadPoolExecutor(PARALLEL) as pool:
        placed = list(pool.map(one, range(1, PARALLEL + 1)))
    assert sum(placed) == 3
    budgets = load(site.store, Budgets, TENANT)
    assert budgets is not None
    assert budgets.drawn == 3
