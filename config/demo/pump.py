"""Policies on a store in memory: what the loops do in a running market, without a database."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.eventstore.port import START, EventStore
from ledger.following import Policy


class Pump:
    """Lets every policy react to every event, in order, until nothing new comes of it."""

    def __init__(self, store: EventStore, policies: Sequence[Policy]) -> None:
        self._store = store
        self._policies = policies
        self._position = START

    def run(self) -> None:
        """React to everything that was recorded since the last call."""
        while True:
            page = self._store.read_all(after=self._position)
            for recorded in page.events:
                for policy in self._policies:
                    if recorded.type in policy.on:
                        policy.react(recorded, self._store)
            if page.next_position == self._position:
                return
            self._position = page.next_position
