"""Out of money, killed after any write and asked again: warned, saved, paused and resumed once.

Work is told before its granted time is over, ends with it and no sooner, waits, goes on by itself
after a top-up, and finishes; its charges are those of a market in which nobody was killed.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from ledger.commands.money import add_funds, capture_usage
from ledger.domain.accounts import FundsInsufficient
from ledger.domain.ids import EntryId
from ledger.domain.money import NANOS_PER_UNIT, Money
from ledger.domain.parties import PLATFORM_ID
from ledger.domain.span import Window
from marketplace.commands import chains, leases
from marketplace.commands.extending import extend_when_due
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import (
    BidAwaitsMoney,
    BidPlaced,
    ExtensionRefused,
    LeaseClosed,
    LeaseEnding,
    Workload,
)
from marketplace.policies import policies
from tests.conftest import NOON
from tests.marketplace.support.going import Going
from tests.marketplace.support.interleaving import Killed, Mortal, Piecemeal, Stepping, Whole
from tests.marketplace.support.market import OWNER, named, somebody
from tests.marketplace.support.site import ACCOUNT, BID, HOUR

WRITES_MAX = 80
"""More than all of it has."""
SAVES = Workload(kind="training", checkpoint_seconds=60)


class Short(Going):
    """Work at 6 an hour that goes on by itself; its account has 13: two hours of it, not three."""

    def __init__(self, kind: type[Mortal]) -> None:
        super().__init__(funds=13, store=kind())
        self.following = Stepping(self.store, policies(fee_ppm=50_000))
        self.offer("a", gpus=2, at=3, windows=[(NOON, NOON + 60 * 24 * HOUR)])
        self.want(
            duration_seconds=2 * 3_600,
            auto_extend_until=NOON + 4 * HOUR,
            resume=True,
            workload=SAVES,
        )
        self.begin()
        self.go()

    def go(self) -> None:
        for _ in range(30):
            made = self.run()
            if not self.following.drain() and not made:
                return
        raise AssertionError("it goes on and on")

    def until(self, hours: float) -> None:
        self.now = max(self.now, NOON + timedelta(hours=hours))

    def ask_for_more(self, number: int) -> None:
        with suppress(FundsInsufficient):
            lease_id = self.lease_at(number).terms.lease_id
            extend_when_due(self.store, lease_id=lease_id, by=somebody(), now=self.now)
        self.go()

    def end(self, number: int, *, exit_code: int | None = None) -> None:
        if not self.lease_at(number).over:
            lease = self.lease_at(number)
            self.clock(lease)
            for host_id in lease.hosts:
                leases.lease_stopped(
                    self.store,
                    lease_id=lease.terms.lease_id,
                    host_id=host_id,
                    exit_code=exit_code,
                    by=somebody(),
                    now=self.now,
                )
        self.settle(number)
        self.go()

    def settle(self, number: int = 1) -> None:
        """Charge all the granted time of a lease, then give back what is left of its hold."""
        lease = self.lease_at(number)
        span = Window(lease.starts_at, lease.right_ends_at)
        capture_usage(
            self.store,
            account_id=ACCOUNT,
            hold_id=lease.terms.hold_id,
            lease_id=lease.terms.lease_id,
            window=span,
            gpu_millis=span.millis * lease.gpus,
            price=lease.terms.price,
            fee_ppm=lease.terms.fee_ppm,
            owner_millis=[(OWNER, span.millis * lease.gpus)],
            platform_id=PLATFORM_ID,
            cost_centre="",
            by=somebody(),
            now=self.now,
        )
        super().settle(number)

    def top_up(self) -> None:
        add_funds(
            self.store,
            account_id=ACCOUNT,
            entry_id=EntryId(named("top-up")),
            money=Money(20 * NANOS_PER_UNIT),
            reference="top-up",
            platform_id=PLATFORM_ID,
            by=somebody(),
            now=self.now,
        )
        chains.go_on_with_money(self.store, bid_id=BID, by=somebody(), now=self.now)
        self.go()


def live(site: Short) -> None:
    """Go through all of it, skipping what is done already."""
    site.go()
    site.until(1 + 50 / 60)
    if site.at(2) is None and not site.lease_at(1).over:
        site.ask_for_more(1)
    site.until(2)
    site.end(1)
    site.until(2.5)
    site.top_up()
    second = site.lease_at(2)
    if second.state in ("scheduled", "starting"):
        site.begin(2)
    site.until(3)
    site.end(2, exit_code=0)


@pytest.mark.parametrize("kind", [Whole, Piecemeal])
def test_it_is_warned_paused_and_resumed_once_and_never_ended_sooner(kind: type[Mortal]) -> None:
    for writes in range(1, WRITES_MAX):
        site = Short(kind)
        store = site.store
        assert isinstance(store, Mortal)
        store.left, died = writes, False
        for _ in range(3):
            try:
                live(site)
                break
            except Killed:
                died, site.engine = True, site.new_engine()
        store.left = None

        events = [each.event for each in site.events()]
        [warned] = [each for each in events if isinstance(each, ExtensionRefused)]
        assert (warned.reason, warned.pausing) == ("funds-insufficient", True)
        [ending, _] = [each for each in events if isinstance(each, LeaseEnding)]
        assert ending.reason == close_reasons.AWAITS_MONEY
        assert warned.at < ending.at, "it is told first"
        assert ending.at >= NOON + 2 * HOUR, "it has all its granted time"
        [waits] = [each for each in events if isinstance(each, BidAwaitsMoney)]
        assert waits.bid_id == BID
        placed = [each for each in events if isinstance(each, BidPlaced)]
        assert len(placed) == 2, "what follows is asked for once"
        closed = [each.reason for each in events if isinstance(each, LeaseClosed)]
        assert closed == [close_reasons.AWAITS_MONEY, close_reasons.WORK_DONE]
        assert site.bid_at(2).chain_ended == "done"
        assert site.held() == Money(0)
        left = 33 - 6 * (2 + 0.5)
        assert site.account.available == Money(round(left * NANOS_PER_UNIT)), "charged once"
        if not died:
            return
    raise AssertionError("it never came to an end")
