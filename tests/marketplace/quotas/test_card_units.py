"""Quotas and limits that count a part of a card as the part it is, or as a whole one."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from itertools import combinations_with_replacement
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.ids import BidId
from ledger.domain.money import Money
from ledger.eventstore.port import START
from listings.domain.events import Division
from listings.domain.mig import CARDS, coexist
from marketplace.domain.book.book import Book
from marketplace.domain.decisions.decide import on_round
from marketplace.domain.facts.events import GpuRequest, LeaseGranted, Patience
from marketplace.domain.facts.instants import from_above, from_below
from marketplace.domain.facts.policy_events import CountingSet
from marketplace.domain.facts.values import Counts
from marketplace.domain.quotas.card_units import UNITS, card_of, in_words, part_of, size_in
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.domain.quotas.use import Gpus, Use
from marketplace.domain.verification.card_units import gpus_in, gpus_of_all
from marketplace.domain.verification.verify_round import faults
from marketplace.explain.bid_advice import advise
from tests.conftest import NOON
from tests.marketplace.quotas.governed_crowd import GovernedCrowd
from tests.marketplace.support.governed import Governed, unit_of
from tests.marketplace.support.market import MARKET
from tests.marketplace.support.policies import limit, put, quota
from tests.marketplace.support.random_market import Lane
from tests.marketplace.support.rounds import book_of, cleared, no_fault

HOUR = timedelta(hours=1)
SEVENTHS = ("1g.10gb",) * 7
RED = str(unit_of("red"))


class Divided(Governed):
    """A market whose H100 are divided by MIG."""

    def cards(
        self, word: str, *profiles: str, windows: bool = True, count: int = 1, at: float = 0.2
    ) -> None:
        until = [(self.now, self.now + HOUR)] if windows else []
        self.offer(
            word, gpus=count, at=at, division=Division("mig", profiles=profiles), windows=until
        )

    def count(self, counts: Counts) -> None:
        self.policy(CountingSet(market=MARKET, counts=counts, at=self.now))

    def want(
        self, unit: str, word: str, profile: str, *, patience: Patience = "immediate", **more: Any
    ) -> BidId:
        """Ask for instances, on one host or several, for an hour that begins now."""
        self.asking = unit
        terms: dict[str, Any] = {"start": self.now, "deadline": self.now + HOUR, "at": 2}
        model = f"H100-{profile}" if profile else "H100"
        try:
            return self.bid(
                word, request=GpuRequest(models=(model,)), patience=patience, **(terms | more)
            )
        finally:
            self.asking = ""


@pytest.fixture
def market() -> Divided:
    """Red has a quota of one H100 and nothing to borrow; two cards are cut in seven each."""
    market = Divided()
    market.cards("sevenths", *SEVENTHS, count=2)
    market.govern(red=(1, 0))
    return market


# --- what a part is -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "part"),
    [
        ("H100-80GB", 1),
        ("H100-80GB-1g.10gb", Fraction(1, 7)),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", Fraction(1, 7)),
        ("H100-80GB-1g.10gb+me", Fraction(1, 7)),
        ("H100-80GB-1g.20gb", Fraction(2, 8)),
        ("H100-80GB-2g.20gb", Fraction(2, 7)),
        ("H100-80GB-3g.40gb", Fraction(4, 8)),
        ("H100-80GB-4g.40gb", Fraction(4, 7)),
        ("H100-80GB-7g.80gb", 1),
        ("H100-80GB-1c.3g.40gb", Fraction(1, 7)),
        ("H200-1g.16gb", Fraction(1, 7)),
        ("A30-1g.6gb", Fraction(1, 4)),
        ("L4-mps.25.6gb", Fraction(1, 4)),
        ("L4-slice.33.8gb", Fraction(33, 100)),
        ("H100-80GB-mps.33.27gb", Fraction(33, 100)),
        ("H100-80GB-mps.10.60gb", Fraction(74, 100)),
        ("L4-mps.10.20gb", Fraction(10, 100)),
        ("L40S-1g.10gb", 1),
        ("H100-80GB-1g.12gb", 1),
    ],
)
def test_a_part_is_of_its_card_what_it_takes_most_of(model: str, part: Fraction | int) -> None:
    assert part_of(model) == part * UNITS


def every_model() -> list[str]:
    instances = [
        f"{name}-{prefix}{profile.name}"
        for name, card in CARDS.items()
        for profile in card.profiles
        for prefix in ("", "1c.")
    ]
    shares = [
        f"{card}-{kind}.{percent}.{memory}gb"
        for card in ("L4", "H100-80GB", "H200", "A30")
        for kind in ("mps", "slice")
        for percent in (1, 2, 33, 50, 100)
        for memory in (1, 6, 20, 40, 79, 140)
    ]
    return [*CARDS, *instances, *shares, "T4", "H100-1g.11gb", "L40S-2g.20gb", "H200-1g.16gb"]


def test_who_checks_counts_every_part_alike_by_its_own_way() -> None:
    for counts in ("whole", "parts"):
        policies = Policies(counts=counts)
        for model in every_model():
            use = Use(terms(), (Gpus(model, 3, 0),), 0, 1, 0)
            assert use.size(counts) == gpus_of_all(policies, use) * policies.unit, model
            for gpu_class in ("any", "H100", "A100-80GB", "H200", "L4", "H100-80GB-1g.10gb"):
                ours = use.of_class(gpu_class, counts)
                assert ours == gpus_in(policies, gpu_class, use) * policies.unit, (model, gpu_class)


def book_of_all(market: Divided) -> Book:
    """Return the book of everything that happened."""
    book = Book(MARKET)
    for recorded in market.store.read_all(after=START, limit=1_000).events:
        book.apply(recorded.event, recorded.position)
    return book


def terms() -> Any:
    market = Divided()
    market.want("red", "any", "1g.10gb")
    [placed] = [each.event for each in market.events()]
    return placed


def test_shares_of_equal_size_are_never_more_than_their_card() -> None:
    for count in range(2, 49):
        memory = round(81_559 // count / 1_024)
        assert part_of(f"H100-80GB-mps.{100 // count}.{memory}gb") * count <= UNITS


def test_what_is_counted_of_a_card_is_never_less_than_its_compute_or_its_memory() -> None:
    card = CARDS["H100-80GB"]
    for size in range(1, 8):
        for layout in combinations_with_replacement(card.profiles, size):
            if coexist(card, [each.name for each in layout]):
                counted = sum(part_of(f"H100-80GB-{each.name}") for each in layout)
                assert counted * card.compute >= UNITS * sum(each.compute for each in layout)
                assert counted * card.memory >= UNITS * sum(each.memory for each in layout)


def test_a_class_that_names_the_part_counts_it_as_one() -> None:
    assert size_in("H100-1g.10gb", "H100-80GB-1g.10gb", "parts") == UNITS
    assert size_in("H100-1g.10gb", "H100-80GB-1g.20gb", "parts") == 0
    assert size_in("H100", "H100-80GB-1g.10gb", "whole") == 0


def test_figures_are_told_with_three_decimals_at_most() -> None:
    assert [in_words(units, UNITS) for units in (0, 200, 350, 1_200, 2_800)] == [
        "0", "0.143", "0.25", "0.857", "2",
    ]  # fmt: skip
    assert card_of("H100-80GB-1g.10gb") == "H100-80GB"


# --- what quotas serve --------------------------------------------------------------------------


@pytest.mark.parametrize("patience", ["immediate", "patient"])
def test_a_quota_of_one_card_serves_exactly_seven_sevenths(
    market: Divided, patience: Patience
) -> None:
    market.count("parts")
    bids = [market.want("red", f"bid {n}", "1g.10gb", patience=patience) for n in range(8)]

    market.run()

    served = [str(bid) in market.granted() for bid in bids]
    assert served.count(True) == 7
    assert market.told(bids[served.index(False)]) == "quota"


def test_a_refusal_tells_the_arithmetic_with_the_fraction(market: Divided) -> None:
    market.count("parts")
    for number in range(7):
        market.want("red", f"bid {number}", "1g.10gb")
    market.run()
    quotas = book_of_all(market).quotas
    assert quotas is not None

    answer = quotas.check(next(iter(quotas.uses.values())))

    assert answer.reason == "quota"
    assert answer.figures == (
        "H100: 1 of 1 GPUs used, 0.143 more asked: 0.143 > 0 that can be had (cohort)"
    )


def test_who_asks_why_is_told_the_arithmetic(market: Divided) -> None:
    market.count("parts")
    bids = [market.want("red", f"bid {number}", "1g.10gb") for number in range(8)]
    market.run()
    book = book_of_all(market)

    explained = book.explain(book.bids[bids[-1]], now=from_above(market.now))

    assert explained.reason == "quota"
    assert "1 of 1 GPUs used, 0.143 more asked" in explained.told
    assert [stage.left for stage in explained.funnel][-2:] == [7, 0], (
        "of seven left, quota took all"
    )


def test_quotas_are_raised_by_whole_cards(market: Divided) -> None:
    market.count("parts")
    for number in range(7):
        market.want("red", f"bid {number}", "1g.10gb")
    waits = market.want("red", "waits", "1g.10gb")
    market.run()

    found = advise(market.store, market=MARKET, bid_id=waits, now=market.now)

    assert found is not None
    [change] = [each for each in found if each.what == "quota"]
    assert (change.gpus, change.gpu_class) == (1, "H100")


def test_counted_whole_a_class_of_cards_says_nothing_of_instances(market: Divided) -> None:
    bids = [market.want("red", f"bid {number}", "1g.10gb") for number in range(8)]
    market.run()
    assert all(str(bid) in market.granted() for bid in bids)


def test_four_that_take_all_the_memory_are_a_card() -> None:
    market = Divided()
    market.cards("quarters", *("1g.20gb",) * 4, count=2)
    market.govern(red=(1, 0))
    market.count("parts")

    bids = [market.want("red", f"bid {number}", "1g.20gb") for number in range(5)]
    market.run()

    assert [str(bid) in market.granted() for bid in bids] == [True] * 4 + [False]


def test_whole_cards_and_parts_share_one_quota() -> None:
    market = Divided()
    market.cards("sevenths", *SEVENTHS, count=2)
    market.offer("rack", gpus=4, windows=[(NOON, NOON + HOUR)])
    market.govern(red=(2, 0))
    market.count("parts")

    whole = market.want("red", "whole", "")
    parts = [market.want("red", f"bid {number}", "1g.10gb") for number in range(7)]
    more, another = market.want("red", "more", "1g.10gb"), market.want("red", "another", "")
    market.run()

    assert all(str(bid) in market.granted() for bid in (whole, *parts))
    assert str(more) not in market.granted() and str(another) not in market.granted()


def test_what_is_held_is_counted_anew_when_the_policy_changes(market: Divided) -> None:
    market.cards("more", *SEVENTHS, windows=False)
    for number in range(7):
        market.want("red", f"bid {number}", "1g.10gb")
    market.run()
    before = book_of_all(market).quotas
    market.count("parts")
    after = book_of_all(market).quotas
    market.count("whole")
    again = book_of_all(market).quotas

    assert before is not None and after is not None and again is not None
    at = from_above(market.now)
    used = [each.usage("H100", at) for each in (before, after, again)]
    assert [each.used(RED) for each in used if each is not None] == [0, UNITS, 0]
    # In both, with all that was asked before, the sums are those of the policy that is in force.
    assert after.used_within("H100", RED, at, at + 3_600_000) == 3_600_000


def test_one_market_folds_to_the_same_whenever_it_is_read(market: Divided) -> None:
    market.want("red", "one", "1g.10gb")
    market.run()
    market.count("parts")
    for number in range(9):
        market.want("red", f"bid {number}", "1g.10gb")
    market.run()

    assert len(market.granted()) == 7


def test_what_is_owned_comes_back_from_who_borrowed_parts_of_it() -> None:
    """Blue borrows all that is red's: one instance goes for each that red wants."""
    market = Divided()
    market.cards("sevenths", *SEVENTHS, windows=False)
    market.govern(red=(1, None), blue=(0, None))
    market.count("parts")
    for number in range(7):
        market.want("blue", f"lent {number}", "1g.10gb", hours=30, deadline=market.now + 31 * HOUR)
    market.run()
    market.wait(minutes=40)

    for number in range(2):
        market.want(
            "red", f"own {number}", "1g.10gb", at=4, hours=2, deadline=market.now + 3 * HOUR
        )
        market.run()
        market.take_up()
    market.run()

    cut = [granted.cuts for granted in market.granted().values() if granted.cuts]
    assert [len(cuts) for cuts in cut] == [1, 1]
    at = from_above(market.now + HOUR)
    quotas = book_of_all(market).quotas
    usage = None if quotas is None else quotas.usage("H100", at)
    assert usage is not None and usage.used(RED) == 2 * UNITS // 7
    assert usage.borrowed(str(unit_of("blue"))) == 5 * UNITS // 7


# --- fair shares --------------------------------------------------------------------------------


def test_seven_sevenths_are_remembered_as_the_card_that_they_are() -> None:
    market = Divided()
    market.cards("sevenths", *SEVENTHS, count=2, windows=False)
    market.offer("rack", gpus=2)
    market.govern(red=(None, None), blue=(None, None))
    for number in range(7):
        market.want("red", f"bid {number}", "1g.10gb")
    market.want("blue", "card", "")
    market.run()
    shares: dict[Counts, dict[str, tuple[str, float]]] = {}
    ways: tuple[Counts, ...] = ("whole", "parts")
    for counts in ways:
        market.count(counts)
        quotas = book_of_all(market).quotas
        assert quotas is not None
        capacity = {"H100-80GB-1g.10gb": 14, "H100-80GB": 2}
        found = quotas.shares(capacity, at=from_above(market.now + HOUR))
        shares[counts] = {each.node: (each.dominant, each.fraction) for each in found}

    blue = str(unit_of("blue"))
    half = shares["whole"][RED][1]
    assert [shares["whole"][unit][0] for unit in (RED, blue)] == ["H100-80GB-1g.10gb", "H100-80GB"]
    assert shares["whole"][blue][1] == pytest.approx(half)
    # All there is of H100 is four cards: of them both had one.
    assert [shares["parts"][unit][0] for unit in (RED, blue)] == ["H100-80GB", "H100-80GB"]
    assert [shares["parts"][unit][1] for unit in (RED, blue)] == pytest.approx([half / 2] * 2)


# --- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("figures", [{"gpus": 1}, {"gpu_hours": 1}], ids=["gpus", "hours"])
@pytest.mark.parametrize("scope", ["subscriber", "tenant"])
def test_limits_of_gpus_and_hours_count_parts(scope: Any, figures: dict[str, Any]) -> None:
    market = Divided()
    market.cards("sevenths", *SEVENTHS, count=2)
    market.govern(red=(None, None))
    market.policy(limit(scope, **figures))
    market.count("parts")

    bids = [market.want("red", f"bid {number}", "1g.10gb") for number in range(8)]
    market.run()

    assert [str(bid) in market.granted() for bid in bids] == [True] * 7 + [False]
    assert market.told(bids[-1]) == f"limit-{scope}"


def test_money_and_memory_are_those_of_the_instances() -> None:
    for figures in ({"money": Money(4 * 10**9)}, {"memory_mib": 3 * 9 * 1_024}):
        market = Divided()
        market.cards("sevenths", *SEVENTHS)
        market.govern(red=(None, None))
        market.policy(limit("subscriber", **figures))
        market.count("parts")

        for number in range(7):
            market.want("red", f"bid {number}", "1g.10gb", patience="patient", at=2)
        market.run()

        assert len(market.granted()) == (2 if "money" in figures else 3)


def test_a_limit_of_one_bid_lets_it_have_parts_of_so_many_cards() -> None:
    market = Divided()
    market.cards("sevenths", *SEVENTHS, count=2)
    market.govern(red=(None, None))
    market.policy(limit("bid", gpus=1))
    market.count("parts")

    seven = market.want("red", "seven", "1g.10gb", gpus=7, gang=True)
    eight = market.want("red", "eight", "1g.10gb", gpus=8, gang=True)
    market.run()

    assert str(seven) in market.granted() and str(eight) not in market.granted()


# --- at every moment ----------------------------------------------------------------------------


@given(st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_no_moment_has_more_parts_than_the_quota_in_either_lane(random: Random) -> None:
    """Red has some H100 and may borrow none: what it uses is added up in fractions of cards."""
    market, cards = Divided(), random.choice((1, 2))
    market.cards("sevenths", *SEVENTHS, count=2, windows=False)
    market.cards("mixed", "3g.40gb", "2g.20gb", "1g.20gb", windows=False)
    market.offer("rack", gpus=2, at=0.5)
    market.govern(red=(cards, 0))
    market.count("parts")
    hours = (0.5, 1, 2)
    for number in range(random.randint(4, 30)):
        profile = random.choice(("1g.10gb", "1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb"))
        patience: Patience = random.choice(("immediate", "patient"))
        length = random.choice(hours)
        if random.random() < 0.15:
            market.ask("red", f"bid {number}", 1, hours=length, patience=patience)
        else:
            market.want(
                "red", f"bid {number}", profile, patience=patience, hours=length,
                deadline=market.now + timedelta(hours=random.choice((2, 5))),
                at=random.choice((1, 2, 3)),
            )  # fmt: skip
        if random.random() < 0.3:
            market.run()
    market.run()

    grants = list(market.granted().values())
    for at in {from_below(each.window.starts_at) for each in grants}:
        there = [
            each
            for each in grants
            if from_below(each.window.starts_at) <= at < from_above(each.window.ends_at)
        ]
        assert sum(map(exactly, there)) <= cards


PARTS = {
    "1g.10gb": Fraction(1, 7),
    "1g.20gb": Fraction(1, 4),
    "2g.20gb": Fraction(2, 7),
    "3g.40gb": Fraction(1, 2),
}


def exactly(granted: LeaseGranted) -> Fraction:
    part = PARTS.get(granted.gpu_model.rpartition("-")[2], Fraction(1))
    return part * sum(len(share.gpu_uuids) for share in granted.shares)


@given(st.randoms(use_true_random=False), st.integers(8, 30))
@settings(max_examples=15, deadline=None)
def test_a_round_of_parts_is_found_sound_by_who_checks_it(random: Random, acts: int) -> None:
    crowd, lane = GovernedCrowd(random), Lane(Book(MARKET))
    crowd.say(CountingSet(market=MARKET, counts="parts", at=NOON))
    for _ in range(acts):
        for event, position in crowd.acts(lane.book):
            lane.take_in(event, position, now=crowd.now)
    on_round(lane.book, now=crowd.now, round_id=UUID(int=5), warn=no_fault)


@pytest.mark.parametrize(
    ("nominal", "too_many"), [(2, 0), (1, 7), (0, 14)], ids=["two", "one", "none"]
)
def test_who_checks_a_round_finds_the_sevenths_that_are_too_many(
    nominal: int, too_many: int
) -> None:
    """A round of fourteen sevenths is cleared under no quota; then one is set."""
    market = Divided()
    market.cards("sevenths", *SEVENTHS, count=2)
    market.govern(red=(None, None))
    for number in range(14):
        market.want("red", f"bid {number}", "1g.10gb", patience="patient")
    book = book_of(market)
    told, grants = cleared(book, warn=no_fault)
    assert len(grants) == 14

    counting = CountingSet(market=MARKET, counts="parts", at=NOON)
    put(book, (counting, quota(RED, nominal, borrowing=0)))
    found = faults(book, told, grants)

    assert len({fault.lease_id for fault in found}) == too_many
    assert all("H100: " in fault.said and f"used of {nominal}" in fault.said for fault in found)


class WithoutParts(GovernedCrowd):
    """A crowd that lists cards only, and never changes how parts are counted."""

    def _offer(self, book: Book) -> None:
        super(GovernedCrowd, self)._offer(book)

    def _policy(self, book: Book) -> Any:
        while isinstance(event := super()._policy(book), CountingSet):
            pass
        return event


@given(st.integers(0, 2**32), st.integers(10, 40))
@settings(max_examples=15, deadline=None)
def test_where_there_are_no_parts_both_ways_to_count_decide_alike(seed: int, acts: int) -> None:
    decided = []
    for counts in ("whole", "parts"):
        crowd, lane = WithoutParts(Random(seed)), Lane(Book(MARKET))
        crowd.say(CountingSet(market=MARKET, counts=counts, at=NOON))
        for number in range(acts):
            for event, position in crowd.acts(lane.book):
                lane.take_in(event, position, now=crowd.now)
            if number % 10 == 9:
                events = on_round(lane.book, now=crowd.now, round_id=UUID(int=number + 1))
                lane.book.decided(events, lane.book.read_to)
                lane.decided += events
        decided.append(lane.decided)
    assert decided[0] == decided[1]


# --- the search ---------------------------------------------------------------------------------


def test_the_search_keeps_no_instance_for_who_may_not_have_it() -> None:
    """Red bids dearly for all seven and may have three sevenths: the rest is for who bids less."""
    market = Divided()
    market.cards("sevenths", *SEVENTHS)
    market.cards("half", "3g.40gb")
    market.govern(red=(None, None), blue=(None, None))
    market.policy(quota("lab", 1))
    market.policy(quota(RED, 0, borrowing=1))
    market.count("parts")
    market.want("red", "half", "3g.40gb", at=40, patience="patient")
    for number in range(7):
        market.want("red", f"bid {number}", "1g.10gb", at=8, patience="patient")
    for number in range(7):
        market.want("free", f"other {number}", "1g.10gb", at=1, patience="patient")

    told, grants = cleared(book_of(market), warn=no_fault)

    assert sorted(map(exactly, grants)) == [Fraction(1, 7)] * 7 + [Fraction(1, 2)]
    assert told.certificate is not None
    # The half and three sevenths of red's, and four of others; all of red's would be 95.
    assert told.certificate.welfare_nanos == (398 + 3 * 78 + 4 * 8) * 10**8
    assert told.certificate.bound_nanos < 80 * 10**9
