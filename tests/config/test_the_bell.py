"""Loops are woken by what is recorded, not by a subscription that looks whether it is to end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from config.processes import loops
from config.processes.loops import Bell
from ledger.eventstore.memory import MemoryStore
from ledger.eventstore.port import START, CaughtUp, Position, Recorded

PATIENCE_SECONDS = 60.0
LONG = 3_600.0


class Told(MemoryStore):
    """A store whose subscription tells a few times where it is, and nothing more."""

    def __init__(self, *positions: int) -> None:
        super().__init__()
        self._positions = positions
        self.told_all = threading.Event()

    def subscribe(
        self,
        *,
        after: Position = START,
        only: frozenset[str] | None = None,
        stop: threading.Event,
        idle_seconds: float = 1.0,
    ) -> Iterator[Recorded | CaughtUp]:
        for position in self._positions:
            yield CaughtUp(Position(position))
        self.told_all.set()
        stop.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("idle_seconds", "rings"),
    [
        pytest.param(0.0, 2, id="silence-between: the first, and what moved on"),
        pytest.param(LONG, 5, id="woken-early: whatever the position says"),
    ],
)
def test_it_rings_at_news_only(
    monkeypatch: pytest.MonkeyPatch, idle_seconds: float, rings: int
) -> None:
    monkeypatch.setattr(Bell, "_shared", None)
    monkeypatch.setattr(loops, "IDLE_SECONDS", idle_seconds)
    store, stop = Told(3, 3, 3, 4, 4), threading.Event()

    bell = Bell(store, stop)
    told = store.told_all.wait(PATIENCE_SECONDS)
    stop.set()

    assert told
    assert bell.rings == rings
