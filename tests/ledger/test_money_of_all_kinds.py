"""All kinds of money, in any order, against paper: I2 to I4, I9 and I12 after every step.

The machine tops up, uses, pauses, contests, refunds, charges back, credits, invoices, closes,
opens again and pays out. It asks for everything twice, and for much that has to be refused. At the
end the tables, their rebuild and the months that were closed have to say what the paper says.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models import Sum
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from ledger.carrying import carried_wrongly, carry_one_forward
from ledger.domain.accounts import Account
from ledger.domain.events import (
    AccountOpened,
    InvoiceRounded,
    StorageCharged,
    TaxCharged,
    UsageCaptured,
)
from ledger.domain.ids import AccountId
from ledger.domain.journal import ENTRY_KINDS, EntryEvent
from ledger.domain.periods import read_period
from ledger.eventstore import folds
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import load
from ledger.models import AccountRow, PostingRow
from ledger.queries.money import disagreements
from ledger.queries.payouts_add_up import payouts_that_differ
from ledger.rebuilding import fingerprint, rebuild
from tests.ledger.all_kinds.cards import Cards
from tests.ledger.all_kinds.months import Months
from tests.ledger.all_kinds.owners import Owners
from tests.ledger.all_kinds.use import Use
from tests.ledger.all_kinds.world import (
    OWNERS,
    READ,
    UNITS,
    WALLETS,
    People,
    Unit,
    asks,
    earnings,
)

PHASES = (Phase.generate,)
"""Shrinking a run of fifty steps takes minutes; the steps before a fault say enough."""
SAMPLED = 5
"""Every so many-th run is rebuilt from its first event."""


class Processes(People):
    """What processes do by themselves."""

    @asks()
    def processes_start_anew(self) -> None:
        folds._memories.pop(self.store, None)

    @asks(unit=st.sampled_from(UNITS))
    def an_account_is_carried_forward(self, unit: Unit) -> None:
        carry_one_forward(self.store, unit.account_id, now=self.now, every=7)

    @asks()
    def tables_follow(self) -> None:
        self.follow()


class AllKinds(Use, Cards, Months, Owners, Processes):
    """All rules, and what must hold after each."""

    runs = 0

    @initialize(is_used=st.sampled_from([True, True, True, False]))
    def open(self, *, is_used: bool) -> None:
        self._apart = transaction.atomic()
        self._apart.__enter__()
        self.begin(MemoryStore())
        if is_used:
            self._use_all()

    def _use_all(self) -> None:
        """Begin with a month in which everybody paid in and used something."""
        for unit in UNITS:
            self.add_funds(unit=unit, nanos=30_000_000_001)
            self.place(unit=unit, nanos=9_000_000_000, price=1_730_000_001, fee_ppm=80_000)
        for unit in (*WALLETS, WALLETS[0]):
            self.ask_for_a_top_up(unit=unit, cents=3_000)
            self.a_payment_arrives(number=len(self.payment_ids) - 1, foreign=False)
        self.later(days=3)
        for number in range(len(UNITS)):
            for hour in (0, 1):
                self.capture(
                    number=number, hour=hour, first=1_234_567, second=2_345_678, correction=0
                )

    # One rule, with all there is to choose from: Hypothesis leaves out about half of the rules in a
    # run, and most of what can be asked here follows only from something else.
    @rule(data=st.data(), kind=st.sampled_from((Use, Cards, Months, Owners, Processes)))
    def somebody_asks(self, data: st.DataObject, kind: type) -> None:
        self.ask_one_of(kind, data)

    def look(self) -> None:
        """Read the entries that are new: each balances, in one currency."""
        for event in self.new():
            if isinstance(event, AccountOpened):
                self.currencies[event.account_id] = event.currency
            if isinstance(event, ENTRY_KINDS):
                self._count(event)

    def _count(self, entry: EntryEvent) -> None:
        assert sum(line.nanos for line in entry.postings) == 0
        assert len({self.currencies[line.account_id] for line in entry.postings}) <= 1
        assert entry.entry_id not in self.entries, "an entry is made once"
        self.entries.add(entry.entry_id)
        period = str(self.paper.counts_in(_counts_from(entry)))
        for line in entry.postings:
            self.posted[line.account_id] += line.nanos
            self.sums[period, line.account_id] += line.nanos

    def begin(self, store: Any) -> None:
        self.entries: set[Any] = set()
        super().begin(store)

    @invariant()
    def the_books_are_what_the_paper_says(self) -> None:
        self.look()
        assert +self.posted == +self.paper.balances
        assert -self.posted == -self.paper.balances
        for unit in UNITS:
            state = load(self.store, Account, unit.account_id)
            assert state is not None
            assert state.total.nanos == self.paper.balances[unit.account_id]
            assert state.held.nanos == self.paper.held(unit.account_id) >= 0
            short = -self.paper.available(unit.account_id) - (state.overdraft_nanos or 0)
            if state.overdraft_nanos is not None:
                assert short <= self.paper.taken(unit.account_id), "overdrawn, and by no bank"

    @invariant()
    def what_was_captured_is_the_price_of_what_was_metered(self) -> None:
        for hold_id, hold in self.paper.holds.items():
            state = load(self.store, Account, hold.account_id)
            assert state is not None
            known = state.holds[hold_id]
            assert known.captured.nanos == hold.captured
            assert sum(known.millis.values()) == sum(hold.millis.values())
            assert known.remaining.nanos == (0 if hold.released else hold.money - hold.captured)

    def teardown(self) -> None:
        if not hasattr(self, "_apart"):
            return
        try:
            self._tables_agree()
        finally:
            transaction.set_rollback(True)
            self._apart.__exit__(None, None, None)

    def _tables_agree(self) -> None:
        self.look()
        self.follow()
        assert disagreements() == [] == payouts_that_differ() == carried_wrongly(self.store)
        rows = {row.pk: row for row in AccountRow.objects.all()}
        for account_id, row in rows.items():
            assert row.total_nanos == self.paper.balances[AccountId(account_id)]
        for unit in UNITS:
            assert rows[unit.account_id].held_nanos == self.paper.held(unit.account_id)
        for owner in OWNERS:
            for currency in ("USD", "EUR"):
                account_id = earnings(owner, currency)
                assert rows[account_id].held_nanos == self.paper.aside(account_id)
        found = PostingRow.objects.values_list("period", "account_id").annotate(sum=Sum("nanos"))
        sums = {(period, account_id): int(nanos) for period, account_id, nanos in found.order_by()}
        assert {key: each for key, each in sums.items() if each} == {
            key: each for key, each in self.sums.items() if each
        }
        for period, was in self.frozen.items():
            assert self.sums_of(period) == was, f"{period} is closed"
        type(self).runs += 1
        if self.runs % SAMPLED == 0:
            before = [fingerprint(each.tables) for each in READ]
            for each in READ:
                rebuild(self.store, each)
            assert [fingerprint(each.tables) for each in READ] == before


def _counts_from(entry: EntryEvent) -> datetime:
    """Return the moment that says in which month an entry counts, if that is open."""
    if isinstance(entry, UsageCaptured | StorageCharged):
        return entry.window.starts_at
    if isinstance(entry, InvoiceRounded | TaxCharged):
        return read_period(entry.period).window.ends_at - timedelta(seconds=1)
    return entry.at


def run(*, examples: int, steps: int, derandomize: bool) -> None:
    run_state_machine_as_test(
        AllKinds,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=derandomize,
            phases=PHASES,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture(autouse=True)
def short_accounts_are_carried_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folds, "CARRIED_FROM", 8)


@pytest.mark.django_db
def test_whatever_is_asked_in_whatever_order() -> None:
    run(examples=30, steps=60, derandomize=True)


@pytest.mark.soak
@pytest.mark.django_db
def test_whatever_is_asked_two_thousand_times() -> None:
    run(examples=2_000, steps=80, derandomize=False)
