"""Remember how far a long stream was folded, so that the next decision reads only what is new.

A remembered fold is never trusted blindly: the last event it rests on is read again and must still
be the one it was. A transaction that was rolled back took its events with it; then another event,
or none, stands at that version, and the stream is folded from its start.

What a fold has gathered (positions here, holds of an account) is handed on, not copied: a copy for
every decision would cost more the longer the stream. So one thread folds a stream at a time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID
from weakref import WeakKeyDictionary

REMEMBERED_FROM = 24
"""Events from which on a stream is worth remembering; most streams never get so long."""
REMEMBERED_MAX = 512
"""Streams remembered per store; the least recently used is forgotten."""
TURN_SECONDS_MAX = 0.1
LOCKS = 64
"""Locks that the streams of a store share, so that few wait for one another without need."""


class Streams(Protocol):
    """The part of a store that a fold reads: `port.EventStore.read_stream`."""

    def read_stream(self, stream: str, *, after_version: int = 0) -> Iterator[Any]:
        """Yield a stream's records in version order."""
        ...


class Foldable(Protocol):
    """What a stream is folded to: `port.Aggregate`."""

    @classmethod
    def evolve(cls, state: Any, event: Any, /) -> Any:
        """Return the state after `event`."""
        ...


@dataclass(frozen=True, slots=True)
class Fold:
    """A stream up to `version`: its state, and at which position each of its events stands.

    `after` hands `positions` on: a fold goes on from its newest state only.
    """

    state: Any = None
    version: int = 0
    last: UUID | None = None
    positions: dict[UUID, int] = field(default_factory=dict)

    def after(self, kind: type[Foldable], events: Iterable[Any]) -> Fold:
        """Return the fold with `events` added."""
        state, version, last = self.state, self.version, self.last
        for recorded in events:
            state = kind.evolve(state, recorded.event)
            version, last = recorded.version, recorded.id
            self.positions[recorded.id] = recorded.position
        return self if version == self.version else Fold(state, version, last, self.positions)


class _Memory:
    def __init__(self) -> None:
        self._folds: OrderedDict[tuple[type, str], Fold] = OrderedDict()
        self._lock = threading.Lock()
        self._folding = [threading.Lock() for _ in range(LOCKS)]
        self._turns = [threading.Lock() for _ in range(LOCKS)]

    def folding(self, key: tuple[type, str]) -> threading.Lock:
        return self._folding[hash(key) % LOCKS]

    def turn(self, key: tuple[type, str]) -> threading.Lock | None:
        with self._lock:
            return self._turns[hash(key) % LOCKS] if key in self._folds else None

    def recall(self, key: tuple[type, str]) -> Fold | None:
        with self._lock:
            fold = self._folds.get(key)
            if fold is not None:
                self._folds.move_to_end(key)
            return fold

    def keep(self, key: tuple[type, str], fold: Fold) -> None:
        with self._lock:
            self._folds[key] = fold
            self._folds.move_to_end(key)
            if len(self._folds) > REMEMBERED_MAX:
                self._folds.popitem(last=False)

    def forget(self, key: tuple[type, str]) -> None:
        with self._lock:
            self._folds.pop(key, None)


_memories: WeakKeyDictionary[Any, _Memory] = WeakKeyDictionary()
_guard = threading.Lock()


@contextmanager
def in_turn(store: Streams, kind: type[Foldable], stream: str) -> Iterator[None]:
    """Let the threads of a process write to a busy stream in turn, rather than all but one in vain.

    A courtesy that does not wait long: whoever holds it may be waiting for what we hold. Streams
    that are not remembered are not busy.
    """
    with _guard:
        memory = _memories.setdefault(store, _Memory())
    turn = memory.turn((kind, stream))
    has_turn = turn is not None and turn.acquire(timeout=TURN_SECONDS_MAX)
    try:
        yield
    finally:
        if turn is not None and has_turn:
            turn.release()


def fold(store: Streams, kind: type[Foldable], stream: str) -> Fold:
    """Return a stream folded to its present end."""
    with _guard:
        memory = _memories.setdefault(store, _Memory())
    key = (kind, stream)
    with memory.folding(key):
        try:
            return _fold_on(store, kind, stream, memory)
        except BaseException:
            memory.forget(key)  # half of what is new may have been taken in
            raise


def _fold_on(store: Streams, kind: type[Foldable], stream: str, memory: _Memory) -> Fold:
    key = (kind, stream)
    known = memory.recall(key)
    if known is not None:
        tail = iter(store.read_stream(stream, after_version=known.version - 1))
        first = next(tail, None)
        known = known.after(kind, tail) if first and first.id == known.last else None
    if known is None:
        known = Fold().after(kind, store.read_stream(stream))
    if known.version >= REMEMBERED_FROM:
        memory.keep(key, known)
    return known
