"""How long the instant lane stands still for a round of thousands of bids that is out beside it.

The engine is the one that is installed, on PostgreSQL, with its rounds in forks. Immediate bids
come all the time; what is measured is the longest time from one look at the log to the next, in
which nobody is decided on: posing the round (a fork, and what is noted before it), reading what it
came to, and taking that in (asking its grants again, and appending them).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import count
from operator import sub
from random import Random

from ledger.collecting import settle
from ledger.eventstore.port import START, Page, Position
from ledger.eventstore.postgres import PostgresStore
from marketplace.beside import Forked
from marketplace.domain.facts.events import RoundCleared
from marketplace.engine import Engine
from tests.benchmarks.figures import Figure
from tests.benchmarks.rounds import fill
from tests.marketplace.support.beside import rounds_of
from tests.marketplace.support.market import Market

SIZES = ((1_000, 100), (5_000, 500))
HELD_UP_MILLIS_MAX = 250.0
"""What a round may hold up the lane for."""
AT_ONCE = 5
"""Immediate bids that come before each pass."""
PAUSE_SECONDS = 0.02
POSING, BACK, USUAL = "posing it", "taking it in", "a pass that waits for nothing"


def run() -> Iterator[Figure]:
    """Yield each size's longest passes."""
    for bids, hosts in SIZES:
        name = f"{bids:,} bids, {hosts} hosts"
        passes, seconds, cleared = _passes(bids, hosts)
        yield Figure(f"{name}: the round was out for", seconds, "s")
        yield Figure(f"{name}: granted", cleared.grants, "bids", digits=0)
        for what in (USUAL, POSING, BACK):
            longest = 1000 * max(each for said, each in passes if said == what)
            yield _held_up(f"{name}: {what}", longest)


def _held_up(name: str, longest: float) -> Figure:
    return Figure(name, longest, "ms", HELD_UP_MILLIS_MAX, "what it may hold up for")


def _passes(bids: int, hosts: int) -> tuple[list[tuple[str, float]], float, RoundCleared]:
    """Return an engine's passes from when a round is due until it is taken in, and how long."""
    market, chance, made = Market(PostgresStore(), name=f"of-{bids}"), Random(3), count()
    looks: list[float] = []

    class Looked(PostgresStore):
        """The store, which notes when the engine reads on."""

        def read_all(
            self,
            *,
            after: Position = START,
            limit: int = 1000,
            only: frozenset[str] | None = None,
        ) -> Page:
            looks.append(time.perf_counter())
            return super().read_all(after=after, limit=limit, only=only)

    market.engine = Engine(Looked(), market.name, beside=Forked)
    fill(market, bids, hosts, seed=2)
    market.run()
    settle()
    market.wait(seconds=61)
    passes: list[tuple[str, float]] = []
    began, is_out, pause = time.perf_counter(), False, threading.Event()
    while BACK not in [what for what, _ in passes]:
        for _ in range(AT_ONCE):
            market.bid(f"now {next(made)}", gpus=1, hours=1, at=chance.uniform(0.5, 3))
        looks[:] = [time.perf_counter()]
        market.run()
        looks.append(time.perf_counter())
        seconds, was_out = max(map(sub, looks[1:], looks)), is_out
        is_out = market.engine.round_is_out
        passes.append((USUAL if was_out == is_out else POSING if is_out else BACK, seconds))
        pause.wait(PAUSE_SECONDS)
    [cleared] = rounds_of(market)
    return passes, time.perf_counter() - began, cleared
