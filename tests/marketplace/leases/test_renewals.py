"""Standing demand and resumed work: bids that follow one another, each with its own hold."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from config.demo.pump import Pump
from ledger.domain.ids import BidId, HoldId
from ledger.domain.money import NANOS_PER_UNIT, Money
from marketplace.commands import bids, chains, leases
from marketplace.domain.bids import abilities
from marketplace.domain.bids.bid import BidStandsAlone
from marketplace.domain.bids.bounds import (
    DEADLINE_AHEAD_MAX,
    REPEAT_AHEAD_MAX,
    RESUMES_LEASE,
    RepeatOutOfBounds,
    RepeatWaits,
)
from marketplace.domain.facts.events import Workload
from marketplace.domain.leases.renewals import RETRY_AFTER, next_id
from marketplace.policies import policies
from tests.conftest import NOON
from tests.marketplace.support.going import Going
from tests.marketplace.support.going import site as site
from tests.marketplace.support.market import OWNER, rate, somebody
from tests.marketplace.support.site import BID, HOUR, TERMS, memory


def run_through(site: Going, number: int) -> None:
    """Let the lease of a bid run from now to its end."""
    site.begin(number)
    site.now = site.lease_at(number).ends_at
    site.stop(number)


def test_a_standing_bid_is_placed_again_after_each_lease_until_its_date(site: Going) -> None:
    site.want(repeat_until=NOON + 11 * HOUR)

    run_through(site, 1)
    run_through(site, 2)

    spans = [site.lease_at(number).terms.window for number in (1, 2)]
    assert [(each.starts_at - NOON, each.length) for each in spans] == [
        (timedelta(), 4 * HOUR),
        (4 * HOUR, 4 * HOUR),
    ]
    assert site.bid_at(2).chain_ended == "until"
    assert site.at(3) is None
    assert site.held() == Money(0)


def test_each_bid_of_a_chain_has_a_hold_of_its_own(site: Going) -> None:
    site.want(repeat_until=NOON + 24 * HOUR)
    run_through(site, 1)

    second = site.bid_at(2)

    assert second.terms.hold_id == HoldId(second.terms.bid_id)
    assert site.held() == Money(8 * NANOS_PER_UNIT)
    link = second.terms.continues
    assert link is not None
    assert (link.first_id, link.bid_id, link.number, link.resumes) == (BID, BID, 2, False)
    assert link.lease_id == site.lease_at(1).terms.lease_id


def test_work_that_is_cut_short_goes_on_for_the_rest_of_its_time(site: Going) -> None:
    site.offer("b", gpus=2, at=1)
    site.want(
        resume=True,
        service_class="interruptible",
        workload=Workload("other", command=("x",), checkpoint_seconds=1),
    )
    site.begin()
    site.wait(hours=1)
    site.reclaim_at()
    site.wait(minutes=5)

    site.stop()

    second = site.bid_at(2)
    rest = 3 * HOUR - timedelta(minutes=5)
    assert second.terms.duration_seconds == rest // timedelta(seconds=1)
    assert second.deadline == site.bid_at(1).deadline
    assert dict(second.terms.workload.environment) == {
        RESUMES_LEASE: str(site.lease_at(1).terms.lease_id)
    }
    assert second.terms.workload.command == ("x",)
    assert site.lease_at(2).terms.window.length == rest


def test_work_goes_on_after_every_interruption_until_all_its_time_is_had(site: Going) -> None:
    for word in "bcd":
        site.offer(word, gpus=2, at=1)
    site.want(resume=True, workload=Workload("other", checkpoint_seconds=1))
    for number in (1, 2, 3):
        site.begin(number)
        site.wait(minutes=55)
        site.reclaim_at(number)
        site.wait(minutes=5)
        site.stop(number)
    run_through(site, 4)

    lengths = [site.bid_at(number).terms.duration_seconds // 3600 for number in (1, 2, 3, 4)]
    assert lengths == [4, 3, 2, 1]
    assert site.bid_at(4).chain_ended == "done"
    assert site.at(5) is None


def test_standing_work_is_resumed_first_and_then_asked_for_whole_again(site: Going) -> None:
    site.offer("b", gpus=2, at=1, windows=[(NOON, NOON + timedelta(days=9))])
    site.want(resume=True, repeat_until=NOON + 48 * HOUR)
    site.begin()
    site.wait(minutes=55)
    site.reclaim_at()
    site.wait(minutes=5)
    site.stop()
    run_through(site, 2)

    third = site.bid_at(3)
    assert third.terms.duration_seconds == 4 * 3_600
    assert third.terms.deadline == NOON + 48 * HOUR


@pytest.mark.parametrize(("exit_code", "told"), [(0, "done"), (1, "failed"), (None, "consumer")])
def test_nothing_resumes_work_that_ended_by_itself_or_by_its_consumer(
    site: Going, exit_code: int | None, told: str
) -> None:
    site.want(resume=True)
    site.begin()
    site.wait(hours=1)
    if exit_code is None:
        leases.close_lease(
            site.store, lease_id=site.lease_at(1).terms.lease_id, by=somebody(), now=site.now
        )

    site.stop(exit_code=exit_code)

    assert site.bid_at(1).chain_ended == told
    assert site.at(2) is None


def test_after_a_fault_the_only_host_is_asked_again_a_little_later(site: Going) -> None:
    site.want(resume=True)
    site.clock(site.lease_at(1))
    site.wait(minutes=10)
    site.clock(site.lease_at(1))

    site.stop()

    second = site.bid_at(2)
    assert second.terms.earliest_start == site.now
    assert second.terms.duration_seconds == 4 * 3_600
    assert site.lease_at(2).starts_at == site.now + RETRY_AFTER


def test_a_budget_is_that_of_the_whole_chain(site: Going) -> None:
    site.want(repeat_until=NOON + 48 * HOUR, budget=Money(12 * NANOS_PER_UNIT))

    run_through(site, 1)
    second = site.bid_at(2)
    site.wait(hours=1)
    site.go()

    assert second.terms.budget == Money(4 * NANOS_PER_UNIT)
    assert site.held() == Money(4 * NANOS_PER_UNIT)
    # What is left pays half of the floor, so the bid waits and costs nothing.
    assert site.bid_at(2).state == "open"


def test_a_spent_budget_ends_the_chain(site: Going) -> None:
    site.want(repeat_until=NOON + 48 * HOUR, budget=Money(8 * NANOS_PER_UNIT))

    run_through(site, 1)

    assert site.bid_at(1).chain_ended == "budget"
    assert site.at(2) is None


def test_it_waits_for_the_rest_of_the_last_hold_where_the_account_covers_only_one() -> None:
    site = Going(funds=24)
    site.offer("a", gpus=2, at=1)
    site.want(repeat_until=NOON + 24 * HOUR)
    site.begin()
    site.now = site.lease_at(1).ends_at

    site.stop(pays=False)
    between = site.at(2)
    site.settle()
    site.go()

    assert between is None
    assert site.bid_at(1).chain_ended == ""
    assert site.bid_at(2).terms.continues is not None


def test_a_chain_waits_where_its_account_does_not_cover_the_next_hold() -> None:
    site = Going(funds=24)
    site.offer("a", gpus=2, at=1)
    site.want(repeat_until=NOON + 24 * HOUR)
    bids.place_bid(
        site.store,
        terms=replace(
            TERMS, bid_id=BidId(next_id(next_id(BID))), gpus=1, deadline=NOON + 99 * HOUR
        ),
        by=somebody(),
        now=site.now,
    )

    run_through(site, 1)

    first = site.bid_at(1)
    assert first.chain_ended == ""
    assert first.awaits is not None
    assert first.awaits.needs == Money(24 * NANOS_PER_UNIT)
    assert site.at(2) is None


def test_a_bid_that_expires_is_placed_again_where_its_date_lies_farther() -> None:
    site = Going()
    site.want(repeat_until=NOON + timedelta(days=40))
    assert site.bid_at(1).deadline == NOON + DEADLINE_AHEAD_MAX

    site.now = NOON + DEADLINE_AHEAD_MAX
    site.go()

    assert site.bid_at(1).state == "expired"
    assert site.bid_at(2).deadline == NOON + timedelta(days=40)
    assert site.held() == Money(24 * NANOS_PER_UNIT)


def test_ending_a_chain_withdraws_what_waits_and_lets_run_what_runs(site: Going) -> None:
    site.want(repeat_until=NOON + 24 * HOUR)
    site.begin()

    chains.end_chain(site.store, bid_id=BID, by=somebody(), now=site.now)
    chains.end_chain(site.store, bid_id=BID, by=somebody(), now=site.now)
    running = site.lease_at(1).state
    site.now = site.lease_at(1).ends_at
    site.stop()

    assert running == "active"
    assert site.bid_at(1).chain_ended == "consumer"
    assert site.at(2) is None


def test_ending_a_chain_by_its_first_bid_withdraws_the_last(site: Going) -> None:
    site.want(repeat_until=NOON + 24 * HOUR)
    run_through(site, 1)
    site.change_offer("a", "withdraw")

    chains.end_chain(site.store, bid_id=BID, by=somebody(), now=site.now)
    site.go()

    assert site.bid_at(2).chain_ended == "consumer"
    assert site.bid_at(2).lease_id is not None or site.bid_at(2).state == "cancelled"


def test_withdrawing_a_bid_ends_its_chain() -> None:
    site = Going()
    site.want(repeat_until=NOON + 24 * HOUR)

    bids.cancel_bid(site.store, bid_id=BID, by=somebody(), now=site.now)
    site.go()

    assert site.at(2) is None
    assert site.held() == Money(0)


def test_a_chain_ended_while_its_next_bid_is_placed_has_it_withdrawn(site: Going) -> None:
    """The policy read the bid, then the consumer ended the chain, then the next was placed."""
    site.want(repeat_until=NOON + 24 * HOUR)
    site.begin()
    site.now = site.lease_at(1).ends_at
    site.stop(pays=False)
    site.settle()
    store = memory(site.store)
    assert site.at(2) is not None
    ended = site.bid_at(1).end_chain(because="consumer", now=site.now)

    site.put(f"bid-{BID}", ended[0])
    Pump(store, policies(fee_ppm=50_000)).run()

    assert site.bid_at(2).chain_ended == "consumer"


def test_every_policy_may_run_again_from_the_start(site: Going) -> None:
    site.want(resume=True, repeat_until=NOON + 24 * HOUR)
    run_through(site, 1)
    head = site.store.head()

    Pump(memory(site.store), policies(fee_ppm=50_000)).run()

    assert site.store.head() == head


def test_a_single_bid_has_no_chain_to_end(site: Going) -> None:
    site.want()

    with pytest.raises(BidStandsAlone):
        chains.end_chain(site.store, bid_id=BID, by=somebody(), now=site.now)


@pytest.mark.parametrize(
    ("until", "good_till", "refusal"),
    [
        (NOON + HOUR, "good-till-deadline", RepeatOutOfBounds),
        (NOON + REPEAT_AHEAD_MAX + HOUR, "good-till-deadline", RepeatOutOfBounds),
        (NOON + 24 * HOUR, "fill-or-kill", RepeatWaits),
    ],
)
def test_what_cannot_stand_is_refused(
    site: Going, until: datetime, good_till: Any, refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        site.want(repeat_until=until, good_till=good_till)

    assert site.held() == Money(0)


def test_own_gpus_serve_a_chain_for_nothing(site: Going) -> None:
    site.want(tenant_id=OWNER, repeat_until=NOON + 24 * HOUR, limit=rate("0.5"))
    run_through(site, 1)

    first = site.lease_at(1)
    assert first.terms.price == rate(0)
    assert site.lease_at(2).terms.price == rate(0)
    assert site.held() == Money(0)


def test_what_follows_runs_the_commit_that_was_fetched_whatever_became_of_the_branch(
    site: Going, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abilities, "NEEDS", ())  # the host here says nothing of itself
    address, first = "git+https://git.example/lab/train", "a" * 40
    site.want(
        resume=True,
        service_class="interruptible",
        repeat_until=NOON + 40 * HOUR,
        workload=Workload("other", command=("x",), checkpoint_seconds=1, fetch=f"{address}#src"),
    )
    site.begin(commit=first)
    site.wait(hours=1)
    site.reclaim_at()
    site.wait(minutes=5)
    site.stop()

    assert site.bid_at(1).terms.workload.fetch == f"{address}#src"
    assert site.bid_at(2).terms.workload.fetch == f"{address}@{first}#src"

    site.begin(2)  # its host tells no commit, as one would whose work never began
    site.wait(minutes=30)
    site.stop(2, exit_code=0)
    third = site.bid_at(3)
    assert third.terms.continues is not None and not third.terms.continues.resumes
    assert third.terms.workload.fetch == f"{address}@{first}#src"
