"""Policies in force: engines race, rounds are replayed, and previews say what bids then get."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.ids import AccountId, BidId, LeaseId, SubscriberId, TenantId
from ledger.domain.money import Money
from ledger.eventstore.port import Recorded
from marketplace.domain.bids.bid import BidTerms
from marketplace.domain.facts.events import (
    BidPlaced,
    GpuRequest,
    LeaseClosed,
    LeaseGranted,
    Patience,
    RoundCleared,
    Workload,
)
from marketplace.queries.books import preview
from marketplace.replay.round import replay_round
from tests.conftest import NOON
from tests.marketplace.quotas.governed_crowd import GovernedCrowd
from tests.marketplace.support.governed import Governed, unit_of
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import MARKET, OpenStore, named, rate
from tests.marketplace.support.policies import limit, quota

HOUR = timedelta(hours=1)


def most_at_once(log: Sequence[Recorded], unit: object) -> int:
    """Return the most GPUs that a unit ever holds at one time, from the facts alone."""
    bids = {r.event.bid_id: r.event for r in log if isinstance(r.event, BidPlaced)}
    closed: dict[LeaseId, datetime] = {}
    for recorded in log:
        match recorded.event:
            case LeaseClosed(lease_id=lease_id, at=at):
                closed[lease_id] = min(at, closed.get(lease_id, at))
            case LeaseGranted(cuts=cuts):  # what was borrowed may be taken back
                for cut in cuts:
                    ends = min(cut.ends_at, closed.get(cut.lease_id, cut.ends_at))
                    closed[cut.lease_id] = ends
    spans = []
    for recorded in log:
        event = recorded.event
        if isinstance(event, LeaseGranted) and bids[event.bid_id].subscriber_id == unit:
            ends = min(event.window.ends_at, closed.get(event.lease_id, event.window.ends_at))
            gpus = sum(len(share.gpu_uuids) for share in event.shares)
            spans.append((event.window.starts_at, ends, gpus))
    return max(
        (sum(g for s, e, g in spans if s <= at < e) for at, _, _ in spans),
        default=0,
    )


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_engines_that_race_never_give_more_than_quota(data: st.DataObject) -> None:
    store = OpenStore()
    market = Governed(store)
    market.offer("rack", gpus=8)
    market.govern(red=(2, 1), blue=(1, None))
    market.policy(quota("lab", 2))
    market.policy(limit("tenant", unit_of("blue"), gpus=4))
    rival = market.new_engine()
    names = list[BidId]()
    for number in range(data.draw(st.integers(3, 10))):
        unit = data.draw(st.sampled_from(["red", "blue"]))
        patience: Patience = data.draw(st.sampled_from(["immediate", "patient"]))
        gpus, hours = data.draw(st.integers(1, 4)), data.draw(st.sampled_from([1, 3, 30]))
        word = f"{unit} {number}"
        names.append(market.ask(unit, word, gpus, at=3, hours=hours, patience=patience))
        match data.draw(st.sampled_from(["race", "run", "wait", "rival", "end", "die"])):
            case "race":
                store.before = lambda: rival.run_once(now=market.now)
                market.run()
                store.before = None
            case "rival":
                rival.run_once(now=market.now)
            case "wait":
                market.wait(minutes=data.draw(st.integers(1, 300)))
            case "die":
                market.engine = market.new_engine()
            case "end":
                running = [name for name in names if str(name) in market.granted()]
                if running:
                    market.end(data.draw(st.sampled_from(running)))
                    names = [name for name in names if name not in running]
            case _:
                market.run()
    for _ in range(4):  # one pass may be fenced, and each reads what the one before it ended
        market.run()

    log = list(market.events())
    audit(log)
    assert most_at_once(log, unit_of("red")) <= 3
    assert most_at_once(log, unit_of("blue")) <= 4
    head = store.head()
    fresh = market.new_engine(round_seconds=10**10)
    fresh.run_once(now=market.now)
    assert store.head() == head, "it finds nothing that the others missed"
    assert fresh._book is not None and fresh._book.quotas is not None
    assert market.engine._book is not None and market.engine._book.quotas is not None
    assert fresh._book.quotas.uses == market.engine._book.quotas.uses


def rounds(market: Governed | GovernedCrowd) -> list[RoundCleared]:
    log = market.market if isinstance(market, GovernedCrowd) else market
    return [each.event for each in log.decisions() if isinstance(each.event, RoundCleared)]


def test_rounds_under_policies_are_replayed_whatever_policies_came_later() -> None:
    market = Governed()
    market.offer("rack", gpus=8)
    market.govern(red=(2, 1), blue=(4, 0))
    market.ask("red", "now", 2, hours=3)
    market.ask("blue", "much", 5)
    for number in range(3):
        market.ask("red", f"patient {number}", 1, at=3, patience="patient")
        market.ask("blue", f"quiet {number}", 2, at=2, patience="patient")
    market.run()
    held = market.ask("blue", "held", 1, hours=30)
    market.run()
    market.quota("red", 8, None)
    market.wait(minutes=2)
    market.run()
    market.end(held)
    market.wait(minutes=2)
    market.run()
    for policy in (quota("lab", 0), limit("bid", gpus=1, money=Money(0))):
        market.policy(policy)
    market.run()

    outcomes = {
        (each.lane, replay_round(market.store, market=MARKET, round_id=each.round_id).outcome)
        for each in rounds(market)
    }

    assert outcomes == {("instant", "identical"), ("round", "identical")}


@given(st.randoms(use_true_random=False))
@settings(max_examples=8, deadline=None)
def test_every_round_of_any_governed_market_replays_to_the_same_events(random: Random) -> None:
    crowd = GovernedCrowd(random)
    for _ in range(25):
        book = crowd.market.engine._book
        if book is not None:
            for _ in crowd.acts(book):
                pass
        crowd.market.run()

    for each in rounds(crowd):
        replayed = replay_round(crowd.market.store, market=MARKET, round_id=each.round_id)
        assert replayed.outcome == "identical", replayed.differences


def terms(unit: str, word: str, gpus: int, patience: Patience) -> BidTerms:
    tenant = TenantId(unit_of(unit))
    return BidTerms(
        bid_id=BidId(named(f"bid {word}")),
        tenant_id=tenant,
        subscriber_id=SubscriberId(tenant),
        user_id=None,
        account_id=AccountId(tenant),
        market=MARKET,
        request=GpuRequest(),
        gpus=gpus,
        placement="same-host",
        duration_seconds=3_600,
        earliest_start=NOON,
        deadline=NOON + 25 * HOUR,
        limit=rate(3),
        service_class="on-demand",
        patience=patience,
        workload=Workload(kind="other"),
    )


@pytest.mark.parametrize("patience", ["immediate", "patient"])
@pytest.mark.parametrize("gpus", [1, 3, 4])
def test_a_preview_says_what_the_bid_then_gets(patience: Patience, gpus: int) -> None:
    """Red has two GPUs and may borrow one more; it holds two for two hours."""
    market = Governed()
    market.offer("rack", gpus=8)
    market.govern(red=(2, 1), blue=(4, 0))
    market.ask("red", "held", 2, hours=2)
    market.ask("blue", "rival", 4, at=9, patience="patient")
    market.run()

    quote = preview(market.store, terms=terms("red", "x", gpus, patience), now=market.now)
    market.ask("red", "x", gpus, at=3, patience=patience)
    market.wait(seconds=61 if patience == "patient" else 0)
    market.run()

    granted = market.grant("x")
    if gpus == 4:
        assert (quote.price, granted) == (None, None)
        assert quote.explanation.reason == "quota"
        return
    assert granted is not None and quote.window is not None
    assert quote.price == granted.price
    late = granted.window.starts_at - quote.window.starts_at
    assert timedelta(0) <= late <= timedelta(seconds=61)
