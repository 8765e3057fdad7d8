"""Between two leases of a GPU its owner may ask for time to clean up."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marketplace.domain.book.book import Book
from marketplace.domain.decisions.decide import on_round
from marketplace.domain.facts.events import ExtensionGranted, LeaseGranted, Patience, RoundCleared
from marketplace.domain.facts.instants import from_above
from marketplace.domain.rounds import batch_clearing, realise
from marketplace.domain.solver.solution import Solution
from marketplace.domain.verification.verify_round import faults
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, Market, named
from tests.marketplace.support.rounds import no_fault

HOUR = timedelta(hours=1)
TEN = timedelta(minutes=10)


def starts(market: Market, *words: str) -> list[timedelta]:
    found = []
    for word in words:
        granted = market.grant(word)
        assert granted is not None, word
        found.append(granted.window.starts_at - NOON)
    return found


@pytest.mark.parametrize("patience", ["immediate", "patient"])
def test_the_next_lease_starts_when_the_gpu_is_clean(patience: Patience) -> None:
    market = Market()
    market.offer("a", cleaning=TEN)
    for word in ("x", "y", "z"):
        market.bid(word, patience=patience)

    market.run()

    assert sorted(starts(market, "x", "y", "z")) == [
        timedelta(),
        HOUR + TEN,
        2 * HOUR + 2 * TEN,
    ]


def test_a_lease_before_another_ends_early_enough_to_clean_up() -> None:
    market = Market()
    market.offer("a", cleaning=TEN)
    market.bid("later", start=NOON + HOUR, deadline=NOON + 2 * HOUR)
    market.run()

    market.bid("tight", deadline=NOON + HOUR)
    market.bid("fits", hours=0.75, deadline=NOON + HOUR)
    market.run()

    assert market.grant("tight") is None
    assert starts(market, "fits") == [timedelta()]


def test_cleaning_reaches_from_one_window_into_the_next() -> None:
    """Both bids are served by one offer that comes, in one look."""
    market = Market()
    opens = market.now + HOUR
    market.bid("first", at=3, start=opens, deadline=opens + HOUR)
    market.bid("second", at=2, start=opens + HOUR, deadline=opens + 3 * HOUR)
    market.run()

    gap = timedelta(minutes=1)
    windows = [(opens, opens + HOUR), (opens + HOUR + gap, opens + 4 * HOUR)]
    market.offer("a", cleaning=timedelta(minutes=30), windows=windows)
    market.run()

    first, second = market.grant("first"), market.grant("second")
    assert first is not None and second is not None
    assert second.window.starts_at == first.window.ends_at + timedelta(minutes=30)


def test_a_lease_may_go_on_until_its_owner_keeps_the_gpu() -> None:
    """Its owner wants no time to clean up before that, neither of a new lease."""
    market = Market()
    began = market.now
    market.offer("a", cleaning=timedelta(minutes=30))
    market.bid("x", hours=1, deadline=began + HOUR)
    market.bid("kept", hours=1, start=began + 2 * HOUR, deadline=began + 3 * HOUR)
    market.run()
    market.reclaim("kept")
    market.close("kept", reason=201)
    market.run()

    market.extend("x", began + 1.75 * HOUR)
    market.run()

    assert isinstance(market.decisions()[-1].event, ExtensionGranted)


def test_a_lease_that_ends_early_is_cleaned_from_then_on() -> None:
    market = Market()
    market.offer("a", cleaning=TEN)
    market.bid("x", hours=8)
    market.bid("y", deadline=NOON + 3 * HOUR)
    market.run()
    market.wait(hours=1)
    market.close("x")

    market.run()

    assert starts(market, "y") == [HOUR + TEN]


def test_an_extension_leaves_time_to_clean_before_the_next_lease() -> None:
    market = Market()
    market.offer("a", cleaning=TEN)
    market.bid("x")
    market.bid("y", start=NOON + 3 * HOUR, deadline=NOON + 4 * HOUR)
    market.run()

    market.extend("x", NOON + 3 * HOUR)
    market.run()
    declined = market.decisions()[-1].type
    market.extend("x", NOON + 3 * HOUR - TEN)
    market.run()

    assert declined == "marketplace.extension-declined"
    assert market.decisions()[-1].type == "marketplace.extension-granted"


def test_no_random_round_forgets_to_clean() -> None:
    random, market = Random(7), Market()
    for word in "abcd":
        market.offer(word, gpus=2, at=1, cleaning=random.choice([timedelta(), TEN]))
    for number in range(40):
        market.bid(
            str(number),
            gpus=random.choice([1, 2, 3]),
            gang=True,
            hours=random.choice([0.5, 1, 2]),
            at=random.randint(1, 5),
            patience="patient",
        )

    market.run()

    spans: dict[str, list[tuple[datetime, datetime]]] = {}
    for granted in market.grants().values():
        for share in granted.shares:
            for uuid in share.gpu_uuids:
                window = granted.window
                gap = TEN if _cleaned(market, uuid) else timedelta()
                spans.setdefault(uuid, []).append((window.starts_at, window.ends_at + gap))
    assert len(market.grants()) > 30
    for taken in spans.values():
        for earlier, later in pairwise(sorted(taken)):
            assert earlier[1] <= later[0]


def _cleaned(market: Market, uuid: str) -> bool:
    book = Book(MARKET)
    for recorded in market.events():
        book.apply(recorded.event, recorded.position)
    return any(each.cleaning for each in book.offers.values() if uuid in each.groups)


def test_a_round_that_forgot_to_clean_is_found_out() -> None:
    market, book = Market(), Book(MARKET)
    market.offer("a", gpus=2, cleaning=TEN)
    for word in ("x", "y"):
        market.bid(word, patience="patient", deadline=NOON + 5 * HOUR)
    for recorded in market.events():
        book.apply(recorded.event, recorded.position)
    cleared, *granted = on_round(book, now=from_above(NOON), round_id=named("round"))
    assert isinstance(cleared, RoundCleared)
    leases = [each for each in granted if isinstance(each, LeaseGranted)]
    share = leases[0].shares[0]
    at = leases[0].window.ends_at
    late = replace(
        leases[1],
        shares=(share,),
        window=replace(leases[1].window, starts_at=at, ends_at=at + HOUR),
    )

    found = faults(book, cleared, [leases[0], late])

    assert any("is not cleaned" in fault.said for fault in found)


def one_gpu(cleaning: timedelta, *lengths: tuple[float, float]) -> Book:
    """Return a book with one GPU for three hours, and patient bids: hours and limit of each."""
    market = Market()
    market.offer("a", cleaning=cleaning, windows=[(NOON, NOON + 3 * HOUR)])
    for number, (hours, at) in enumerate(lengths):
        market.bid(
            str(number), hours=hours, at=at, patience="patient", deadline=NOON + 3 * HOUR
        )  # fmt: skip
    book = Book(MARKET)
    for recorded in market.events():
        book.apply(recorded.event, recorded.position)
    return book


def test_a_gpu_of_two_offers_is_cleaned_as_the_offer_of_each_lease_asks() -> None:
    """Until three it is not cleaned; whoever has it from then on wants it clean."""
    market = Market()
    market.offer("early", host="a", at=1, windows=[(NOON, NOON + 3 * HOUR)])
    market.offer("late", host="a", at=1, windows=[(NOON + 3 * HOUR, NOON + 6 * HOUR)], cleaning=TEN)
    for word in ("x", "y", "z"):
        market.bid(word, patience="patient", deadline=NOON + 3 * HOUR)
    market.bid("late", patience="patient", start=NOON + 3 * HOUR, deadline=NOON + 6 * HOUR)
    market.run()

    assert sorted(starts(market, "x", "y", "z")) == [timedelta(), HOUR, 2 * HOUR]
    assert starts(market, "late") == [3 * HOUR + TEN]
    assert all(
        each.reason != "unverified"
        for cleared in market.decisions()
        if isinstance(cleared.event, RoundCleared)
        for each in cleared.event.unmatched
    )

    book = Book(MARKET)
    for recorded in market.events():
        if not recorded.stream.startswith("market-"):
            book.apply(recorded.event, recorded.position)
    cleared, *granted = [each.event for each in market.decisions()][:5]
    assert isinstance(cleared, RoundCleared)
    grants = [each for each in granted if isinstance(each, LeaseGranted)]
    last = max(grants, key=lambda each: each.window.starts_at)
    window = replace(last.window, starts_at=NOON + 3 * HOUR, ends_at=NOON + 4 * HOUR)
    hasty = [replace(each, window=window) if each is last else each for each in grants]
    [fault] = [each for each in faults(book, cleared, hasty) if "not cleaned" in each.said]
    assert fault.lease_id is not None


def test_the_search_of_a_round_knows_how_long_cleaning_takes() -> None:
    """Two of an hour and a half fill the window, but for the ten minutes between them."""
    lengths = ((1.5, 5), (1.5, 5), (1, 4), (1, 4))
    found = {}
    for cleaning in (timedelta(), TEN):
        book = one_gpu(cleaning, *lengths)
        now = from_above(NOON)
        cleared, *granted = on_round(
            book, now=now, round_id=named("round"), enough=lambda: False, warn=no_fault
        )
        assert isinstance(cleared, RoundCleared) and cleared.certificate is not None
        certificate = cleared.certificate
        assert certificate.bound_nanos == pytest.approx(certificate.welfare_nanos, rel=1e-6)
        found[cleaning] = sorted(
            each.window.length for each in granted if isinstance(each, LeaseGranted)
        )

    assert found == {timedelta(): [1.5 * HOUR, 1.5 * HOUR], TEN: [HOUR, 1.5 * HOUR]}


def test_the_last_lease_of_a_window_may_end_with_it() -> None:
    book = one_gpu(TEN, (3, 2))

    cleared, *granted = on_round(book, now=from_above(NOON), round_id=named("round"))

    assert isinstance(cleared, RoundCleared)
    assert len(granted) == 1


@given(st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=30, deadline=None)
def test_what_the_search_gives_out_is_clean_in_time(random: Random, mixed: bool) -> None:
    """Nothing is left to the sweep but where owners clean for different lengths, or quotas bind."""
    market = Market()
    for host in "abc":
        cleaning = timedelta(minutes=random.choice((0, 10, 25))) if mixed else TEN
        market.offer(
            host, gpus=random.randint(1, 3), at=random.choice((1, 2)), cleaning=cleaning,
            windows=[(NOON, NOON + random.randint(2, 8) * HOUR)],
        )  # fmt: skip
    for number in range(12):
        hours = random.choice((0.5, 1, 1.5, 2))
        market.bid(
            str(number), gpus=random.randint(1, 3), gang=random.random() < 0.3, hours=hours,
            at=random.randint(1, 5), patience="patient",
            deadline=NOON + timedelta(hours=hours + random.choice((0, 1, 4))),
        )  # fmt: skip
    book, found = Book(MARKET), list[Solution]()
    for recorded in market.events():
        book.apply(recorded.event, recorded.position)
    pulled = list[int]()

    def given_names(pools: Any, bids: Any, solution: Solution) -> Any:
        found.append(solution)
        return realise.given_names(pools, bids, solution)

    def pulled_forward(*args: Any, **said: Any) -> Any:
        kept = realise.pulled_forward(*args, **said)
        pulled.append(len(kept))
        return kept

    with (
        mock.patch.object(batch_clearing, "given_names", given_names),
        mock.patch.object(batch_clearing, "pulled_forward", pulled_forward),
    ):
        on_round(book, now=from_above(NOON), round_id=named("round"), warn=no_fault)

    for solution, kept in zip(found, pulled, strict=True):
        if not mixed:
            assert kept == sum(placed is not None for placed in solution.placed)
