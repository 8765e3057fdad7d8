"""The independent check of what a round takes from leases: each kind of fault, planted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from ledger.domain.ids import LeaseId, TenantId
from ledger.domain.money import Rate
from marketplace.domain.book.book import Book
from marketplace.domain.decisions.decide import on_round
from marketplace.domain.facts.events import LeaseGranted, RoundCleared, Share
from marketplace.domain.facts.instants import from_above
from marketplace.domain.quotas.minimum_runtime import LEAST_RUN_SECONDS
from marketplace.domain.verification.verify_round import faults
from tests.conftest import NOON
from tests.marketplace.support.market import Market, named
from tests.marketplace.support.preemption import NOTICE, busy_market
from tests.marketplace.support.preemption_in_rounds import patient, resale_market
from tests.marketplace.support.rounds import ROUND, book_of, no_fault

HOUR = timedelta(hours=1)
RUNTIME_MIN = timedelta(seconds=LEAST_RUN_SECONDS)


def vouched_for(market: Market) -> tuple[Book, RoundCleared, LeaseGranted]:
    """Return a round with one grant that cuts a lease, in which nothing is wrong."""
    book = book_of(market)
    events = on_round(book, now=from_above(market.now), round_id=ROUND, warn=no_fault)
    told, granted = events
    assert isinstance(told, RoundCleared) and isinstance(granted, LeaseGranted)
    assert granted.cuts
    assert faults(book, told, [granted]) == []
    return book, told, granted


def interrupting() -> tuple[Book, RoundCleared, LeaseGranted]:
    market = busy_market(gpus=1)
    patient(market)
    return vouched_for(market)


def buying() -> tuple[Book, RoundCleared, LeaseGranted]:
    market = resale_market()
    patient(market, hours=3, at=5)
    return vouched_for(market)


Change = Callable[[Book, LeaseGranted], LeaseGranted]


def cut(**fields: Any) -> Change:
    """Change the grant's cut."""
    return lambda book, granted: replace(granted, cuts=(replace(granted.cuts[0], **fields),))


def cut_sooner(by: timedelta) -> Change:
    """Move the cut."""
    return lambda book, it: replace(
        it, cuts=(replace(it.cuts[0], ends_at=it.cuts[0].ends_at - by),)
    )


def victim(book: Book, granted: LeaseGranted) -> Any:
    return book.held[granted.cuts[0].lease_id]


def of_victim(**fields: Any) -> Change:
    """Change the lease that is cut."""

    def change(book: Book, granted: LeaseGranted) -> LeaseGranted:
        for name, value in fields.items():
            setattr(victim(book, granted), name, value)
        return granted

    return change


def bid_of_victim(**fields: Any) -> Change:
    """Change the bid of the lease that is cut."""

    def change(book: Book, granted: LeaseGranted) -> LeaseGranted:
        held = victim(book, granted)
        held.bid = replace(held.bid, **fields)
        return granted

    return change


def grant_of_victim(**fields: Any) -> Change:
    """Change the grant of the lease that is cut."""

    def change(book: Book, granted: LeaseGranted) -> LeaseGranted:
        held = victim(book, granted)
        held.granted = replace(held.granted, **fields)
        return granted

    return change


def share(**fields: Any) -> Change:
    """Change the grant's share."""
    return lambda book, it: replace(it, shares=(replace(it.shares[0], **fields),))


def sale(**fields: Any) -> Change:
    """Change the sale."""

    def change(book: Book, granted: LeaseGranted) -> LeaseGranted:
        lease_id = granted.cuts[0].lease_id
        position, opened = book.resales[lease_id]
        book.resales[lease_id] = (position, replace(opened, **fields))
        return granted

    return change


def not_for_sale(book: Book, granted: LeaseGranted) -> LeaseGranted:
    book.resales.clear()
    return granted


def bought_share(it: Share) -> Share:
    assert it.resold is not None
    return replace(it, resold=replace(it.resold, price=Rate(1)))


NOBODY = LeaseId(UUID(int=4))
INTERRUPTING: dict[str, tuple[Change, str]] = {
    "no such lease": (cut(lease_id=NOBODY), "there is no lease"),
    "no cut": (lambda _, it: replace(it, cuts=()), "is held twice"),
    "cut twice": (lambda _, it: replace(it, cuts=it.cuts * 2), "is cut twice"),
    "too little notice": (cut_sooner(timedelta(minutes=1)), "has less notice"),
    "a cut that is none": (cut(ends_at=NOON + 9 * HOUR), "cannot end at"),
    "a firm lease": (bid_of_victim(service_class="on-demand"), "is not interruptible"),
    "the bidder's own": (bid_of_victim(tenant_id=named("tenant firm")), "is the bidder's own"),
    "reclaimed": (of_victim(reclaimed_by=TenantId(named("tenant o"))), "is reclaimed"),
    "its owner's": (grant_of_victim(own=True), "or its owner's"),
    "not the way it is": (cut(because="resold"), "is not for sale"),
    "dear": (grant_of_victim(price=Rate(9 * 10**9)), "pays less for what it takes"),
    "cheap": (lambda _, it: replace(it, price=Rate(10**9)), "pays less for what it takes"),
}
BUYING: dict[str, tuple[Change, str]] = {
    "not for sale": (not_for_sale, "is not for sale"),
    "not cut": (lambda _, it: replace(it, cuts=()), "and it is not cut"),
    "cut elsewhere": (cut_sooner(timedelta(minutes=1)), "not where the bought one begins"),
    "sold until earlier": (sale(ends_at=NOON + 2 * HOUR), "is for sale until"),
    "below its floor": (sale(floor=Rate(2 * 10**9)), "is not sold below"),
    "sold for longer": (sale(lease_min_seconds=36_000), "is sold for longer only"),
    "by the bidder": (sale(tenant_id=named("tenant firm")), "is the bidder's own"),
    "other GPUs": (share(gpu_uuids=("b:7",)), "has no ('b:7',)"),
    "other terms": (share(notice_seconds=1), "on other terms than its own"),
    "other grace": (share(grace_seconds=1), "on other terms than its own"),
    "another price": (
        lambda _, it: replace(it, shares=tuple(map(bought_share, it.shares))),
        "at another price than its owner's",
    ),
}


@pytest.mark.parametrize("name", INTERRUPTING)
def test_each_fault_of_an_interruption_is_found(name: str) -> None:
    book, told, granted = interrupting()
    change, said = INTERRUPTING[name]

    found = faults(book, told, [change(book, granted)])

    assert any(said in str(fault) for fault in found), found


@pytest.mark.parametrize("name", BUYING)
def test_each_fault_of_a_sale_is_found(name: str) -> None:
    book, told, granted = buying()
    change, said = BUYING[name]

    found = faults(book, told, [change(book, granted)])

    assert any(said in str(fault) for fault in found), found


def test_a_lease_that_has_not_run_long_enough_is_not_cut() -> None:
    market = Market()
    market.offer("a", gpus=1, at=1, notice=NOTICE)
    market.bid("cheap", hours=8, at=1, service_class="interruptible")
    market.run()
    market.wait(minutes=2)
    patient(market, at=5)
    book, told, granted = vouched_for(market)
    assert granted.cuts[0].ends_at == NOON + RUNTIME_MIN

    found = faults(book, told, [cut_sooner(timedelta(seconds=1))(book, granted)])

    assert any("has not run long enough" in str(fault) for fault in found), found
