"""Numbers of invoices under many who issue at once, on PostgreSQL, and under kills."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection, connections

from ledger.commands.closing import soft_close_period
from ledger.commands.invoices import issue_invoice
from ledger.commands.money import open_account
from ledger.domain.ids import AccountId, SubscriberId
from ledger.domain.invoices import Draft, InvoiceIssuedBefore, Invoices
from ledger.domain.parties import PLATFORM_ID
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import (
    Appended,
    EventStore,
    OutcomeUnknown,
    StoreUnavailable,
    Write,
    load,
)
from ledger.eventstore.postgres import PostgresStore
from tests.conftest import NOON, SOMEBODY
from tests.ledger import ledgerbook as book
from tests.ledger.drafts import draft
from tests.ledger.invoiced import JOAN, LATER, MONTH

ACCOUNTS = 50
AT_ONCE = 50


def opened(store: EventStore) -> Draft:
    """Open another account that pays, and return what its invoice is to say."""
    account_id = AccountId(uuid4())
    open_account(
        store,
        account_id=account_id,
        tenant_id=book.CONSUMER,
        subscriber_id=SubscriberId(uuid4()),
        kind="chargeback",
        title="Unit",
        currency="EUR",
        overdraft_nanos=None,
        by=SOMEBODY,
        now=NOON,
    )
    return replace(draft(1_005_000_001, account=account_id), period=MONTH)


def soft_close(store: EventStore) -> None:
    now = MONTH.window.ends_at + timedelta(days=1)
    soft_close_period(store, MONTH, user_id=JOAN, by=SOMEBODY, now=now)


def issue(store: EventStore, of: Draft) -> None:
    issue_invoice(store, of, user_id=JOAN, by=SOMEBODY, now=LATER)


def need_whole(store: EventStore) -> int:
    """Tell how many invoices there are: their numbers have no gap, and each has its entry once."""
    known = load(store, Invoices, PLATFORM_ID)
    assert known is not None
    numbers = sorted(each.number for each in known.invoices.values())
    assert numbers == [f"INV-2026-{n:04d}" for n in range(1, len(numbers) + 1)]
    rounded = [each for each in book.entries(store) if each.account_id in known.newest]
    assert len(rounded) == len({each.entry_id for each in rounded}) == len(numbers)
    return len(numbers)


@pytest.mark.django_db(transaction=True)
def test_many_who_issue_at_once_leave_no_gap(committed_store: None) -> None:
    store = PostgresStore()
    soft_close(store)
    drafts = [opened(store) for _ in range(ACCOUNTS)]

    def work(of: Draft) -> None:
        try:
            issue(PostgresStore(), of)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(work, drafts))

    assert need_whole(store) == ACCOUNTS


@pytest.mark.django_db(transaction=True)
def test_who_is_killed_while_issuing_leaves_no_gap_and_others_go_on(
    committed_store: None,
) -> None:
    """A process issues until it is killed; whatever it had begun is there whole, or not at all."""
    store = PostgresStore()
    soft_close(store)
    drafts = [opened(store) for _ in range(ACCOUNTS)]
    connection.close()
    reads, says = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            for of in drafts:
                issue(PostgresStore(), of)
                os.write(says, b".")
        finally:
            os._exit(1)
    os.close(says)
    assert os.read(reads, 3), "it has issued at least one"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reads)

    before = need_whole(store)
    for of in drafts:
        try:
            issue(store, of)
        except InvoiceIssuedBefore:
            before -= 1
    assert before == 0
    assert need_whole(store) == ACCOUNTS


class Failing(MemoryStore):
    """A store that fails at an append, before it is done or when it is."""

    fails: str = ""

    def append_whole(self, writes: Sequence[Write]) -> list[Appended]:
        """Append, or fail once."""
        how, self.fails = self.fails, ""
        if how == "before":
            raise StoreUnavailable("pulled the plug")
        appended = super().append_whole(writes)
        if how == "after":
            raise OutcomeUnknown("the reply was lost")
        return appended


@pytest.mark.parametrize("how", ["before", "after"])
def test_an_append_that_fails_before_or_after_gives_each_number_once(how: str) -> None:
    store = Failing()
    soft_close(store)
    first, second = opened(store), opened(store)
    issue(store, first)
    store.fails = how

    try:
        issue(store, second)
    except StoreUnavailable:
        issue(store, second)

    assert need_whole(store) == 2
