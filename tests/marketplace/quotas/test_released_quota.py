"""What quotas give back is offered to all whom they kept waiting, and to nobody else in vain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID, uuid5

import pytest

from ledger.domain.event import Event
from ledger.domain.ids import SubscriberId, TenantId
from listings.domain.events import OfferPublished
from marketplace.domain.book.snapshot import restored, state_of
from marketplace.domain.clearing import fills
from marketplace.domain.decisions import decide
from marketplace.domain.facts.events import BidPlaced, LeaseClosed, LeaseGranted
from marketplace.domain.facts.policy_events import LimitSet, QuotaSet, UnitPlaced
from tests.benchmarks import instant
from tests.benchmarks.instant import NAMES, NOON, Lane
from tests.marketplace.support.market import Market
from tests.marketplace.support.odd_traffic import OddTraffic
from tests.marketplace.support.plain_book import PlainBook

TENANTS = [TenantId(uuid5(NAMES, f"tenant {number}")) for number in range(3)]
BIDS, ACTS = 50, 60


@dataclass
class Ruled(OddTraffic):
    """Bids of three organisations with one unit each, and offers that not all may take."""

    def offer(self) -> OfferPublished:
        """Return an offer."""
        return replace(super().offer(), lease_min_seconds=self.random.choice((900, 7_200, 20_000)))

    def bid(self, worth: float = 1.0) -> BidPlaced:
        """Return a new bid."""
        bid = super().bid(worth)
        if bid.tenant_id != UUID(int=NAMES.int):
            return bid  # of who owns the GPUs
        tenant = self.random.choice(TENANTS)
        return replace(bid, tenant_id=tenant, subscriber_id=SubscriberId(tenant))

    def policy(self) -> Event:
        """Return a limit of an organisation, or a quota of its unit."""
        tenant, gpus = self.random.choice(TENANTS), self.random.choice((0, 2, 8, 30, None))
        match self.random.randrange(3):
            case 0:
                return UnitPlaced(
                    market="main",
                    subscriber_id=SubscriberId(tenant),
                    tenant_id=tenant,
                    cohort=None,
                    at=NOON,
                )
            case 1:
                return QuotaSet(
                    market="main",
                    node=str(tenant),
                    gpu_class="any",
                    nominal=gpus,
                    borrowing=self.random.choice((0, 8, None)),
                    lending=None,
                    at=NOON,
                )
            case _:
                return LimitSet(
                    market="main",
                    scope="tenant",
                    subject=tenant,
                    tenant_id=tenant,
                    gpus=gpus,
                    memory_mib=None,
                    gpu_hours=None,
                    money=None,
                    period="day",
                    at=NOON,
                )


def facts(random: Random, lane: Lane) -> Iterator[Event]:
    """Yield bids that wait, then offers, leases that end early, more bids, and other policies."""
    traffic = Ruled(random)
    yield traffic.policy()
    for _ in range(BIDS):
        yield traffic.bid()
    for _ in range(ACTS):
        what = random.choice(("offer", "close", "close", "close", "bid", "policy"))
        book = lane.book
        if what == "close" and book.held:
            granted = book.held[random.choice(sorted(book.held))].granted
            yield LeaseClosed(
                lease_id=granted.lease_id,
                market=book.market,
                reason=101,
                failed=False,
                compensation=None,
                compensation_from=None,
                at=granted.window.starts_at + granted.window.length / 3,
            )
        elif what == "policy":
            yield traffic.policy()
        else:
            yield traffic.offer() if what == "offer" else traffic.bid()


@pytest.mark.parametrize("seed", range(30))
def test_who_waits_is_served_as_by_trying_everybody(seed: int) -> None:
    random = Random(seed)
    fast, plain, grants = Lane(), Lane(PlainBook("main")), 0

    for number, event in enumerate(facts(random, fast)):
        decided = fast.take_in(event)

        assert decided == plain.take_in(event)
        grants += sum(isinstance(each, LeaseGranted) for each in decided)
        if number % 37 == 36:  # an engine that starts anew knows nothing of who found no place
            fast.book = restored(state_of(fast.book))
    assert grants


def test_who_waits_for_quota_is_not_forgotten_when_other_supply_does_not_suit() -> None:
    market, tenant = Market(), TENANTS[0]
    market.put(
        "quotas-main",
        LimitSet(
            market="main", scope="tenant", subject=tenant, tenant_id=tenant, gpus=1,
            memory_mib=None, gpu_hours=None, money=None, period="day", at=market.now,
        ),
    )  # fmt: skip
    market.offer("suits", gpus=2)
    market.bid("first", tenant=tenant, hours=30)
    market.bid("held back", tenant=tenant, hours=1)
    market.run()
    market.offer("only long leases", at="0.50", lease_min=timedelta(hours=20))
    market.run()
    assert market.grant("held back") is None

    market.close("first")
    market.run()

    assert market.grant("held back") is not None


def test_nothing_is_learnt_from_what_broke_off(monkeypatch: pytest.MonkeyPatch) -> None:
    lane, traffic = Lane(), Ruled(Random(2))
    for event in (traffic.policy(), *[traffic.bid() for _ in range(BIDS)]):
        lane.take_in(event)
    known = set(lane.book.queue.placeless)
    decided, broken = fills.decided, list[int]()

    def breaks_at_first(*args: Any, **named: Any) -> Any:
        if not broken:
            broken.append(1)
            raise ArithmeticError
        return decided(*args, **named)

    monkeypatch.setattr(decide, "decided", breaks_at_first)
    monkeypatch.setattr(instant, "_breaks_off", lambda bid_id, unsound: None)
    lane.take_in(traffic.policy())

    assert known and broken
    assert not lane.book.queue.placeless
