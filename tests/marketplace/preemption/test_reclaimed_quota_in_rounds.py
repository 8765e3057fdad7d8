"""A patient bid takes back what is its unit's own when it cannot wait longer, and not before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from ledger.domain.event import Event
from ledger.domain.ids import BidId
from ledger.domain.money import Rate
from listings.domain.events import Division
from marketplace.domain.book.book import Book
from marketplace.domain.clearing.fills import Rules
from marketplace.domain.decisions.decide import on_round
from marketplace.domain.facts.events import LeaseGranted, RoundCleared, ServiceClass
from marketplace.domain.facts.instants import from_above
from marketplace.domain.facts.policy_events import CountingSet
from marketplace.domain.verification.verify_round import faults
from marketplace.replay.round import replay_round
from tests.marketplace.support.borrowed import Lent
from tests.marketplace.support.borrowed_in_rounds import NOTICE, lent, rounds
from tests.marketplace.support.governed import unit_of
from tests.marketplace.support.invariants import audit
from tests.marketplace.support.market import MARKET, OWNER, named
from tests.marketplace.support.policies import quota
from tests.marketplace.support.rounds import ROUND, book_of, no_fault
from tests.marketplace.verification.victim_order import in_turn as in_turn

pytestmark = pytest.mark.usefixtures("in_turn")

RED, BLUE = str(unit_of("red")), str(unit_of("blue"))


def test_it_waits_as_long_as_those_that_go_can_still_be_told_in_time() -> None:
    market = lent()
    latest = market.now + timedelta(hours=5)

    rounds(market, 4.25)
    assert market.grant("mine") is None
    with capture_logs() as logs:
        rounds(market, 0.5)

    granted = market.grant("mine")
    assert granted is not None and not logs
    [cut] = granted.cuts
    assert cut.lease_id == market.lease_id("two"), "the newest of them"
    assert granted.at + NOTICE <= cut.ends_at <= granted.window.starts_at <= latest
    assert granted.at > latest - NOTICE - timedelta(minutes=36)
    assert granted.price.nanos_per_gpu_hour > 10**9, "its floor, and the compensation"
    audit(market.events())
    [told] = [
        r.event for r in market.decisions()
        if isinstance(r.event, RoundCleared) and r.event.round_id == granted.round_id
    ]  # fmt: skip
    replayed = replay_round(market.store, market=MARKET, round_id=told.round_id)
    assert replayed.outcome == "identical"


def test_what_becomes_free_meanwhile_serves_it_and_nobody_is_interrupted() -> None:
    market = lent()
    rounds(market, 2)
    market.end(BidId(named("bid one")))
    rounds(market, 0.2)

    granted = market.grant("mine")
    assert granted is not None
    assert granted.cuts == ()


def test_who_could_never_wait_is_served_in_the_next_round() -> None:
    market = lent(waits=0.25)
    rounds(market, 0.1)

    granted = market.grant("mine")
    assert granted is not None
    assert len(granted.cuts) == 1


@pytest.mark.parametrize(
    ("gpus", "service"), [(5, "on-demand"), (4, "interruptible")], ids=["beyond", "not firm"]
)
def test_only_firm_bids_within_their_own_quota_take_back(gpus: int, service: ServiceClass) -> None:
    market = lent(gpus, waits=0.25, service=service)
    rounds(market, 0.2)

    assert market.grant("mine") is None


def test_without_interruptions_nothing_is_taken_back() -> None:
    market = lent(waits=0.25)
    now = from_above(market.now)
    events = on_round(book_of(market), now=now, round_id=ROUND, rules=Rules(preemption=False))
    assert not any(isinstance(each, LeaseGranted) for each in events)


def test_what_its_owner_uses_itself_is_not_taken_back() -> None:
    """Two is blue's own use of its own rack: it is over its quota, and first on its GPUs."""
    market = Lent()
    market.offer("rack", gpus=8, owner=unit_of("blue"))  # type: ignore[arg-type]  # a tenant
    market.govern(red=(4, None), blue=(4, None))
    market.borrow("all", 8)
    market.wait(hours=1)

    market.want("mine", 4)

    assert market.grant("mine") is None


def test_two_units_never_take_back_more_than_was_borrowed() -> None:
    """Blue is four over: red and green, with four each, get four together."""
    market = Lent()
    market.offer("rack", gpus=8)
    market.govern(red=(4, None), green=(4, None), blue=(4, None))
    for word in ("one", "two"):
        market.borrow(word, 4)
        market.wait(minutes=40)
    for unit in ("red", "green"):
        market.asking = unit
        market.bid(unit, gpus=4, at=4, hours=4, patience="patient",
                   deadline=market.now + timedelta(hours=4.25))  # fmt: skip
    market.asking = ""

    with capture_logs() as logs:
        rounds(market, 0.1)

    assert not logs
    assert [market.grant(unit) is not None for unit in ("red", "green")].count(True) == 1


# --- the independent check ---------------------------------------------------------------------


def vouched_for() -> tuple[Book, RoundCleared, LeaseGranted]:
    """Return a round that takes back a lease, in which nothing is wrong."""
    market = lent(waits=0.25)
    book = book_of(market)
    events = on_round(book, now=from_above(market.now), round_id=ROUND, warn=no_fault)
    told, granted = events
    assert isinstance(told, RoundCleared) and isinstance(granted, LeaseGranted)
    assert granted.cuts and faults(book, told, [granted]) == []
    return book, told, granted


Change = Callable[[Book, LeaseGranted], LeaseGranted]


def policy(*events: Event) -> Change:
    """Set policies after the round was decided."""

    def change(book: Book, granted: LeaseGranted) -> LeaseGranted:
        assert book.quotas is not None
        for event in events:
            book.quotas.apply(event)  # type: ignore[arg-type]  # a policy
        return granted

    return change


def of_cut(**fields: Any) -> Change:
    def change(book: Book, granted: LeaseGranted) -> LeaseGranted:
        return replace(granted, cuts=(replace(granted.cuts[0], **fields),))

    return change


def held(book: Book, granted: LeaseGranted) -> Any:
    return book.held[granted.cuts[0].lease_id]


def victim_of(unit: str) -> Change:
    def change(book: Book, granted: LeaseGranted) -> LeaseGranted:
        it = held(book, granted)
        it.bid = replace(it.bid, subscriber_id=unit_of(unit))
        return granted

    return change


def sooner(book: Book, granted: LeaseGranted) -> LeaseGranted:
    cut = granted.cuts[0]
    return replace(granted, cuts=(replace(cut, ends_at=cut.ends_at - timedelta(minutes=3)),))


def owner_s_own(book: Book, granted: LeaseGranted) -> LeaseGranted:
    it = held(book, granted)
    it.granted = replace(it.granted, own=True)
    return granted


def at_the_floor(book: Book, granted: LeaseGranted) -> LeaseGranted:
    return replace(granted, price=Rate(10**9))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (policy(quota(BLUE, 8)), "within what"),
        (policy(quota(RED, 2)), "used of 2"),
        (policy(quota(RED, None), quota(BLUE, None)), "no quota"),
        (victim_of("red"), "no other unit"),
        (victim_of("stranger"), "no other unit"),
        (sooner, "less notice"),
        (owner_s_own, "its owner's"),
        (at_the_floor, f"owner {OWNER} owes"),
    ],
    ids=["within", "beyond", "no quota", "own unit", "stranger", "notice", "own use", "price"],
)
def test_each_fault_is_found(change: Change, said: str) -> None:
    book, told, granted = vouched_for()
    wrong = change(book, granted)
    found = faults(book, told, [wrong])
    assert any(said in fault.said and fault.lease_id == granted.lease_id for fault in found)


def test_a_lease_that_need_not_go_is_found() -> None:
    """Where the bid is served elsewhere and quota is left, nobody may be interrupted for it."""
    market = lent(waits=0.25)
    market.offer("more", gpus=4)
    market.policy(quota(RED, 8))
    book = book_of(market)
    now = from_above(market.now)
    told, granted = on_round(book, now=now, round_id=ROUND, warn=no_fault)
    assert isinstance(told, RoundCleared) and isinstance(granted, LeaseGranted)
    _, _, other = vouched_for()
    cuts = (replace(other.cuts[0], lease_id=market.lease_id("two")),)

    found = faults(book, told, [replace(granted, cuts=cuts)])

    assert any("not in the way" in fault.said for fault in found)


def test_what_an_earlier_bid_of_the_round_takes_back_counts_until_it_is_taken_up() -> None:
    """Its grant may yet be refused: so two GPUs go for the second bid, where one more would do.

    On rack 1 the compensation costs more than the bids pay.
    """
    market = Lent()
    market.offer("rack 0", gpus=4, at=1)
    market.offer("rack 1", gpus=4, at=2)
    market.govern(red=(3, None), blue=(3, None), green=(2, None))
    market.asking = "blue"
    for word, gpus in (("a", 1), ("b", 2), ("c", 2), ("d", 1), ("e", 1), ("f", 1)):
        market.bid(word, gpus=gpus, at=4, hours=2, deadline=market.now + timedelta(hours=3))
        market.run()
        market.wait(minutes=5)
    market.asking = "red"
    for word in ("one", "two"):
        market.bid(
            word, gpus=1, at=2, hours=4, patience="patient",
            deadline=market.now + timedelta(hours=4.3),
        )  # fmt: skip

    with capture_logs() as logs:
        rounds(market, 0.25)

    assert not [line for line in logs if line["event"] != "bid.stuck"]
    assert market.cut("one") == [str(market.lease_id("d"))]
    assert market.cut("two") == [str(market.lease_id("b"))]


@pytest.mark.parametrize("parts", [False, True], ids=["cards", "parts"])
@given(st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_no_round_takes_back_what_it_may_not(parts: bool, random: Random) -> None:
    """Whatever was borrowed by whom: the check never drops a grant."""
    nothing_is_dropped(random, parts=parts)


@pytest.mark.parametrize("seed", [1_385, 1_464])
def test_a_lease_that_a_later_grant_cuts_was_borrowed_until_then(seed: int) -> None:
    nothing_is_dropped(Random(seed), parts=True)


@pytest.mark.parametrize("seed", [1_127, 1_295])
def test_which_gpus_quotas_refused_is_not_held_against_a_grant(seed: int) -> None:
    """With fewer cuts there was a place on cards, which quotas refused, and one on their parts."""
    nothing_is_dropped(Random(seed), parts=True)


def nothing_is_dropped(random: Random, *, parts: bool) -> None:
    """Let three units borrow, and take back in rounds.

    parts: some cards are divided, their parts are counted, and bids get the one or the other.
    """
    market = Lent()
    market.offer("rack 0", gpus=4, at=random.choice((1, 2)))
    if parts:
        profiles = random.choice((("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"), ("1g.20gb",) * 4))
        mig = Division("mig", profiles=profiles)
        market.offer("rack 1", gpus=3, at=random.choice((1, 2)), division=mig)
        market.policy(CountingSet(market=MARKET, counts="parts", at=market.now))
    else:
        market.offer("rack 1", gpus=4, at=random.choice((1, 2)))
    market.govern(red=(3, None), blue=(3, None), green=(2, random.choice((0, None))))
    for number in range(6):
        market.asking = random.choice(("red", "blue", "green"))
        hours = random.choice((2, 6, 30))
        market.bid(
            f"early {number}", gpus=random.randint(1, 4), at=4, hours=hours,
            service_class=random.choice(("on-demand", "interruptible")),
            deadline=market.now + timedelta(hours=hours + 1),
        )  # fmt: skip
        market.run()
        market.wait(minutes=random.choice((5, 40)))
    for number in range(5):
        market.asking = random.choice(("red", "blue", "green"))
        market.bid(
            f"late {number}", gpus=random.randint(1, 3), at=random.choice((2, 4, 9)), hours=4,
            patience="patient", service_class=random.choice(("on-demand", "reserved")),
            deadline=market.now + timedelta(hours=4 + random.choice((0.3, 1))),
        )  # fmt: skip
    with capture_logs() as logs:
        rounds(market, 1)
    assert not [line for line in logs if line["event"] != "bid.stuck"], "bids without accounts"
    audit(market.events())


def test_what_a_unit_borrows_in_the_same_round_counts_as_borrowed() -> None:
    """Blue has five of eight once the round gave it one more: two of these are borrowed."""
    market = Lent()
    market.offer("big", gpus=4)
    market.offer("small", gpus=1, at=1)
    market.govern(red=(3, None), blue=(3, None))
    for number in range(4):
        market.borrow(f"b{number}", 1, hours=2)
        market.wait(minutes=5)
    market.wait(minutes=15)
    for unit, gpus in (("blue", 1), ("red", 2)):
        market.asking = unit
        market.bid(unit, gpus=gpus, at=9 if unit == "red" else 4, hours=4, patience="patient",
                   deadline=market.now + timedelta(hours=4.5))  # fmt: skip
    market.asking = ""

    with capture_logs() as logs:
        rounds(market, 0.1)

    assert not [line for line in logs if line["event"] == "round.grant-dropped"]
    mine, more = market.grant("red"), market.grant("blue")
    assert mine is not None and more is not None
    assert len(mine.cuts) == 2
