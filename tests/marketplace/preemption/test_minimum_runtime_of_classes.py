"""A class of GPUs may have a least running time of its own, which its parts have, too."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.domain.ids import BidId, LeaseId
from ledger.domain.money import Rate
from ledger.domain.refusal import Refusal
from ledger.domain.span import Window
from ledger.eventstore.port import load
from listings.domain.events import Isolation, OfferWithdrawn
from marketplace.commands.quotas import set_policies
from marketplace.domain.bids.query_language import read_query
from marketplace.domain.book.book import Book
from marketplace.domain.book.snapshot import restored, state_of
from marketplace.domain.decisions.decide import on_round
from marketplace.domain.facts.events import LeaseGranted, RoundCleared
from marketplace.domain.facts.instants import from_above
from marketplace.domain.facts.policy_events import LeastRunSet
from marketplace.domain.governance.authority import (
    FigureOutOfRange,
    GpuClassUnreadable,
    PolicyNotYours,
    Setter,
)
from marketplace.domain.governance.dispatch import LeastRunMissing, TooManyLeastRuns
from marketplace.domain.preemption.interrupt import undisturbed_until
from marketplace.domain.quotas.minimum_runtime import LeastRuns
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.domain.verification.least_run import least_run as verified
from marketplace.domain.verification.verify_round import faults
from marketplace.replay.round import replay_round
from tests.conftest import NOON
from tests.marketplace.support.borrowed import Lent
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import MARKET, OWNER, Market, somebody
from tests.marketplace.support.minimum_runtime import HOUR, MINUTE, least_run, soft, told, tried
from tests.marketplace.support.preemption import NOTICE, firm
from tests.marketplace.support.preemption_in_rounds import patient, rounded
from tests.marketplace.support.rounds import ROUND, book_of, no_fault
from tests.marketplace.verification.victim_order import in_turn as in_turn

pytestmark = pytest.mark.usefixtures("in_turn")

INSTANCE, SHARE = "H100-80GB-1g.10gb", "H100-80GB-mps.25.20gb"


def listed(model: str, isolation: Isolation = "whole") -> Market:
    """Return a market with one GPU, whose H100 run 2 hours and all else 30 minutes."""
    market = Market()
    market.offer("a", gpus=1, at=1, notice=NOTICE, model=model, isolation=isolation)
    least_run(market, 2 * HOUR, of="H100")
    return market


@pytest.mark.parametrize("lane", ["immediate", "patient"])
@pytest.mark.parametrize(
    ("model", "isolation", "length"),
    [
        ("H100-80GB", "whole", 2 * HOUR),
        ("H100-PCIE-80GB", "whole", 2 * HOUR),
        (INSTANCE, "mig", 2 * HOUR),
        (SHARE, "mps", 2 * HOUR),
        ("H100-80GB-slice.50.40gb", "timeslice", 2 * HOUR),
        ("A100-80GB", "whole", 30 * MINUTE),
        ("GH200-480GB", "whole", 30 * MINUTE),
    ],
)
def test_a_class_and_all_that_is_cut_from_it_has_its_own_time(
    model: str, isolation: Isolation, length: timedelta, lane: str
) -> None:
    market = listed(model, isolation)
    soft(market)
    market.wait(minutes=10)

    bid = patient if lane == "patient" else firm
    bid(market, at=9, deadline=market.now + 9 * HOUR)
    rounded(market)

    granted = market.grant("firm")
    assert granted is not None
    assert [cut.ends_at for cut in granted.cuts] == [NOON + length]
    audit(market.events())


def test_a_lease_over_several_classes_has_the_longest_of_them() -> None:
    market = listed("H100-80GB")
    market.offer("b", gpus=1, at=1, notice=NOTICE, model="L4")
    least_run(market, 10 * MINUTE)
    market.bid("both", gpus=2, hours=20, at=2, gang=True, service_class="interruptible")
    market.run()
    both = market.grant("both")
    assert both is not None and both.gpu_model == "H100-80GB+L4"
    market.wait(minutes=15)

    request = read_query("gpu=L4")
    granted = firm(market, at=9, deadline=market.now + 9 * HOUR, request=request)

    assert granted is not None
    assert [cut.ends_at for cut in granted.cuts] == [NOON + 2 * HOUR]
    audit(market.events())


def test_a_lease_keeps_its_time_when_its_offers_are_gone() -> None:
    market = listed("H100-80GB")
    granted = soft(market)
    (share,) = granted.shares
    gone = OfferWithdrawn(offer_id=share.offer_id, at=market.now)
    market.put(f"offer-{share.offer_id}", gone)
    market.run()

    book = book_of(market)

    assert not book.offers
    [held] = book.held.values()
    assert undisturbed_until(book, held) == from_above(NOON + 2 * HOUR)
    assert verified(book, granted) == 2 * HOUR


def test_what_is_lifted_leaves_the_class_to_the_market() -> None:
    market = listed("H100-80GB")
    least_run(market, HOUR)
    least_run(market, None, of="h100")
    soft(market)
    market.wait(minutes=10)

    granted = firm(market, at=9, deadline=market.now + 9 * HOUR)

    assert granted is not None
    assert [cut.ends_at for cut in granted.cuts] == [NOON + HOUR]


def test_quotas_take_back_after_the_time_of_the_class() -> None:
    market = Lent()
    market.offer("rack", gpus=8, notice=NOTICE)
    market.govern(red=(4, None), blue=(4, None))
    least_run(market, 3 * HOUR, of="H100")
    market.borrow("old", 4)
    market.wait(hours=1)
    market.borrow("new", 4)
    market.wait(minutes=10)

    market.asking = "red"
    market.bid("mine", gpus=4, at=9, hours=4, deadline=market.now + 9 * HOUR)
    market.run()

    granted = market.grant("mine")
    assert granted is not None
    assert [cut.ends_at for cut in granted.cuts] == [NOON + 4 * HOUR]
    audit(market.events())


def test_the_check_of_a_round_finds_who_is_cut_before_the_time_of_its_class() -> None:
    market = listed(INSTANCE, "mig")
    soft(market)
    market.wait(minutes=10)
    patient(market, at=9, deadline=market.now + 9 * HOUR)
    book = book_of(market)
    cleared, granted = on_round(book, now=from_above(market.now), round_id=ROUND, warn=no_fault)
    assert isinstance(cleared, RoundCleared) and isinstance(granted, LeaseGranted)
    assert faults(book, cleared, [granted]) == []

    book.least_runs = LeastRuns(classes=(("H100", 7_800),))

    said = [str(fault) for fault in faults(book, cleared, [granted])]
    assert any("has not run long enough: 2:00:00 of 2:10:00" in each for each in said), said


def test_a_snapshot_keeps_the_times_of_classes() -> None:
    market = listed("H100-80GB")
    least_run(market, HOUR)

    kept = restored(state_of(book_of(market)))

    assert kept.least_runs == LeastRuns(3_600, (("H100", 7_200),))


def test_a_round_is_replayed_under_the_times_of_then() -> None:
    market = listed("H100-80GB")
    soft(market)
    market.wait(minutes=10)
    patient(market, at=9, deadline=market.now + 9 * HOUR)
    rounded(market)
    granted = market.grant("firm")
    assert granted is not None and granted.cuts
    least_run(market, timedelta(), of="H100")

    found = replay_round(market.store, market=MARKET, round_id=granted.round_id)

    assert found.outcome == "identical"


def test_who_waits_is_told_the_time_of_those_in_its_way() -> None:
    market = listed("H100-80GB")
    least_run(market, timedelta())
    soft(market)
    market.wait(minutes=10)
    firm(market, at=9, deadline=market.now + 7 * HOUR)

    found = told(market)

    assert found is not None
    assert (found.least, found.until) == (2 * HOUR, NOON + 2 * HOUR)


def test_a_trial_of_a_class_tells_of_its_leases_only() -> None:
    market = Market()
    for word, model in (("a", "H100-80GB"), ("b", "L4"), ("c", SHARE)):
        market.offer(word, gpus=1, at=1, notice=NOTICE, model=model)
        soft(market, model)
    market.wait(minutes=10)

    policy = LeastRunSet(market=MARKET, seconds=7_200, at=market.now, gpu_class="H100")
    found = tried(market, policy)

    assert {each.lease_id for each in found.run_changes} == {
        market.lease_id("H100-80GB"),
        market.lease_id(SHARE),
    }
    assert {(each.before, each.after) for each in found.run_changes} == {
        (NOON + 30 * MINUTE, NOON + 2 * HOUR)
    }


def run(gpu_class: str | None, seconds: int = 60, *, lifted: bool = False) -> LeastRunSet:
    return LeastRunSet(market=MARKET, seconds=seconds, at=NOON, gpu_class=gpu_class, lifted=lifted)


def put(market: Market, *policies: LeastRunSet, is_platform: bool = True) -> LeastRuns:
    set_policies(market.store, policies=policies, setter=Setter(OWNER, is_platform), by=somebody())
    return (load(market.store, Policies, MARKET) or Policies()).least_runs


def test_what_is_in_force_is_not_said_again() -> None:
    market = Market()

    assert put(market, run("H100"), run("any", 90)) == LeastRuns(90, (("H100", 60),))
    before = market.store.head()
    put(market, run("h100"), run(None, 90), run("L4", lifted=True))
    assert market.store.head() == before


@pytest.mark.parametrize(
    ("policy", "refusal"),
    [
        (run("H100", 86_401), FigureOutOfRange),
        (run("H 100"), GpuClassUnreadable),
        (run(None, lifted=True), LeastRunMissing),
        (run("any", lifted=True), LeastRunMissing),
    ],
)
def test_what_makes_no_sense_is_refused(policy: LeastRunSet, refusal: type[Refusal]) -> None:
    market = Market()

    with pytest.raises(refusal):
        put(market, policy)
    with pytest.raises(PolicyNotYours):
        put(market, run("H100"), is_platform=False)


def test_a_hundred_classes_have_a_time_of_their_own() -> None:
    market = Market()
    put(market, *(run(f"G{number}") for number in range(100)))

    with pytest.raises(TooManyLeastRuns):
        put(market, run("H100"))
    put(market, run("G7", 90), run("G8", lifted=True), run("H100"))


# --- the engine's reading of names, and the check's ----------------------------------------------

MODELS = (
    *("H100-80GB", "H100-PCIE-80GB", "GH200-480GB", "L4", "A100-SXM4-80GB"),
    *(INSTANCE, SHARE, "H100-PCIE-80GB-1g.10gb+me", "H100-80GB-1c.3g.40gb", "L4-slice.50.12gb"),
)
ANY_LEASE = LeaseGranted(
    lease_id=LeaseId(UUID(int=1)),
    bid_id=BidId(UUID(int=2)),
    market=MARKET,
    round_id=ROUND,
    shares=(),
    gpu_model="",
    window=Window(NOON, NOON + HOUR),
    price=Rate(1, "USD"),
    at=NOON,
)
CLASSES = (*MODELS, "H100", "H100-1g.10gb", "H100-1g.10gb+me", "H100-PCIE", "A100-80GB", "A100")


@pytest.mark.parametrize(
    ("gpu_model", "hours"),
    [
        ("H100-80GB", 2),
        ("H100-PCIE-80GB", 3),
        (INSTANCE, 1),
        ("H100-PCIE-80GB-1g.10gb", 1),
        ("H100-PCIE-80GB-1g.10gb+me", 3),
        ("H100-PCIE-80GB-2g.20gb+L4", 4),
        ("H100-80GB-1g.10gb+me+L40S", 2),
        ("H100-80GB-1g.10gb+L40S", 1),
        ("A100-40GB+RTX-4090", 0.5),
        ("A100-40GB+H100-PCIE-80GB+RTX-PRO-6000-BLACKWELL-96GB+ZZZ9-SXM-12"[:64], 4),
    ],
)
def test_the_narrowest_class_speaks_for_a_gpu_and_the_longest_for_a_lease(
    gpu_model: str, hours: float
) -> None:
    runs = LeastRuns()
    for gpu_class, length in (("H100", 2), ("H100-PCIE", 3), ("H100-1g.10gb", 1), ("L4", 4)):
        runs = runs.after(run(gpu_class, length * 3_600))

    assert runs.of(gpu_model) == hours * 3_600


@given(
    st.lists(st.tuples(st.sampled_from(CLASSES), st.sampled_from([0, 60, 1_800, 7_200]))),
    st.sets(st.sampled_from(MODELS), min_size=1, max_size=4),
)
def test_the_check_reads_names_as_the_engine_does(
    said: list[tuple[str, int]], models: set[str]
) -> None:
    together = "+".join(sorted(models))[:64]
    lease = replace(ANY_LEASE, gpu_model=together)
    book = Book(MARKET)
    for gpu_class, seconds in said:
        book.least_runs = book.least_runs.after(run(gpu_class, seconds))

    assert verified(book, lease) == timedelta(seconds=book.least_runs.of(together))
