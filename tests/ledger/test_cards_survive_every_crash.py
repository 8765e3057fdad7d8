"""The loops of card payments die of each append, over Stripe's library: the books are the same.

What was asked of Stripe and not noted is asked again, with the same key; a notice that was not
settled is looked into again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import transaction

from ledger import payments
from ledger.domain.journal import ENTRY_KINDS
from ledger.eventstore import folds
from ledger.queries.money import disagreements
from tests.ledger import ledgerbook as book
from tests.ledger.all_kinds.mortal import Killed, MortalMemory, Piecemeal
from tests.ledger.funding_desk import Desk, install
from tests.ledger.ledgerbook import usd
from tests.stripe_double.double import StripeDouble

pytestmark = pytest.mark.django_db


@contextmanager
def stripe() -> Iterator[StripeDouble]:
    """Let payments be taken by a double that knows of nothing yet."""
    double = StripeDouble().start()
    install(double)
    try:
        yield double
    finally:
        payments.install(lambda: None)
        double.stop()
    assert double.faults == []


def carry_on(desk: Desk, when: str) -> int:
    """Let the loops run until a process lives to the end of each; return how many died."""
    store = desk.store
    assert isinstance(store, MortalMemory)
    store.when, before = when, store.deaths
    for loop in (desk.call, desk.hear):
        while True:
            try:
                loop()
            except Killed:
                folds._memories.pop(store, None)
                continue
            break
    store.when = ""
    return store.deaths - before


def lived(desk: Desk, when: str) -> tuple[str, int]:
    """Top up by page and by card, send back, and have a bank take back and give back.

    Returns: the hash of what the books came to, and how many processes died.
    """
    payment_id = desk.ask(50)
    deaths = carry_on(desk, when)
    intent = desk.double.pay(desk.row(payment_id).reference)["id"]
    deaths += carry_on(desk, when)
    [method] = desk.wallet.methods
    refund_id = desk.refund(20)
    desk.approve(refund_id)
    deaths += carry_on(desk, when)
    desk.ask(30, method=method)
    deaths += carry_on(desk, when)
    won = desk.double.dispute(intent, 1_000)
    deaths += carry_on(desk, when)
    desk.double.decide(won["id"], "won")
    lost = desk.double.dispute(intent, 500)
    desk.double.decide(lost["id"], "lost")
    deaths += carry_on(desk, when)
    assert desk.left() == [] == disagreements()
    assert desk.total == usd(50 - 20 + 30 - 5)
    return _sums(desk), deaths


def _sums(desk: Desk) -> str:
    sums: Counter[str] = Counter()
    for recorded in desk.store.read_all(limit=10_000).events:
        if isinstance(recorded.event, ENTRY_KINDS):
            sums[f"{recorded.type} entries"] += 1
            for line in recorded.event.postings:
                sums[f"{recorded.type} {line.account_id}"] += line.nanos
    account = book.account(desk.store)
    return json.dumps([sorted(sums.items()), account.total.nanos, account.held.nanos])


def desk_of(store: MortalMemory, double: StripeDouble) -> Desk:
    book.open_everybody(store)
    book.open_funds(store)
    return Desk(store, double)


def outcome(store: MortalMemory, when: str) -> tuple[str, int]:
    """Live once, on a store and with a Stripe of its own."""
    with stripe() as double, transaction.atomic():
        found = lived(desk_of(store, double), when)
        transaction.set_rollback(True)
    return found


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", [MortalMemory, Piecemeal])
def test_each_append_of_the_loops_may_be_their_last(kind: type[MortalMemory], when: str) -> None:
    plain, none = outcome(kind(), "")
    mortal, deaths = outcome(kind(), when)

    assert none == 0 and deaths >= 10
    assert mortal == plain
