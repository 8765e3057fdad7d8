"""A book with quotas goes on from a snapshot as if it had been folded from the first fact."""

from __future__ import annotations

from dataclasses import fields
from random import Random
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from marketplace.domain.book.book import Book
from marketplace.domain.book.snapshot import state_of
from marketplace.domain.decisions.decide import on_round
from marketplace.domain.quotas.policies_in_force import Policies
from marketplace.domain.quotas.quota_book import QuotaBook
from marketplace.domain.quotas.snapshot import PoliciesState, QuotaState
from marketplace.engine import Engine
from marketplace.snapshots.memory import MemorySnapshots
from marketplace.snapshots.port import usable
from tests.marketplace.quotas.governed_crowd import GovernedCrowd
from tests.marketplace.support.governed import Governed
from tests.marketplace.support.market import MARKET
from tests.marketplace.support.random_market import Lane
from tests.marketplace.support.snapshots import kept

ACTS = 30


def test_nothing_of_quotas_is_forgotten() -> None:
    made_from_the_rest = {"_classes", "_layers", "_sums", "_lent"}
    in_the_state = {"_over" if f.name == "over" else f.name for f in fields(QuotaState)}
    in_the_state = {"_decayed" if name == "decayed" else name for name in in_the_state}

    assert set(vars(QuotaBook())) == made_from_the_rest | in_the_state
    assert {f.name for f in fields(Policies)} == {f.name for f in fields(PoliciesState)}


def round_of(lane: Lane, number: int, now: int) -> list[Any]:
    """Clear a round and take it in."""
    events = on_round(lane.book, now=now, round_id=UUID(int=number))
    for each in events:
        lane.book.apply(each, lane.book.read_to)
    return events


def equal(one: Book, other: Book) -> None:
    assert state_of(one) == state_of(other)
    assert one.quotas is not None and other.quotas is not None
    assert one.quotas.policies == other.quotas.policies
    assert one.quotas._decayed == other.quotas._decayed


@given(st.randoms(use_true_random=False), st.integers(5, ACTS - 1))
@settings(max_examples=12, deadline=None)
def test_a_book_with_quotas_goes_on_as_if_nothing_had_been(random: Random, when: int) -> None:
    crowd, whole = GovernedCrowd(random), Lane(Book(MARKET))
    other: Lane | None = None

    for act in range(ACTS):
        if act == when:
            other = Lane(kept(whole.book))
            equal(other.book, whole.book)
        for event, position in crowd.acts(whole.book):
            decided = whole.take_in(event, position, now=crowd.now)
            if other is not None:
                assert other.take_in(event, position, now=crowd.now) == decided
        if act % 6 == 5:
            cleared = round_of(whole, act, crowd.now)
            if other is not None:
                assert round_of(other, act, crowd.now) == cleared

    assert other is not None
    equal(other.book, whole.book)


def test_an_engine_starts_from_a_snapshot_of_a_market_with_quotas() -> None:
    market, snapshots = Governed(), MemorySnapshots()
    market.keep(snapshots, facts=4)
    market.offer("rack", gpus=8)
    market.govern(red=(2, 1), blue=(4, 0))
    first = market.ask("red", "first", 3)
    market.run()
    assert usable(snapshots, market.store, MARKET) is not None

    market.engine = Engine(market.store, MARKET, snapshots=snapshots)
    then = market.ask("red", "then", 1)
    patient = market.ask("red", "patient", 1, patience="patient")
    market.run()

    granted = market.granted()
    ends = granted[str(first)].window.ends_at
    assert granted[str(then)].window.starts_at == ends
    assert granted[str(patient)].window.starts_at >= ends
