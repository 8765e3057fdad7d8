"""However many bids new supply breaks off at, the market goes on soon; a bound on the work."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from structlog.testing import capture_logs

from ledger.domain.ids import BidId
from marketplace.domain.book.book import Book
from marketplace.domain.clearing import bisect, continuous
from marketplace.domain.clearing.bisect import GROUP_MAX, LOOKS_MAX, LookBudget
from marketplace.domain.clearing.fills import Clearing
from marketplace.domain.decisions import decide
from tests.marketplace.support.market import Market, named
from tests.marketplace.support.rounds import book_of


class Odd(Exception):
    """Nobody expects it."""


def crowd(number: int) -> Market:
    """Return a market in which so many bids wait, the dearest first."""
    market = Market()
    for count in range(number):
        market.bid(f"bid {count}", at=f"{90 - count // 100}.{99 - count % 100:02}")
    market.run()
    return market


def bid(count: int) -> BidId:
    return BidId(named(f"bid bid {count}"))


class Broken:
    """The instant lane, in which decisions that grant one of these bids anything break off."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, culprits: Collection[BidId] | None) -> None:
        self.looked: list[int] = []
        self._culprits = culprits
        monkeypatch.setattr(decide, "clear", self._clear)

    def _clear(self, book: Book, bids: Any, **said: Any) -> Clearing:
        if bids is not None:
            self.looked.append(len(bids))
        found = continuous.clear(book, bids, **said)
        if any(self._culprits is None or f.bid.bid_id in self._culprits for f in found.fills):
            raise Odd("at a grant")
        return found


@pytest.fixture
def few_looks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let 64 bids take part in the search, and return how many may be tried in all."""
    monkeypatch.setattr(bisect, "LOOKS_MAX", 1_000)
    return 500  # each is a look at the bid, and one at the host


def test_where_every_bid_breaks_off_the_work_has_a_bound(
    monkeypatch: pytest.MonkeyPatch, few_looks: int
) -> None:
    market = crowd(200)
    broken = Broken(monkeypatch, None)
    market.offer("a", gpus=4, at=1)
    with capture_logs() as logs:
        market.run()

    assert market.grants() == {}
    assert [line["event"] for line in logs] == ["fact.undecided"]
    assert few_looks <= sum(broken.looked) <= few_looks + 2 * GROUP_MAX
    monkeypatch.setattr(decide, "clear", continuous.clear)
    market.offer("b", gpus=4, at=1)
    market.run()
    assert len(market.grants()) >= 4, "the next supply is offered as ever"


@pytest.mark.parametrize("culprits", [[0], [63], [0, 2], [0, 1, 5]])
def test_all_others_are_served_wherever_a_few_break_off(
    monkeypatch: pytest.MonkeyPatch, few_looks: int, culprits: list[int]
) -> None:
    market = crowd(150)
    broken = Broken(monkeypatch, {bid(count) for count in culprits})
    market.offer("a", gpus=150, at=1)
    with capture_logs() as logs:
        market.run()

    assert set(market.grants()) == {bid(n) for n in range(150) if n not in culprits}
    assert {line["bid"] for line in logs} == {str(bid(count)) for count in culprits}
    assert sum(broken.looked) <= few_looks + 2 * GROUP_MAX + 150


@pytest.mark.parametrize("culprits", [[100], [3, 100]])
def test_nobody_is_blamed_for_whoever_took_no_part_in_the_search(
    monkeypatch: pytest.MonkeyPatch, few_looks: int, culprits: list[int]
) -> None:
    market = crowd(150)
    Broken(monkeypatch, {bid(count) for count in culprits})
    market.offer("a", gpus=150, at=1)
    with capture_logs() as logs:
        market.run()

    assert set(market.grants()) == {bid(n) for n in range(GROUP_MAX) if n not in culprits}
    known = [str(bid(count)) for count in culprits if count < GROUP_MAX]
    assert [line["bid"] for line in logs if line["bid"]] == known
    assert len(logs) == 1
    assert {line["event"] for line in logs} == {"fact.bid-left-out"}


@pytest.mark.parametrize(
    ("near", "wide", "gang", "many"),
    [(1, 9, False, 500), (19, 99, False, GROUP_MAX), (1, 9, True, 100), (4, 4, True, 200)],
)
def test_who_looks_at_more_hosts_takes_more_of_the_work(
    near: int, wide: int, gang: bool, many: int
) -> None:
    market = Market()
    for count in range(600):
        market.bid(f"bid {count}", gang=gang)
    bids = list(book_of(market).bids.values())

    looks = LookBudget(near=near, wide=wide)
    assert len(looks.first(bids)) == many
    looks.take(bids[:many])
    assert not looks.over()
    looks.take(bids[:1] * LOOKS_MAX)
    assert looks.over()
