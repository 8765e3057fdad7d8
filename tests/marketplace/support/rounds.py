"""Rounds of patient bids for tests: the book they start from, and that the check finds no fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from marketplace.domain.book.book import Book
from marketplace.domain.decisions.decide import on_round
from marketplace.domain.facts.events import LeaseGranted, RoundCleared
from marketplace.domain.facts.faults import Fault
from marketplace.domain.facts.instants import from_above
from tests.conftest import NOON
from tests.marketplace.support.market import Market

ROUND = UUID(int=9)


NOW = from_above(NOON)


def book_of(market: Market) -> Book:
    """Return the book of everything that happened, decisions left out."""
    book = Book("main")
    for recorded in market.events():
        book.apply(recorded.event, recorded.position)
        book.read_to = recorded.position
    return book


def cleared(book: Book, **said: Any) -> tuple[RoundCleared, list[LeaseGranted]]:
    """Clear a round."""
    first, *rest = on_round(book, now=NOW, round_id=ROUND, **said)
    assert isinstance(first, RoundCleared)
    return first, [each for each in rest if isinstance(each, LeaseGranted)]


def no_fault(found: Sequence[Fault]) -> None:
    """Fail where anything has to be dropped from a round."""
    assert not found
