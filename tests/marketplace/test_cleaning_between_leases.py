"""Between two leases of a GPU its owner may ask for time to clean up."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from random import Random

import pytest

from marketplace.domain.book import Book
from marketplace.domain.deciding import on_round
from marketplace.domain.events import LeaseGranted, Patience, RoundCleared
from marketplace.domain.moments import from_above
from marketplace.domain.verification import faults
from tests.conftest import NOON
from tests.marketplace.trading import MARKET, Market, named

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
