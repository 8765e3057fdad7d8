"""What a whole round of the engine takes and comes to: from its book to events that are checked.

`batch` measures the search alone, on problems that are given as numbers. Here a round is what the
engine runs: bids and offers of a market are written as numbers, searched under the engine's own
guards, turned into GPUs with names, swept, priced, explained and checked. The engine serves nobody
else meanwhile. Times of bids are any second; most of the hosts are partly leased. The search is
measured against a bound of the problem as the round posed it, found apart in half a minute.

Each size once more under policies: twenty cohorts of three business units, whose quotas share out
all there is, limits and weights (`tests.benchmarks.policies`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from random import Random
from typing import Any, NamedTuple
from unittest import mock
from uuid import UUID

from ledger.domain.ids import TenantId
from ledger.eventstore.port import Position
from marketplace.domain.book.book import Book
from marketplace.domain.decisions.decide import on_round
from marketplace.domain.facts.events import GpuRequest, RoundCleared
from marketplace.domain.facts.instants import from_above
from marketplace.domain.rounds import batch_clearing
from marketplace.domain.solver import Effort, Problem, Solution, solve
from marketplace.round_time import guards_of_a_round
from tests.benchmarks.figures import Figure
from tests.benchmarks.policies import policies, unit_of_bid
from tests.conftest import NOON
from tests.marketplace.support.market import MARKET, Market

SIZES = ((1_000, 100), (5_000, 500))
"""Patient bids, and hosts."""
BOUND_SECONDS = 30.0
MODELS = (("H100-80GB", 3.0), ("A100-80GB", 1.8), ("L4", 0.6))
HOUR = timedelta(hours=1)


def run() -> Iterator[Figure]:
    """Yield each size's seconds, and what it came to."""
    cleared(book_of(60, 6, seed=1), UUID(int=1))  # what is compiled, is before the watch starts
    for (bids, hosts), governed in product(SIZES, (False, True)):
        book = book_of(bids, hosts, seed=2, governed=governed)
        searched: list[Searched] = []
        before = time.process_time()
        events, seconds = cleared(book, UUID(int=2), searched)
        processor = time.process_time() - before
        [first, *granted] = events
        assert isinstance(first, RoundCleared) and first.certificate is not None
        proof = first.certificate
        name = f"{bids:,} bids, {hosts} hosts{', under quotas' if governed else ''}"
        yield Figure(f"{name}: the whole round", seconds, "s", digits=2)
        yield Figure(f"{name}: of processors, all threads", processor, "s", digits=2)
        yield Figure(f"{name}: granted", len(granted), "bids", digits=0)
        worth = proof.welfare_nanos + proof.weight_nanos
        bound = sum(bound_of(each.problem) for each in searched)
        if governed:  # what is within nominal quota was granted before anything was searched
            bound += proof.bound_nanos - sum(each.solution.bound_nanos for each in searched)
        yield Figure(f"{name}: welfare, of that bound", 100 * worth / bound, "%")
        yield Figure(f"{name}: the gap it proved", 100 * (1 - worth / proof.bound_nanos), "%")


def bound_of(problem: Problem) -> int:
    """Return what no clearing of a problem is worth more than, by many steps of price finding."""
    effort = Effort(dual=10_000, search=0)
    due = time.perf_counter() + BOUND_SECONDS
    return solve(
        problem, effort=effort, seed=1, enough=lambda: time.perf_counter() >= due
    ).bound_nanos


class Searched(NamedTuple):
    """What a round posed, and what its search came to."""

    problem: Problem
    solution: Solution


def cleared(book: Book, round_id: UUID, searched: list[Searched] | None = None) -> Any:
    """Clear a round as the engine does; return its events and the seconds.

    searched: takes what it posed.
    """
    now = from_above(NOON + timedelta(minutes=7, seconds=31))

    def noted(problem: Problem, **said: Any) -> Any:
        solution = solve(problem, **said)
        if searched is not None:
            searched.append(Searched(problem, solution))
        return solution

    with mock.patch.object(batch_clearing, "solve", noted):
        started = time.perf_counter()
        events = on_round(book, now=now, round_id=round_id, guards=guards_of_a_round())
        return events, time.perf_counter() - started


def book_of(bids: int, hosts: int, *, seed: int, governed: bool = False) -> Book:
    """Return the book of a market with so many patient bids. governed: under quotas and limits."""
    market = Market()
    fill(market, bids, hosts, seed=seed, governed=governed)
    assert market.engine._book is not None
    book = market.engine._book
    for recorded in market.store.read_all(after=Position(book.read_to), limit=10 * bids).events:
        if recorded.stream.startswith("market-"):
            continue  # it has decided this itself
        book.apply(recorded.event, recorded.position)
        book.read_to = recorded.position
    return book


def fill(market: Market, bids: int, hosts: int, *, seed: int, governed: bool = False) -> None:
    """List hosts, let others lease parts of them, and let so many bids wait for a round."""
    chance, supply = Random(seed), Counter[str]()
    for number in range(hosts):
        model, cost = chance.choice(MODELS)
        days = chance.choice((1, 1, 3))
        gpus = chance.choice((2, 4, 8, 8))
        supply[model.partition("-")[0]] += gpus
        market.offer(
            f"h{number}",
            gpus=gpus,
            model=model,
            at=round(cost * chance.uniform(0.35, 0.95), 3),
            windows=[(NOON, NOON + days * 24 * HOUR)],
        )
        for other in range(2):
            length = timedelta(seconds=chance.randint(1_800, 8 * 3_600))
            market.bid(
                f"held {number} {other}",
                gpus=chance.choice((1, 2)),
                hours=length / HOUR,
                at=99,
                request=GpuRequest(models=(model,)),
            )
    market.run()
    for policy in policies(supply) if governed else ():
        market.put(f"governance-{MARKET}", policy)
    for number in range(bids):
        _patient(market, number, chance, unit_of_bid(number) if governed else None)


def _patient(market: Market, number: int, chance: Random, unit: UUID | None) -> None:
    model, cost = chance.choice(MODELS)
    seconds = min(16 * 3_600, max(900, int(7_200 * chance.lognormvariate(0, 0.9))))
    start = NOON + timedelta(seconds=chance.choice((0, 0, 1)) * chance.randint(0, 12 * 3_600))
    slack = timedelta(seconds=int(seconds * chance.expovariate(1.0)) + 600)
    strict = GpuRequest(models=(model,))
    memory = GpuRequest(
        memory_mib_min={"H100-80GB": 80_000, "A100-80GB": 80_000}.get(model, 20_000)
    )
    market.bid(
        f"b{number}",
        gpus=chance.choice((1, 1, 1, 2, 4, 8)),
        hours=seconds / 3_600,
        at=round(cost * chance.lognormvariate(0.05, 0.35), 3),
        start=start,
        deadline=start + timedelta(seconds=seconds) + slack,
        request=strict if chance.random() < 0.33 else memory,
        patience="patient",
        tenant=None if unit is None else TenantId(unit),
    )
