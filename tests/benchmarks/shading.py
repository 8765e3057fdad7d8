"""What a bidder gains by saying less than it is worth: the market claims no strategy-proofness.

A round is cleared again and again, each time with one bidder's limit scaled down, everything else
equal. Gain is (worth − price) × GPU-time, against what the truth would have brought that bidder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from uuid import UUID

from marketplace.domain.book.book import Book
from marketplace.domain.facts.instants import from_above
from marketplace.domain.orderbook.open_bid import OpenBid
from marketplace.domain.rounds.batch_clearing import clear_round
from tests.benchmarks.figures import Figure
from tests.conftest import NOON
from tests.marketplace.support.market import Market

SIZES = (12, 40)
"""Bids in a round; thin and thicker."""
TRIED = 6
SHADES_PERCENT = (80, 95)
ROUND = UUID(int=9)
NOW = from_above(NOON)


def run() -> Iterator[Figure]:
    """Measure the mean gain of shading by size of the market."""
    for size in SIZES:
        book = _book(size)
        bids = book.patient()
        chosen = Random(size).sample(bids, TRIED)
        honest = {bid.bid_id: _gain(book, bids, bid, 100) for bid in chosen}
        total = sum(honest.values()) or 1
        for shade in SHADES_PERCENT:
            gained = sum(_gain(book, bids, bid, shade) for bid in chosen) - sum(honest.values())
            yield Figure(
                f"{size} bids: limit said at {shade} % of worth, gain", 100 * gained / total, "%"
            )


def _book(size: int) -> Book:
    dice, market = Random(size), Market()
    for number in range(size // 5):
        market.offer(f"o{number}", gpus=dice.choice((2, 4, 8)), at=dice.uniform(0.5, 1.5))
    for number in range(size):
        hours = dice.choice((1, 2, 4, 8))
        market.bid(
            f"b{number}",
            gpus=dice.choice((1, 1, 2, 4)),
            hours=hours * 4,
            at=round(dice.lognormvariate(0.7, 0.35), 3),
            patience="patient",
        )
    book = Book("main")
    for recorded in market.events():
        book.apply(recorded.event, recorded.position)
        book.read_to = recorded.position
    return book


def _gain(book: Book, bids: list[OpenBid], bid: OpenBid, percent: int) -> int:
    """Return what the bidder gains, in nano-units, with the limit said at so much of its worth."""
    said = replace(bid, limit=bid.limit * percent // 100)
    others = [said if each is bid else each for each in bids]
    others.sort(key=lambda each: each.round_order)
    clearing = clear_round(book, others, now=NOW, round_id=ROUND)
    fill = next((fill for fill in clearing.fills if fill.bid is said), None)
    if fill is None:
        return 0
    return (bid.limit - fill.price) * bid.gpus * bid.duration // 3_600_000
