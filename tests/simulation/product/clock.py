"""The simulated clock: an agenda, and a market around it that reacts to all that is recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any

from ledger.domain.event import Event
from ledger.eventstore.port import START, Recorded
from ledger.following import Policy
from marketplace.engine import Engine
from tests.simulation.product.forgetting import ForgettingStore
from tests.simulation.product.founding import moment

PAGE = 10_000
SPARED = object()
"""What an act returns that was due and came to nothing: nobody needs to look."""
LOOKS_MAX = 50
"""How often the engine and the policies answer each other at one moment; a bound, never met."""


class Clock:
    """Lets what is due happen; after each thing the engine and all policies see what is new."""

    def __init__(self, store: ForgettingStore, engine: Engine, policies: Sequence[Policy]) -> None:
        self.store, self._engine = store, engine
        self.now = 0.0
        self._agenda: list[tuple[float, int, Callable[[Any], object], Any]] = []
        self._number = count()
        self._position = START
        self.recorded = 0
        self._reactions: dict[str, list[Callable[[Recorded], object]]] = defaultdict(list)
        for policy in policies:
            for name in policy.on:
                self._reactions[name].append(_reaction(policy, store))

    def listen(self, kinds: Iterable[type[Event]], act: Callable[[Any], None]) -> None:
        """Let something happen whenever such an event was recorded, after the policies."""
        for kind in kinds:
            self._reactions[kind.name].append(lambda recorded: act(recorded.event))

    def at(self, when: float, act: Callable[[Any], object], subject: Any = None) -> None:
        """Let something happen, in seconds from the beginning."""
        heappush(self._agenda, (max(when, self.now), next(self._number), act, subject))

    def run(self) -> None:
        """Go through all that is due, until nothing is."""
        self.settle()
        while self._agenda:
            self.now, _, act, subject = heappop(self._agenda)
            if act(subject) is not SPARED:
                self.settle()

    @property
    def waits(self) -> bool:
        """Tell if anything is still due."""
        return bool(self._agenda)

    def settle(self) -> None:
        """Let policies react and the engine decide, until neither does."""
        for _ in range(LOOKS_MAX):
            self._react()
            if not self._engine.run_once(now=moment(self.now)):
                break
        else:
            raise AssertionError("the market does not come to rest")

    def _react(self) -> None:
        while True:
            page = self.store.read_all(after=self._position, limit=PAGE)
            for recorded in page.events:
                for react in self._reactions.get(recorded.type, ()):
                    react(recorded)
            self.recorded += len(page.events)
            if page.next_position == self._position:
                return
            self._position = page.next_position


def _reaction(policy: Policy, store: ForgettingStore) -> Callable[[Recorded], object]:
    return lambda recorded: policy.react(recorded, store)
