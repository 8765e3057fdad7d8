"""No lease is interrupted for another bid before its least running time: a policy of the market."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from marketplace.domain.book.snapshot import restored, state_of
from marketplace.domain.decisions.decide import on_round
from marketplace.domain.facts.events import LeaseGranted, RoundCleared
from marketplace.domain.facts.instants import from_above
from marketplace.domain.facts.policy_events import CohortPlaced, HalfLifeSet, LeastRunSet
from marketplace.domain.preemption.interrupt import VICTIMS_MAX
from marketplace.domain.quotas.minimum_runtime import LeastRuns
from marketplace.domain.verification.verify_round import faults
from marketplace.queries.books import book_of as lent_book
from marketplace.replay.round import replay_round
from tests.conftest import NOON
from tests.marketplace.support.borrowed import Lent
from tests.marketplace.support.borrowed_in_rounds import rounds
from tests.marketplace.support.early_rounds import let_pass
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import MARKET, Market
from tests.marketplace.support.minimum_runtime import HOUR, MINUTE, least_run, soft, told, tried
from tests.marketplace.support.minimum_runtime import market as market
from tests.marketplace.support.preemption import NOTICE, firm
from tests.marketplace.support.preemption_in_rounds import patient, rounded
from tests.marketplace.support.rounds import ROUND, book_of, no_fault
from tests.marketplace.verification.victim_order import in_turn as in_turn

pytestmark = pytest.mark.usefixtures("in_turn")


@pytest.mark.parametrize("lane", ["immediate", "patient"])
@pytest.mark.parametrize("length", [2 * HOUR, 30 * MINUTE, 17 * MINUTE])
def test_a_lease_has_the_time_that_the_policy_gives(
    market: Market, lane: str, length: timedelta
) -> None:
    least_run(market, length)
    soft(market)
    market.wait(minutes=10)

    bid = patient if lane == "patient" else firm
    bid(market, at=9, deadline=market.now + 9 * HOUR)
    rounded(market)

    granted = market.grant("firm")
    assert granted is not None
    assert [cut.ends_at for cut in granted.cuts] == [NOON + length]
    assert granted.window.starts_at == NOON + length


def test_with_none_only_the_notice_is_left(market: Market) -> None:
    least_run(market, timedelta())
    soft(market)
    market.wait(seconds=1)

    granted = firm(market, at=9)

    assert granted is not None
    assert [cut.ends_at for cut in granted.cuts] == [market.now + NOTICE]


@pytest.mark.parametrize("length", [timedelta(), 3 * HOUR])
def test_a_lease_that_runs_is_judged_by_what_is_in_force_at_the_decision(
    market: Market, length: timedelta
) -> None:
    soft(market)
    market.wait(hours=1)
    least_run(market, length)

    granted = firm(market, at=9, deadline=market.now + 9 * HOUR)

    assert granted is not None
    stops = max(NOON + length, market.now + NOTICE)
    assert [cut.ends_at for cut in granted.cuts] == [stops]


def test_who_was_told_to_stop_is_not_told_otherwise_by_a_later_policy(market: Market) -> None:
    soft(market)
    market.wait(hours=1)
    granted = firm(market, at=9)
    assert granted is not None

    least_run(market, 24 * HOUR)

    held = book_of(market).held[market.lease_id("soft")]
    assert held.ends == from_above(granted.cuts[0].ends_at)


def test_a_bid_that_cannot_wait_so_long_interrupts_nobody(market: Market) -> None:
    least_run(market, 2 * HOUR)
    soft(market)
    market.wait(minutes=10)

    assert firm(market, at=9, deadline=market.now + 7 * HOUR) is None, "an hour to start in"


def test_who_comes_back_has_the_same_time_again(market: Market) -> None:
    least_run(market, 2 * HOUR)
    soft(market)
    market.wait(hours=3)
    assert firm(market, at=20, hours=2, deadline=market.now + 3 * HOUR) is not None
    market.take_up()
    market.wait(hours=2, minutes=10)
    back = soft(market, "back")
    market.wait(minutes=30)

    granted = firm(market, "again", at=9, deadline=market.now + 9 * HOUR)

    assert granted is not None
    assert [cut.lease_id for cut in granted.cuts] == [back.lease_id]
    assert granted.cuts[0].ends_at == back.window.starts_at + 2 * HOUR
    audit(market.events())


def test_an_extended_lease_goes_on_counting_from_its_start(market: Market) -> None:
    least_run(market, 2 * HOUR)
    soft(market, hours=1)
    market.wait(minutes=50)
    market.extend("soft", NOON + 20 * HOUR)
    market.run()
    market.wait(minutes=20)

    granted = firm(market, at=9)

    assert granted is not None
    assert [cut.ends_at for cut in granted.cuts] == [NOON + 2 * HOUR]


def test_set_alone_it_binds_no_quota_and_counts_nothing(market: Market) -> None:
    least_run(market, 2 * HOUR)
    soft(market)

    book = book_of(market)

    assert book.least_runs.seconds == 7_200
    assert book.quotas is None


def test_quotas_that_come_later_know_it(market: Market) -> None:
    least_run(market, 2 * HOUR)
    cohort = CohortPlaced(market=MARKET, cohort="lab", parent=None, tenant_id=None, at=market.now)
    market.put(f"governance-{MARKET}", cohort)

    book = book_of(market)

    assert book.quotas is not None and book.quotas.policies is not None
    assert book.quotas.policies.least_runs.seconds == book.least_runs.seconds == 7_200


def test_that_of_another_market_is_none_of_ones_own(market: Market) -> None:
    least_run(market, 2 * HOUR, name="elsewhere")

    assert book_of(market).least_runs.seconds == 1_800


def test_a_snapshot_keeps_it(market: Market) -> None:
    least_run(market, 2 * HOUR)

    assert restored(state_of(book_of(market))).least_runs.seconds == 7_200


def test_the_newest_leases_do_not_hide_those_that_may_go(market: Market) -> None:
    """More leases than are tried for one bid have less to lose, and none of them goes in time."""
    least_run(market, 2 * HOUR)
    soft(market)
    market.wait(hours=3)
    market.offer("b", gpus=VICTIMS_MAX + 1, at=1, notice=NOTICE)
    for number in range(VICTIMS_MAX + 1):
        soft(market, f"new {number}", hours=5)
    market.wait(minutes=1)

    granted = firm(market, at=9)

    assert granted is not None
    assert [cut.lease_id for cut in granted.cuts] == [market.lease_id("soft")]


def lent(length: timedelta, *, patience: str = "immediate", waits: float = 5) -> Lent:
    """Return a market in which blue has all GPUs since noon, and red wants its own four."""
    market = Lent()
    market.offer("rack", gpus=8, notice=NOTICE)
    market.govern(red=(4, None), blue=(4, None))
    least_run(market, length)
    market.borrow("old", 4)
    market.wait(hours=1)
    market.borrow("new", 4)
    market.wait(minutes=10)
    market.asking = "red"
    market.bid(
        "mine", gpus=4, at=9, hours=4, patience=patience,  # type: ignore[arg-type]
        deadline=market.now + timedelta(hours=4 + waits),
    )  # fmt: skip
    market.asking = ""
    return market


def test_what_was_borrowed_is_taken_back_after_it_at_once() -> None:
    market = lent(3 * HOUR)
    market.run()

    granted = market.grant("mine")

    assert granted is not None
    [cut] = granted.cuts
    assert (cut.lease_id, cut.ends_at) == (market.lease_id("new"), NOON + 4 * HOUR)


def test_where_the_newest_would_stop_too_late_an_older_one_goes() -> None:
    market = lent(3 * HOUR, waits=2.5)
    market.run()

    granted = market.grant("mine")

    assert granted is not None
    [cut] = granted.cuts
    assert (cut.lease_id, cut.ends_at) == (market.lease_id("old"), NOON + 3 * HOUR)


def test_where_all_would_stop_too_late_nobody_goes() -> None:
    market = lent(3 * HOUR, waits=1.5)
    market.run()

    assert market.grant("mine") is None


@pytest.mark.parametrize("every", [60, 6 * 3_600])
def test_rounds_take_back_in_time_however_far_apart_they_are(every: int) -> None:
    """Those that go must be told while their least running time leaves the bid a start."""
    market = lent(3 * HOUR, patience="patient", waits=4)
    latest = market.now + 4 * HOUR
    market.engine = market.new_engine(round_seconds=every)
    with capture_logs() as logs:
        let_pass(market, 4 * HOUR, step=MINUTE)

    granted = market.grant("mine")

    assert granted is not None
    [cut] = granted.cuts
    assert cut.ends_at >= NOON + 3 * HOUR
    assert granted.window.starts_at <= latest
    assert not [line for line in logs if line["event"] != "bid.stuck"], "bids without accounts"
    audit(market.events())


@pytest.mark.parametrize("length", [2 * HOUR, timedelta()])
def test_the_check_of_a_round_finds_who_is_cut_too_soon(market: Market, length: timedelta) -> None:
    least_run(market, length)
    soft(market)
    market.wait(minutes=10)
    patient(market, at=9, deadline=market.now + 9 * HOUR)
    book = book_of(market)
    told, granted = on_round(book, now=from_above(market.now), round_id=ROUND, warn=no_fault)
    assert isinstance(told, RoundCleared) and isinstance(granted, LeaseGranted)
    assert faults(book, told, [granted]) == []

    more = 600 if length else 901
    book.least_runs = LeastRuns(book.least_runs.seconds + more)
    found = faults(book, told, [granted])

    assert any("has not run long enough" in str(fault) for fault in found), found


def test_a_round_drops_a_grant_that_cuts_too_soon(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check reads the policy by itself: a planner that forgets it gets nothing through."""
    least_run(market, 2 * HOUR)
    soft(market)
    market.wait(minutes=10)
    patient(market, at=9, deadline=market.now + 9 * HOUR)
    book = book_of(market)
    monkeypatch.setattr(
        "marketplace.domain.preemption.interrupt.undisturbed_until", lambda book, held: 0
    )

    events = on_round(book, now=from_above(market.now), round_id=ROUND)

    [told] = events
    assert isinstance(told, RoundCleared)
    assert [each.reason for each in told.unmatched] == ["unverified"]


Act = tuple[str, int, int, int]
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["soft", "firm", "patient", "policy", "policy"]),
        st.integers(1, 3),
        st.sampled_from([0, 1, 7, 40, 130]),
        st.sampled_from([0, 45, 600, 1_800, 5_000, 86_400]),
    ),
    min_size=4,
    max_size=14,
)


@given(ACTS)
@settings(max_examples=40, deadline=None)
def test_whatever_the_policy_nobody_is_cut_before_it(acts: Sequence[Act]) -> None:
    """Asked of the log by the audit, in both lanes, with policies that change meanwhile."""
    market = Lent()
    market.offer("a", gpus=3, at=1, notice=NOTICE)
    market.offer("b", gpus=2, at="1.50", notice=timedelta(), model="L4")
    market.offer("c", gpus=2, at=1, notice=NOTICE, model="H100-80GB-1g.10gb", isolation="mig")
    if acts[0][1] > 1:
        market.govern(red=(2, None), blue=(3, None))
    for number, (what, gpus, minutes, seconds) in enumerate(acts):
        word, hours = f"{what}{number}", 1 + number % 5
        market.asking = ("red", "blue", "")[number % 3]
        if what == "policy":
            of = (None, "H100", "L4", "H100-80GB", "any part")[number % 5]
            of = "H100-1g.10gb" if of == "any part" else of
            lifted = of is not None and gpus == 3
            least_run(market, None if lifted else timedelta(seconds=seconds), of=of)
        else:
            market.bid(
                word, gpus=gpus, hours=8 if what == "soft" else hours,
                at=2 if what == "soft" else 20,
                deadline=market.now + (8 if what == "soft" else hours) * HOUR + 3 * HOUR,
                patience="patient" if what == "patient" else "immediate",
                service_class="interruptible" if what == "soft" else "on-demand",
            )  # fmt: skip
        market.run()
        market.wait(minutes=minutes, seconds=61)
        market.run()

    cuts = [cut for granted in market.grants().values() for cut in granted.cuts]
    event(f"{min(len(cuts), 3)} cuts at least")
    audit(market.events())


def test_the_audit_would_notice(market: Market) -> None:
    least_run(market, timedelta())
    soft(market)
    market.wait(minutes=1)
    assert firm(market, at=9) is not None
    log = list(market.events())
    assert any(isinstance(each.event, LeaseGranted) and each.event.cuts for each in log)
    audit(log)

    without_it = [each for each in log if not isinstance(each.event, LeastRunSet)]

    with pytest.raises(AssertionError):
        audit(without_it)


def test_replays_know_the_policy_of_then() -> None:
    market = lent(3 * HOUR, patience="patient", waits=3)
    rounds(market, 3)
    granted = market.grant("mine")
    assert granted is not None and granted.cuts
    least_run(market, timedelta())

    found = replay_round(market.store, market=MARKET, round_id=granted.round_id)

    assert found.outcome == "identical"


@pytest.mark.parametrize("lane", ["immediate", "patient"])
def test_a_bid_is_told_that_only_the_least_running_time_is_in_its_way(
    market: Market, lane: str
) -> None:
    least_run(market, 2 * HOUR)
    soft(market)
    market.wait(minutes=10)
    bid = patient if lane == "patient" else firm
    bid(market, at=9, deadline=market.now + 7 * HOUR)
    before = state_of(book_of(market))

    found = told(market)

    assert found is not None
    assert (found.leases, found.gpus, found.least) == (1, 1, 2 * HOUR)
    assert found.until == NOON + 2 * HOUR
    assert found.starts_by == market.now + HOUR
    with lent_book(market.store, MARKET) as book:
        assert state_of(book) == before, "it only looked"


@pytest.mark.parametrize(
    ("how", "length"),
    [
        ({"at": 1}, 2 * HOUR),
        ({"service_class": "interruptible"}, 2 * HOUR),
        ({"gpus": 2}, 2 * HOUR),
        ({}, timedelta()),
        ({"deadline": NOON + 20 * HOUR}, 2 * HOUR),
    ],
    ids=["too cheap", "not firm", "too large", "no such policy", "it is served then"],
)
def test_what_else_is_in_the_way_is_not_called_so(
    market: Market, how: dict[str, Any], length: timedelta
) -> None:
    least_run(market, length)
    soft(market)
    market.wait(minutes=10)
    terms: dict[str, Any] = {"at": 9, "deadline": market.now + 7 * HOUR} | how
    patient(market, **terms)

    assert told(market) is None


def test_a_unit_is_told_what_keeps_it_from_its_own() -> None:
    market = lent(3 * HOUR, waits=1.5)
    market.run()

    found = told(market, "mine")

    assert found is not None
    assert (found.leases, found.gpus) == (1, 4)
    assert found.until == NOON + 4 * HOUR, "the newest of them would go"


@pytest.mark.parametrize(
    ("ran", "before", "after"), [(10, 30, 120), (60, None, 120), (150, None, None)]
)
def test_a_trial_tells_which_leases_would_run_undisturbed(
    market: Market, ran: int, before: int | None, after: int | None
) -> None:
    soft(market)
    market.wait(minutes=ran)

    found = tried(market, LeastRunSet(market=MARKET, seconds=7_200, at=market.now))

    expected = [None if minutes is None else NOON + minutes * MINUTE for minutes in (before, after)]
    assert [[each.before, each.after] for each in found.run_changes] == [expected] * (ran < 120)
    assert book_of(market).least_runs.seconds == 1_800, "nothing was written"


def test_a_trial_of_less_tells_which_leases_may_be_interrupted_at_once(market: Market) -> None:
    soft(market)
    market.bid("firm", gpus=1, hours=1)
    market.wait(minutes=10)

    found = tried(market, LeastRunSet(market=MARKET, seconds=0, at=market.now))

    [change] = found.run_changes
    assert (change.lease_id, change.gpus) == (market.lease_id("soft"), 1)
    assert (change.before, change.after) == (NOON + 30 * MINUTE, None)


def test_what_says_what_is_so_anyway_is_tried_in_a_market_without_policies(market: Market) -> None:
    found = tried(
        market,
        HalfLifeSet(market=MARKET, seconds=7 * 86_400, at=market.now),
        LeastRunSet(market=MARKET, seconds=1_800, at=market.now),
    )

    assert (found.queues, found.run_changes) == ((), ())
