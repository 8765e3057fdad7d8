"""The search of a round heeds quotas and limits: no capacity is kept for who may not have it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.domain.event import Event
from ledger.domain.money import Money
from listings.domain.events import OfferPublished
from marketplace.domain.admission.gate import gate_of
from marketplace.domain.book.book import Book
from marketplace.domain.clearing import work_budget
from marketplace.domain.decisions.decide import on_round
from marketplace.domain.facts.events import GpuRequest, RoundCleared
from marketplace.domain.rounds import batch_clearing
from marketplace.domain.rounds.class_problem import part_of
from tests.conftest import NOON
from tests.marketplace.quotas.governed_crowd import GovernedCrowd
from tests.marketplace.support.governed import Governed, unit_of
from tests.marketplace.support.market import MARKET, MEMORY_MIB, named
from tests.marketplace.support.policies import limit, override, quota, use
from tests.marketplace.support.random_market import Lane
from tests.marketplace.support.rounds import NOW, book_of, cleared, no_fault

HOUR = timedelta(hours=1)


def crowded(**limits: object) -> Governed:
    """Return a market of eight GPUs for one hour: red wants all of it dearly, others some.

    Once red has only two, the best use of the other six are two threes, not the five that pays
    more per GPU.
    """
    market = Governed()
    market.offer("rack", gpus=8, at=1, windows=[(NOON, NOON + HOUR)])
    market.govern(red=(None, None), blue=(None, None))
    if limits:
        market.policy(limit("subscriber", unit_of("red"), **limits))
    for number in range(8):
        market.ask("red", f"red {number}", 1, at=9, patience="patient")
    market.ask("blue", "five", 5, at=4, patience="patient")
    for word in ("three", "other three"):
        market.bid(word, gpus=3, at=3.9, patience="patient")
    return market


def names(market: Governed, **said: Any) -> tuple[RoundCleared, set[str]]:
    """Return a round and the names of the bids that are served, red ones counted."""
    told, grants = cleared(book_of(market), warn=no_fault, **said)
    words = [*(f"red {number}" for number in range(8)), "five", "three", "other three"]
    by_id = {named(f"bid {word}"): word for word in words}
    served = [by_id[granted.bid_id] for granted in grants]
    red = sum(word.startswith("red") for word in served)
    return told, {f"{red} red", *(word for word in served if not word.startswith("red"))}


BEST = {"2 red", "three", "other three"}


def test_without_quotas_the_dear_bids_have_it_all() -> None:
    assert names(crowded())[1] == {"8 red"}


@pytest.mark.parametrize(
    "figures",
    [
        {"gpus": 2},
        {"memory_mib": 2 * 81_559},
        {"gpu_hours": 2},
        {"money": Money(18 * 10**9)},
    ],
    ids=lambda figures: next(iter(figures)),
)
def test_a_limit_is_known_to_the_search(figures: dict[str, object]) -> None:
    assert names(crowded(**figures))[1] == BEST


def test_a_quota_is_known_to_the_search() -> None:
    market = crowded()
    market.policy(quota(str(unit_of("red")), 0, borrowing=2))
    market.policy(quota("lab", 8))

    assert names(market)[1] == BEST


def test_an_override_binds_for_its_time() -> None:
    market = crowded()
    market.policy(quota("lab", 8))
    market.policy(override(str(unit_of("red")), 2, 0.25))

    assert names(market)[1] == BEST


def test_a_bid_that_may_not_lease_a_model_is_not_searched_for() -> None:
    market = crowded()
    market.policy(use("lease", str(unit_of("red")), allowed=False))

    assert {"0 red", "five"} < names(market)[1]


def test_what_runs_already_counts() -> None:
    market = Governed()
    market.offer("more", gpus=2, at=1, windows=[(NOON, NOON + HOUR)])
    market.govern(red=(None, None), blue=(None, None))
    market.ask("red", "runs", 2)
    market.run()
    market.policy(quota("lab", 8))
    market.policy(quota(str(unit_of("red")), 0, borrowing=2))
    market.offer("rack", gpus=6, at=1, windows=[(NOON, NOON + HOUR)])
    for number in range(6):
        market.ask("red", f"red {number}", 1, at=9, patience="patient")
    market.bid("five", gpus=5, at=4, patience="patient")
    for word in ("three", "other three"):
        market.bid(word, gpus=3, at=3.9, patience="patient")

    assert names(market)[1] == {"0 red", "three", "other three"}


def test_who_is_kept_out_by_quota_alone_raises_no_price() -> None:
    """Red would pay 9, but its quota is used up: nobody is scarce because of it."""
    market = Governed()
    market.offer("rack", gpus=4, at=1, windows=[(NOON, NOON + HOUR)])
    market.govern(red=(None, None), blue=(None, None))
    market.policy(limit("subscriber", unit_of("red"), gpus=2))
    for number in range(4):
        market.ask("red", f"red {number}", 1, at=9, patience="patient")
    market.bid("free", gpus=2, at=3, patience="patient")

    told, grants = cleared(book_of(market), warn=no_fault)

    assert sum(len(share.gpu_uuids) for g in grants for share in g.shares) == 4
    assert {granted.price.nanos_per_gpu_hour for granted in grants} == {10**9}
    assert told.certificate is not None
    assert told.certificate.paradoxical == 0


def test_quotas_that_cannot_bind_are_not_posed() -> None:
    market = crowded(gpus=100)
    market.policy(quota("lab", 100))
    book = book_of(market)

    part = part_of(book, book.patient(), book.calendar, gate_of(book), NOW)

    assert part.bounds.quotas == []


@given(st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_no_round_under_any_policies_has_a_fault(random: Random) -> None:
    crowd, lane = GovernedCrowd(random), Lane(Book(MARKET))
    for act in range(30):
        for event, position in crowd.acts(lane.book):
            lane.take_in(event, position, now=crowd.now)
        if act % 6 == 5:
            round_id = UUID(int=act)
            said = {"now": crowd.now, "round_id": round_id}
            events = on_round(lane.book, **said, warn=no_fault)  # type: ignore[arg-type]
            if events:
                first = events[0]
                assert isinstance(first, RoundCleared) and first.certificate is not None
                steps = dict(first.certificate.iterations)
                assert on_round(lane.book, **said, steps=steps) == events  # type: ignore[arg-type]
            for each in events:
                lane.book.apply(each, lane.book.read_to)


class Roomy(Governed):
    """The GPUs of rack r2 have a little more memory."""

    def put(self, stream: str, event: Event):  # type: ignore[no-untyped-def]
        if isinstance(event, OfferPublished) and ("rack", "r2") in event.labels:
            more = tuple(replace(gpu, memory_mib=gpu.memory_mib + 1) for gpu in event.gpus)
            event = replace(event, gpus=more)
        return super().put(stream, event)


@pytest.mark.parametrize("short", [0, 1])
def test_a_gang_moves_nearer_only_where_its_limits_allow_it(short: int) -> None:
    """It fits into rack r2 as a whole; with one MiB less to it, it stays over both racks."""
    market = Roomy()
    market.govern(red=(0, None))
    market.policy(quota("lab", 8))
    for word, rack, gpus in (("a", "r1", 4), ("b", "r2", 4), ("c", "r2", 2), ("d", "r2", 2)):
        market.offer(word, gpus=gpus, labels=(("rack", rack),))
    memory = 8 * (MEMORY_MIB["H100-80GB"] + 1) - short
    market.policy(limit("subscriber", unit_of("red"), memory_mib=memory))
    market.asking = "red"
    request = GpuRequest(prefer=("label.rack",))
    market.bid("x", gpus=8, gang=True, patience="patient", request=request)

    _, [granted] = cleared(book_of(market), warn=no_fault)

    hosts = {share.host_id for share in granted.shares}
    assert (named("host a") in hosts) == bool(short)


@given(st.randoms(use_true_random=False), st.integers(0, 12))
@settings(max_examples=20, deadline=None)
def test_a_round_that_was_late_can_be_made_again(random: Random, looks: int) -> None:
    """However few each stage came to try: the same steps give the same round."""
    crowd, lane = GovernedCrowd(random), Lane(Book(MARKET))
    with (
        mock.patch.object(work_budget, "TRIES_MIN", 1),
        mock.patch.object(batch_clearing, "FIRST_MIN", 1),
    ):
        for act in range(24):
            for event, position in crowd.acts(lane.book):
                lane.take_in(event, position, now=crowd.now)
            if act % 4 == 3:
                asked = iter(range(10**6))
                said: dict[str, Any] = {"now": crowd.now, "round_id": UUID(int=act)}
                late = lambda _: next(asked) >= looks  # noqa: B023, E731  # asked in this turn only
                events = on_round(lane.book, **said, late=late, warn=no_fault)
                if events:
                    first = events[0]
                    assert isinstance(first, RoundCleared) and first.certificate is not None
                    steps = dict(first.certificate.iterations)
                    assert on_round(lane.book, **said, steps=steps) == events
                for each in events:
                    lane.book.apply(each, lane.book.read_to)


def test_who_is_late_is_not_tried_and_the_round_says_so() -> None:
    market = Governed()
    market.offer("rack", gpus=8, at=1, windows=[(NOON, NOON + 5 * HOUR)])
    market.govern(red=(8, None))
    for number in range(6):
        market.ask("red", f"red {number}", 1, patience="patient")

    with mock.patch.object(batch_clearing, "FIRST_MIN", 2):
        told, _ = cleared(book_of(market), warn=no_fault, late=lambda stage: True)
        again, _ = cleared(book_of(market), warn=no_fault)

    assert told.certificate is not None and again.certificate is not None
    assert dict(told.certificate.iterations)["guaranteed"] == 2
    assert "guaranteed" not in dict(again.certificate.iterations)
    assert told.grants == again.grants == 6  # they are searched for before all others
