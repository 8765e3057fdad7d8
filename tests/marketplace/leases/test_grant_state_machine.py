"""Bids, owners, sellers, the engine and the policies in any order, and crashes between any writes.

Whatever the order: no GPU is leased twice, a lease is what its bid asks for when it is filled,
nobody is cut for a grant that came to nothing, and every unit's holds are what its open bids and
its leases may cost.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ledger.domain.money import Money
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import load
from marketplace.commands import leases
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts.close_reasons import REASONS
from marketplace.domain.facts.events import BidFilled, BidPlaced, LeaseScheduled
from marketplace.domain.leases.lease import Lease
from marketplace.domain.leases.state import claimed_for
from marketplace.policies import policies
from tests.marketplace.support.contents import NEVER, contents
from tests.marketplace.support.interleaving import Killed, Mortal, Piecemeal, Stepping, Whole
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import OWNER, rate, somebody
from tests.marketplace.support.several_units import Several
from tests.marketplace.support.site import START_GRACE

UNITS = ("red", "green", "blue")
WORDS = st.integers(1, 10**6)


class Interleaving(RuleBasedStateMachine):
    """`store_kind`: how the store appends to several streams."""

    store_kind: type[Mortal] = Whole

    @initialize(victims=st.integers(0, 4), on_sale=st.booleans())
    def open(self, victims: int, on_sale: bool) -> None:
        self.site = Several(*UNITS, store=self.store_kind())
        self.store: Mortal = self.site.store  # type: ignore[assignment]
        self.policies = Stepping(self.site.store, policies(fee_ppm=50_000))
        self.words: list[str] = []
        for number, host in enumerate("ab"):
            self.site.offer(host, gpus=2, at=1 + number, notice=timedelta(minutes=5))
        for number in range(victims):
            self.words.append(f"victim{number}")
            self.site.place(
                UNITS[number % 3],
                self.words[-1],
                limit="2",
                hours=9,
                service_class="interruptible",
                deadline=self.site.later(9.5),
            )
        self.settle()
        for word in self.leased():
            self.site.begin(word)
        if on_sale and victims:
            self.sell(self.leased()[0])
        self.wait(31)

    def draw(self, data: st.DataObject, words: list[str]) -> str:
        return data.draw(st.sampled_from(words))

    def attempt(self, act: Any) -> None:
        """Do what a person asks for; it may be refused, and the process may die."""
        try:
            act()
        except (Refusal, Killed):
            pass
        finally:
            self.store.left = None

    @rule(
        unit=st.sampled_from(UNITS),
        at=st.sampled_from(["2", "4", "9", "9", "20"]),
        hours=st.sampled_from([1, 2, 6]),
        gpus=st.integers(1, 2),
        kind=st.sampled_from(["interruptible", "interruptible", "on-demand", "reserved"]),
        slack=st.sampled_from([0, 1, 5]),
        patience=st.sampled_from(["immediate", "immediate", "patient"]),
    )
    def place(
        self, unit: str, at: str, hours: int, gpus: int, kind: Any, slack: int, patience: Any
    ) -> None:
        word = f"{unit}{len(self.words)}"
        self.words.append(word)
        self.site.place(
            unit,
            word,
            limit=at,
            hours=hours,
            gpus=gpus,
            service_class=kind,
            patience=patience,
            deadline=self.site.later(hours + slack + 0.1),
        )

    @precondition(lambda self: self.words)
    @rule(data=st.data(), at=st.sampled_from([None, "0.5", "1", "3", "9"]), gpus=st.integers(0, 2))
    def amend(self, data: st.DataObject, at: str | None, gpus: int) -> None:
        word = self.draw(data, self.words)
        self.attempt(lambda: self.site.change(word, limit=at, gpus=gpus or None))

    @precondition(lambda self: self.words)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.attempt(lambda: self.site.withdraw(self.draw(data, self.words)))

    @rule(
        host=st.sampled_from("ab"),
        what=st.sampled_from(["reprice", "reprice", "resume", "resume", "pause"]),
        at=st.sampled_from([1, 2]),
    )
    def change_supply(self, host: str, what: str, at: int) -> None:
        self.site.change_offer(host, what, at)

    def leased(self) -> list[str]:
        return [word for word in self.words if self.site.found_lease(word) is not None]

    @precondition(lambda self: self.leased())
    @rule(
        data=st.data(), what=st.sampled_from(["start", "reclaim", "close", "sell", "keep", "go on"])
    )
    def change_lease(self, data: st.DataObject, what: str) -> None:
        word = self.draw(data, self.leased())
        lease = self.site.lease_of(word)
        lease_id, now, store = lease.terms.lease_id, self.site.now, self.site.store
        said: dict[str, Any] = {"lease_id": lease_id, "by": somebody(), "now": now}
        match what:
            case "start":
                self.attempt(lambda: self.site.begin(word))
            case "reclaim":
                self.attempt(lambda: leases.reclaim_lease(store, owner_id=OWNER, **said))
            case "close":
                self.attempt(lambda: leases.close_lease(store, **said))
                self.stop(word)
            case "sell":
                self.sell(word)
            case "keep":
                self.attempt(lambda: leases.keep_rest_of_lease(store, **said))
            case "go on":
                until = lease.ends_at + timedelta(hours=1)
                self.attempt(lambda: leases.request_extension(store, ends_at=until, **said))

    def sell(self, word: str) -> None:
        said: dict[str, Any] = {"by": somebody(), "now": self.site.now}
        lease_id = self.site.lease_of(word).terms.lease_id
        self.attempt(
            lambda: leases.sell_rest(
                self.site.store, lease_id=lease_id, since=None, floor=rate(3), **said
            )
        )

    def stop(self, word: str) -> None:
        lease = self.site.lease_of(word)
        for host_id in lease.started - lease.stopped:
            leases.lease_stopped(
                self.site.store,
                lease_id=lease.terms.lease_id,
                host_id=host_id,
                exit_code=None,
                by=somebody(),
                now=self.site.now,
            )

    @rule(minutes=st.sampled_from([1, 16, 31, 70]))
    def wait(self, minutes: int) -> None:
        self.site.wait(minutes=minutes)
        for word in self.leased():
            leases.advance_lease(
                self.site.store,
                lease_id=self.site.lease_of(word).terms.lease_id,
                start_grace=START_GRACE,
                by=somebody(),
                now=self.site.now,
            )

    @rule(left=st.none() | st.integers(1, 3))
    def engine(self, left: int | None) -> None:
        self.store.left = left
        self.attempt(self.site.run)
        if left is not None:
            self.site.engine = self.site.new_engine()

    @rule(number=st.integers(0, 5), events=st.integers(1, 4), left=st.none() | st.integers(1, 5))
    def policy(self, number: int, events: int, left: int | None) -> None:
        self.store.left = left
        try:
            self.policies.step(number, events)
        except Killed:
            pass
        finally:
            self.store.left = None

    @rule(number=st.integers(0, 5), events=st.integers(1, 5))
    def forget(self, number: int, events: int) -> None:
        self.policies.forget(number, events)

    @invariant()
    def no_gpu_is_leased_twice_and_terms_are_kept(self) -> None:
        audit(self.site.events())

    def settle(self) -> None:
        for _ in range(60):
            made = self.site.run()
            if not self.policies.drain() and not made:
                return
        raise AssertionError("it goes on and on")

    def teardown(self) -> None:
        if not hasattr(self, "policies"):
            return
        self.settle()
        audit(self.site.events())
        self.filled_bids_have_leases_and_others_none()
        self.nobody_is_cut_for_nothing()
        self.holds_are_what_may_be_spent()
        self.the_book_is_what_a_new_engine_folds()

    def filled_bids_have_leases_and_others_none(self) -> None:
        filled = {
            each.event.lease_id for each in self.site.events() if isinstance(each.event, BidFilled)
        }
        scheduled = [
            each.event.lease_id
            for each in self.site.events()
            if isinstance(each.event, LeaseScheduled)
        ]
        assert sorted(scheduled) == sorted(filled)
        for lease_id in scheduled:
            lease = load(self.site.store, Lease, lease_id)
            assert lease is not None and (not lease.over or lease.ending_reason in REASONS)

    def nobody_is_cut_for_nothing(self) -> None:
        for word in self.leased():
            cut = self.site.lease_of(word).cut
            if cut is not None:
                assert load(self.site.store, Lease, claimed_for(cut)) is not None

    def holds_are_what_may_be_spent(self) -> None:
        for unit in UNITS:
            account, needed = self.site.account_of(unit), Money(0)
            assert account.available >= Money(0)
            for each in self.site.events():
                if not isinstance(each.event, BidPlaced) or each.event.account_id != (
                    self.site.account_id(unit)
                ):
                    continue
                bid = load(self.site.store, Bid, each.event.bid_id)
                assert bid is not None
                lease = None if bid.lease_id is None else load(self.site.store, Lease, bid.lease_id)
                if bid.state == "open":
                    needed += bid.hold
                elif lease is not None:
                    held = account.holds[bid.terms.hold_id]
                    assert lease.over or held.money >= lease.cost_at_most(ends_at=lease.ends_at)
                    needed += held.remaining
            assert account.held == needed

    def the_book_is_what_a_new_engine_folds(self) -> None:
        self.site.run()
        if self.site.engine._book is None:
            return
        fresh = self.site.new_engine(round_seconds=NEVER)
        fresh.run_once(now=self.site.now)
        assert fresh._book is not None
        assert fresh._book.leases.claims == {}
        assert contents(fresh._book) == contents(self.site.engine._book)


@pytest.mark.parametrize("kind", [Whole, Piecemeal])
def test_any_order(kind: type[Mortal]) -> None:
    _run(kind, histories=50)


@pytest.mark.soak
@pytest.mark.parametrize("kind", [Whole, Piecemeal])
def test_any_order_a_thousand_times(kind: type[Mortal]) -> None:
    _run(kind, histories=1_000)


def _run(kind: type[Mortal], *, histories: int) -> None:
    machine = type(f"Interleaving{kind.__name__}", (Interleaving,), {"store_kind": kind})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        ),
    )
