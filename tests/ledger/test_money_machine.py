"""Accounts against a model that a person could keep on paper: I2, I3 and I4.

The machine asks for everything in any order, repeats what it asked before, asks for what must be
refused, and restarts. After every step the books must balance, nobody may be overdrawn, and what
was captured must be the price of what was metered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import uuid5

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from ledger.domain import account_ids
from ledger.domain.ids import AccountId, HoldId, SubscriberId, TenantId
from ledger.domain.money import Money, Rate
from ledger.domain.refusal import Refusal
from ledger.eventstore.memory import MemoryStore
from tests.ledger import ledgerbook as book

UNITS = {
    "prepaid": ("prepaid", 0),
    "credit": ("prepaid", 5_000_000_000),
    "budget": ("chargeback", 20_000_000_000),
    "free": ("chargeback", None),
}
OWNERS = (book.OWNER, book.OTHER_OWNER)


@dataclass
class PaperHold:
    account: str
    money: int
    price: Rate
    fee_ppm: int
    metered: dict[int, tuple[int, int]] = field(default_factory=dict)
    released: bool = False

    @property
    def millis(self) -> int:
        return sum(a + b for a, b in self.metered.values())

    @property
    def captured(self) -> int:
        return self.price.charge(self.millis).nanos


class MoneyMachine(RuleBasedStateMachine):
    holds = Bundle("holds")

    @initialize()
    def open(self) -> None:
        self.store: Any = MemoryStore()
        self.funded = dict.fromkeys(UNITS, 0)
        self.paper: dict[HoldId, PaperHold] = {}
        self.ids: dict[str, AccountId] = {}
        book.open_everybody(self.store)
        for name, (kind, overdraft) in UNITS.items():
            unit = SubscriberId(uuid5(book.WORLD, name))
            self.ids[name] = book.open_funds(
                self.store,
                unit=unit,
                kind=kind,  # type: ignore[arg-type]
                overdraft_nanos=overdraft,
                title=name,
            )

    def total(self, name: str) -> int:
        taken = sum(hold.captured for hold in self.paper.values() if hold.account == name)
        return self.funded[name] - taken

    def held(self, name: str) -> int:
        return sum(
            hold.money - hold.captured
            for hold in self.paper.values()
            if hold.account == name and not hold.released
        )

    def spendable(self, name: str) -> int | None:
        overdraft = UNITS[name][1]
        return None if overdraft is None else self.total(name) - self.held(name) + overdraft

    def affords(self, name: str, nanos: int) -> bool:
        spendable = self.spendable(name)
        return spendable is None or nanos <= spendable

    def succeeds(self, ask: Any, *args: Any, **terms: Any) -> bool:
        """Ask twice: the second time must change nothing, and a refusal neither."""
        head = self.store.head()
        try:
            ask(self.store, *args, **terms)
        except Refusal:
            assert self.store.head() == head
            return False
        head = self.store.head()
        ask(self.store, *args, **terms)
        assert self.store.head() == head
        return True

    @rule(name=st.sampled_from(sorted(UNITS)), nanos=st.integers(1, 30_000_000_000))
    def add_funds(self, name: str, nanos: int) -> None:
        entry = f"top-up {self.store.head()}"
        assert self.succeeds(book.fund, Money(nanos), account=self.ids[name], entry=entry)
        self.funded[name] += nanos

    @rule(
        target=holds,
        name=st.sampled_from(sorted(UNITS)),
        nanos=st.integers(0, 30_000_000_000),
        price=st.integers(0, 4_000_000_001),
        fee_ppm=st.sampled_from([0, 1, 80_000, 999_999, 1_000_000]),
    )
    def place(self, name: str, nanos: int, price: int, fee_ppm: int) -> HoldId:
        hold_id = book.hold_named(self.store.head())
        possible = self.affords(name, nanos)
        placed = self.succeeds(book.hold, Money(nanos), account=self.ids[name], hold_id=hold_id)
        assert placed == possible
        if placed:
            self.paper[hold_id] = PaperHold(name, nanos, Rate(price), fee_ppm)
        return hold_id

    @rule(hold_id=holds, nanos=st.integers(0, 30_000_000_000))
    def resize(self, hold_id: HoldId, nanos: int) -> None:
        hold = self.paper.get(hold_id)
        account = self.ids[hold.account] if hold else book.FUNDS
        possible = hold is not None and (
            nanos == hold.money
            or (
                not hold.released
                and nanos >= hold.captured
                and (nanos <= hold.money or self.affords(hold.account, nanos - hold.money))
            )
        )
        resized = self.succeeds(book.resize, Money(nanos), account=account, hold_id=hold_id)
        assert resized == possible
        if resized and hold:
            hold.money = nanos

    @rule(
        hold_id=holds,
        hour=st.integers(0, 6),
        first=st.integers(0, 3_600_000),
        second=st.integers(0, 3_600_000),
    )
    def capture(self, hold_id: HoldId, hour: int, first: int, second: int) -> None:
        hold = self.paper.get(hold_id)
        if hold is None:
            return
        owners = tuple(zip(OWNERS, (first, second), strict=True))
        before = hold.metered.get(hour)
        after = hold.price.charge(hold.millis + first + second).nanos
        if before is not None:
            possible = before == (first, second)
        else:
            possible = first + second == 0 or (
                after <= hold.money
                and (not hold.released or self.affords(hold.account, after - hold.captured))
            )
        captured = self.succeeds(
            book.capture,
            book.hours(hour),
            first + second,
            account=self.ids[hold.account],
            hold_id=hold_id,
            lease_id=book.lease_named(hold_id),
            price=hold.price,
            fee_ppm=hold.fee_ppm,
            owners=owners,
        )
        assert captured == possible
        if captured and first + second:
            hold.metered[hour] = (first, second)

    @rule(hold_id=holds)
    def release(self, hold_id: HoldId) -> None:
        hold = self.paper.get(hold_id)
        account = self.ids[hold.account] if hold else book.FUNDS
        released = self.succeeds(book.release, account=account, hold_id=hold_id)
        assert released == (hold is not None)
        if hold:
            hold.released = True

    @invariant()
    def the_books_balance_and_agree_with_the_paper(self) -> None:
        totals = book.totals(self.store)
        assert sum(totals.values()) == 0
        assert all(sum(line.nanos for line in e.postings) == 0 for e in book.entries(self.store))
        for name, account_id in self.ids.items():
            state = book.account(self.store, account_id)
            assert state.total.nanos == totals[account_id] == self.total(name)
            assert state.held.nanos == self.held(name)

    @invariant()
    def nobody_is_overdrawn(self) -> None:
        for name, account_id in self.ids.items():
            overdraft = UNITS[name][1]
            available = book.account(self.store, account_id).available.nanos
            assert overdraft is None or available + overdraft >= 0

    @invariant()
    def what_was_captured_is_the_price_of_what_was_metered(self) -> None:
        totals = book.totals(self.store)
        charged = sum(hold.captured for hold in self.paper.values())
        fees = sum(Money(hold.captured).share(hold.fee_ppm).nanos for hold in self.paper.values())
        earned = sum(totals[earnings(owner)] for owner in OWNERS)
        assert totals[account_ids.fee_account(book.PLATFORM, "USD")] == fees
        assert earned == charged - fees


def earnings(owner: TenantId) -> AccountId:
    return account_ids.earnings_account(owner, "USD")


MoneyMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, derandomize=True
)
TestMoney = MoneyMachine.TestCase
