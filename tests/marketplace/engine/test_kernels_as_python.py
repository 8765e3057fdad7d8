"""Compiled or as Python, an engine decides the same: random markets are lived through both ways.

Their people ask for gangs, hosts, slices of cards and fewer GPUs if need be, some under quotas that
change; hosts are cleaned between leases, and an owner uses what is its own. Every fact is decided
on, and every now and then the patient bids are cleared together: in few steps, as Python takes
them, and in some markets by the moves and halves that otherwise only large rounds come to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from importlib import import_module
from random import Random
from typing import Any
from uuid import uuid5

import pytest

from ledger.domain.event import Event
from ledger.domain.ids import SubscriberId
from ledger.eventstore.port import Position
from listings.domain.events import OfferPublished
from marketplace.domain.book.book import Book
from marketplace.domain.decisions.decide import on_round
from marketplace.domain.facts.events import (
    BidPlaced,
    GpuRequest,
    LeaseGranted,
    MarketEvent,
    RoundCleared,
)
from marketplace.domain.rounds import batch_clearing, time_grid
from marketplace.domain.solver import Effort, lns_choice, threads
from tests.marketplace.quotas.governed_crowd import UNITS, GovernedCrowd
from tests.marketplace.support.kernels_as_python import kernels_as_python
from tests.marketplace.support.market import MARKET, OWNER, Market
from tests.marketplace.support.random_market import ROUNDS, Lane

stages = import_module("marketplace.domain.solver.solve")  # not the function of that name
PARTS, MARKETS, ACTS, BIDS_MAX = 4, 1, 26, 6
ROUNDS_MIN = 22
EFFORT = Effort(dual=2, search=2, opened=2)
MOVES, SLOTS = 4, 16
"""Of a chunk of search: each takes Python a thousand times as long."""
Fact = tuple[Event | None, int, int]
"""With its position, and the moment. None: a round."""


class Crowded(GovernedCrowd):
    """People of whom most are patient, and an owner among them. governed: under quotas."""

    def __init__(self, random: Random, *, governed: bool) -> None:
        super().__init__(random)
        self._governed = governed
        self.market.put = self._changed  # type: ignore[method-assign]

    def acts(self, book: Book) -> Iterator[tuple[Event, int]]:
        """Change what there is, and ask for more than that, all at once."""
        rng = self.random
        self.market.wait(seconds=rng.choice((0, 1, 61, 1_800, 3_600)))
        acts = (self._offer, self._change, self._amend, self._lease, self._health)
        for act in rng.choices(acts, (6 if len(book.offers) < 6 else 2, 1, 1, 6, 1), k=3):
            act(book)
        for _ in range(rng.randint(1, BIDS_MAX)):
            self._bid(book)
        for recorded in self.market.store.read_all(after=Position(self.position)).events:
            self.position = recorded.position
            yield recorded.event, recorded.position

    def _changed(self, stream: str, event: Event) -> Any:
        rng = self.random
        if isinstance(event, OfferPublished):
            event = replace(event, cleaning_seconds=rng.choice((0, 0, 120, 900)))
        elif isinstance(event, BidPlaced):
            unit = rng.choice((*UNITS, *UNITS, *UNITS, OWNER))
            slice_of = rng.choice((None,) * 5 + ("1g.10gb", "1g.20gb", "3g.40gb"))
            request = event.request if rng.random() < 0.3 else GpuRequest()
            event = replace(
                event,
                tenant_id=unit,
                subscriber_id=SubscriberId(unit),
                patience=rng.choice(("patient",) * 6 + ("immediate",)),
                deadline=event.deadline + timedelta(hours=rng.choice((1, 4))),
                gpus_min=2 if event.gpus > 2 and rng.random() < 0.3 else None,
                request=GpuRequest(models=(f"H100-{slice_of}",)) if slice_of else request,
                placement="any-hosts" if slice_of else event.placement,
            )
        return Market.put(self.market, stream, event)

    def _policy(self, book: Book) -> Any:
        while True:
            event = super()._policy(book)
            if self._governed or type(event).__name__ in ("CountingSet", "HalfLifeSet"):
                return event


@dataclass
class Life:
    """What happened in a market, and what an engine decided on each fact and in each round."""

    facts: list[Fact] = field(default_factory=list)
    decided: list[list[MarketEvent]] = field(default_factory=list)

    def take(self, lane: Lane, fact: Fact) -> None:
        """Let an engine decide; keep what it did."""
        self.facts.append(fact)
        self.decided.append(decided_on(lane, fact, None))


def decided_on(lane: Lane, fact: Fact, before: list[MarketEvent] | None) -> list[MarketEvent]:
    """Decide on a fact, or clear a round; one that was cleared before, in the steps it took."""
    event, position, now = fact
    if event is not None:
        return lane.take_in(event, position, now=now)
    steps = None
    if before and isinstance(first := before[0], RoundCleared) and first.certificate is not None:
        steps = dict(first.certificate.iterations)
    round_id = uuid5(ROUNDS, f"round at {len(lane.decided)} {position}")
    lane.book.read_to = position
    events = on_round(lane.book, now=now, round_id=round_id, steps=steps)
    lane.book.decided(events, position)
    lane.decided += events
    return events


def lived(seed: int, *, governed: bool) -> Life:
    """Let a market go on for a while, with a round after every act."""
    crowd, lane, life = Crowded(Random(seed), governed=governed), Lane(Book(MARKET)), Life()
    for _ in range(ACTS):
        for event, position in crowd.acts(lane.book):
            life.take(lane, (event, position, crowd.now))
        life.take(lane, (None, crowd.position, crowd.now))
    return life


@pytest.mark.parametrize("part", range(PARTS))
def test_as_python_every_decision_is_the_same(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_clearing, "_effort", lambda *_, **__: EFFORT)
    monkeypatch.setattr(stages, "CHUNK_MOVES", MOVES)
    monkeypatch.setattr(stages, "LEAP_MOVES", MOVES)
    monkeypatch.setattr(time_grid, "POINTS_MIN", SLOTS)
    monkeypatch.setattr(time_grid, "BID_POINTS_MAX", 0)
    if part % 2:  # as if they were large
        monkeypatch.setattr(lns_choice, "SMALL_MAX", 2)
        monkeypatch.setattr(stages, "SMALL_MAX", 2)
    if part == 3:
        monkeypatch.setattr(threads, "BIDS_MIN", 4)
    seeds = range(part * MARKETS, (part + 1) * MARKETS)
    lives = [lived(seed, governed=part < 2) for seed in seeds]

    with kernels_as_python():
        for life in lives:
            lane = Lane(Book(MARKET))
            for fact, before in zip(life.facts, life.decided, strict=True):
                assert decided_on(lane, fact, before) == before

    decided = [events for life in lives for events in life.decided if events]
    rounds = [
        events
        for events in decided
        if isinstance(first := events[0], RoundCleared) and first.certificate is not None
    ]
    grants = [event for events in rounds for event in events if isinstance(event, LeaseGranted)]
    assert len(rounds) >= ROUNDS_MIN
    assert len(grants) >= ROUNDS_MIN / 2
