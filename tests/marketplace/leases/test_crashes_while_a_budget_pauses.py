"""A budget is reached, killed after any write and asked again: work is paused and resumed once.

People are told, the work saves itself and is paused with its owners' notice, waits for the budget,
goes on by itself after a grant or in the next period, and is charged for what it ran, once.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from ledger.commands.money import capture_usage
from ledger.domain.events import TenantRegistered, UsageCaptured
from ledger.domain.money import NANOS_PER_UNIT, Money
from ledger.domain.notice_events import NoticeGiven
from ledger.domain.parties import PLATFORM_ID, Tenant
from ledger.domain.span import Window
from ledger.eventstore.port import Expect, NewEvent, load
from marketplace import budgeting, money_notices, telling
from marketplace.commands import chains, leases
from marketplace.commands.spending import (
    ask_spending_grant,
    decide_spending_grant,
    note_spending,
    set_spending_budget,
)
from marketplace.domain.bids.bid import Bid
from marketplace.domain.facts import close_reasons
from marketplace.domain.facts.events import (
    BidAwaitsMoney,
    BidPlaced,
    LeaseClosed,
    LeaseInterrupted,
    Workload,
)
from marketplace.domain.spending.budgets import Counted, CountedUpTo
from marketplace.domain.spending.events import (
    SpendingDrawn,
    SpendingGrantAsked,
    SpendingThresholdMet,
    Threshold,
)
from marketplace.domain.spending.periods import period_at
from marketplace.policies import policies
from tests.conftest import NOON
from tests.marketplace.support.going import Going
from tests.marketplace.support.interleaving import Killed, Mortal, Piecemeal, Stepping, Whole
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import OWNER, named, somebody
from tests.marketplace.support.site import ACCOUNT, BID, HOUR, TENANT
from tests.marketplace.support.spending import PERSON, SECOND, budget, usd

WRITES_MAX = 100
"""More than all of it has."""
SAVES = Workload(kind="training", checkpoint_seconds=60)
JANUARY = period_at("month", NOON)
JOINED = TenantRegistered(
    tenant_id=TENANT, slug="a", title="A", currency="USD", is_platform=False, at=NOON
)
TERMS = replace(
    budget(
        amount=30,
        thresholds=(Threshold(800_000, "notify"), Threshold(1_000_000, "pause")),
        tenant_id=TENANT,
    ),
    at=NOON,
)


class Limited(Going):
    """Work at 6 an hour for 4 hours, under a budget of 30 a month of which storage takes 24."""

    def __init__(self, kind: type[Mortal]) -> None:
        super().__init__(funds=1_000, store=kind())
        told = telling.policies(clock=lambda: self.now)
        react = (*policies(fee_ppm=50_000), *budgeting.POLICIES, *money_notices.POLICIES, *told)
        self.following = Stepping(self.store, react)
        for tenant_id in (TENANT, OWNER):
            joined = NewEvent(uuid4(), replace(JOINED, tenant_id=tenant_id))
            stream = f"{Tenant.STREAM}-{tenant_id}"
            self.store.append(stream, [joined], expected=Expect.ANY, by=somebody())
        set_spending_budget(self.store, terms=TERMS, by=somebody())
        window = (NOON, NOON + 60 * 24 * HOUR)
        self.offer("a", gpus=2, at=3, notice=timedelta(minutes=5), windows=[window])
        self.want(
            duration_seconds=4 * 3_600,
            pausable=True,
            workload=SAVES,
            deadline=NOON + timedelta(days=28),
        )
        self.begin()
        self.go()

    def go(self) -> None:
        for _ in range(30):
            made = self.run()
            if not self.following.drain() and not made:
                return
        raise AssertionError("it goes on and on")

    def until(self, moment: datetime) -> None:
        self.now = max(self.now, moment)

    def charge(self, number: int, since: datetime, until: datetime) -> None:
        lease, span = self.lease_at(number), Window(since, until)
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

    def look(self) -> None:
        """Tell the budget what there is to count, as its loop does: of bids that were placed."""
        spent, drawn = {JANUARY.starts_at: usd(24).nanos}, 0
        for each in self.events():
            if isinstance(each.event, SpendingDrawn) and load(self.store, Bid, each.event.bid_id):
                drawn = each.event.number
            if isinstance(each.event, UsageCaptured):
                of = period_at("month", each.event.window.starts_at.astimezone(UTC)).starts_at
                spent[of] = spent.get(of, 0) + each.event.charged.nanos
        held = sum(
            hold.remaining.nanos
            for hold_id, hold in self.account.holds.items()
            if not hold.released and load(self.store, Bid, hold_id)
        )
        note_spending(
            self.store,
            tenant_id=TENANT,
            counted=[Counted(TERMS.budget_id, spent, held)],
            up_to=CountedUpTo(drawn=drawn, through=self.store.head()),
            by=somebody(),
            now=self.now,
        )
        self.go()

    def widen(self) -> None:
        asked = SpendingGrantAsked(
            tenant_id=TENANT,
            budget_id=TERMS.budget_id,
            grant_id=named("grant"),
            money=usd(40),
            starts_at=self.now,
            until=JANUARY.ends_at,
            why="a deadline",
            alone=False,
            by=PERSON,
            at=self.now,
        )
        ask_spending_grant(self.store, asked=asked, by=somebody())
        decide_spending_grant(
            self.store,
            tenant_id=TENANT,
            budget_id=TERMS.budget_id,
            grant_id=asked.grant_id,
            approved=True,
            user_id=SECOND,
            by=somebody(),
            now=self.now,
        )
        self.go()

    def end(self, number: int, *, exit_code: int | None = None) -> None:
        lease = self.lease_at(number)
        if not lease.over:
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
        self.go()
        since = NOON + HOUR if number == 1 else lease.starts_at
        self.charge(number, since, self.lease_at(number).right_ends_at)
        super().settle(number)
        self.go()


def live(site: Limited, *, by_grant: bool) -> None:
    """Go through all of it, skipping what is done already."""
    site.go()
    site.until(NOON + HOUR)
    if not site.lease_at(1).over:
        site.charge(1, NOON, NOON + HOUR)
        site.look()
        stop_at = site.lease_at(1).stop_at
        assert stop_at is not None
        site.until(stop_at)
    site.end(1)
    site.look()
    chains.go_on_with_money(site.store, bid_id=BID, by=somebody(), now=site.now)
    site.go()
    if by_grant:
        if site.at(2) is None:
            site.widen()
    else:
        site.until(JANUARY.ends_at + timedelta(minutes=1))
        site.look()
    chains.go_on_with_money(site.store, bid_id=BID, by=somebody(), now=site.now)
    site.go()
    second = site.lease_at(2)
    if second.state in ("scheduled", "starting"):
        site.begin(2)
    site.until(second.ends_at - timedelta(minutes=1))
    site.end(2, exit_code=0)
    site.look()


@pytest.mark.parametrize("by_grant", [True, False], ids=["grant", "next-period"])
@pytest.mark.parametrize("kind", [Whole, Piecemeal])
def test_it_is_told_paused_and_resumed_once_and_charged_once(
    kind: type[Mortal], by_grant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for writes in range(1, WRITES_MAX):
        site = Limited(kind)
        monkeypatch.setattr(budgeting, "running_under", lambda _, at=site: running(at))
        store = site.store
        assert isinstance(store, Mortal)
        store.left, died = writes, False
        for _ in range(3):
            try:
                live(site, by_grant=by_grant)
                break
            except Killed:
                died, site.engine = True, site.new_engine()
        store.left = None

        events = [each.event for each in site.events()]
        met = [each for each in events if isinstance(each, SpendingThresholdMet)]
        assert [each.action for each in met if each.period_starts_at == JANUARY.starts_at] == [
            "notify", "pause",
        ]  # fmt: skip
        [told] = [each for each in events if isinstance(each, LeaseInterrupted)]
        assert (told.pausing, told.in_favour_of, told.compensations) == (True, told.lease_id, ())
        assert told.stop_at >= told.at + timedelta(minutes=5)
        titles = [each.title for each in events if isinstance(each, NoticeGiven)]
        assert titles.count("Budget budget: 100 % reached") == 1
        assert sum("paused at" in each for each in titles) == 1
        assert sum("Work waits for the budget budget" in each for each in titles) == 1
        assert titles.count("Work goes on that waited for money") == 1
        closed = [each.reason for each in events if isinstance(each, LeaseClosed)]
        assert closed == [close_reasons.BUDGET_REACHED, close_reasons.WORK_DONE]
        [waits] = [each for each in events if isinstance(each, BidAwaitsMoney)]
        assert (waits.budget, waits.opens_at) == ("budget", JANUARY.ends_at)
        assert waits.until > JANUARY.ends_at
        assert len([each for each in events if isinstance(each, BidPlaced)]) == 2
        assert site.held() == Money(0)
        ran = timedelta()
        for number in (1, 2):
            ran += site.lease_at(number).right_ends_at - site.lease_at(number).starts_at
        assert ran >= 4 * HOUR - timedelta(minutes=1)
        left = 1_000 * NANOS_PER_UNIT - 6 * NANOS_PER_UNIT * ran // HOUR
        assert site.account.available == Money(left), "charged once"
        audit(site.events())
        if not died:
            return
    raise AssertionError("it never came to an end")


def running(site: Limited) -> list[object]:
    """Return the leases that hold money, as the read model has them."""
    found = [site.at(number) for number in (1, 2)]
    return [
        bid.lease_id
        for number, bid in enumerate(found, 1)
        if bid is not None and bid.lease_id is not None and not site.lease_at(number).over
    ]
