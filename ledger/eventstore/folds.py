"""Remember how far a long stream was folded, so that the next decision reads only what is new.

A remembered fold is never trusted blindly: the last event it rests on is read again and must still
be the one it was. A transaction that was rolled back took its events with it; then another event,
or none, stands at that version, and the stream is folded from its start.

What a fold has gathered (positions here, holds of an account) is handed on, not copied: a copy for
every decision would cost more the longer the stream. So one thread folds a stream at a time. What a
rule refuses, or finds done already, counts only if nobody has gone on from its fold meanwhile
(`stands`): else it may have seen newer holds beside an older sum.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Protocol
from uuid import UUID
from weakref import WeakKeyDictionary, ref

REMEMBERED_FROM = 24
"""Events from which on a stream is worth remembering; most streams never get so long."""
REMEMBERED_MAX = 512
"""Streams remembered per store; the least recently used is forgotten."""
TURN_SECONDS_MAX = 0.1
CARRIED_FROM = 1_000
"""Events from which on a stream may have been carried forward: what is shorter is just read."""
LOCKS = 64
"""Locks that the streams of a store share, so that few wait for one another without need."""


class Streams(Protocol):
    """The part of a store that a fold reads: see `port.EventStore`."""

    finds: bool

    def read_stream(self, stream: str, *, after_version: int = 0) -> Iterator[Any]:
        """Yield a stream's records in version order."""
        ...

    def read_streams(
        self, asked: Sequence[tuple[str, int]], /, *, first: int | None = None
    ) -> Mapping[str, Sequence[Any]]:
        """Return the records of several streams after a version of each."""
        ...

    def read_last(self, streams: Sequence[str], /) -> Mapping[str, Any]:
        """Return the last record of each of these streams."""
        ...

    def find_event(self, stream: str, event_id: UUID, /) -> Any:
        """Return the record of a stream that has this id."""
        ...

    def find_named(self, stream: str, name: UUID, /, *, up_to_version: int) -> Sequence[Any]:
        """Return the records of a stream that carry an id."""
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
    began: the version up to which it was carried forward; `earlier` tells the positions of what is
    older.
    """

    state: Any = None
    version: int = 0
    last: UUID | None = None
    positions: dict[UUID, int] = field(default_factory=dict)
    began: int = 0
    earlier: Callable[[UUID], int | None] | None = None

    def after(self, kind: type[Foldable], events: Iterable[Any]) -> Fold:
        """Return the fold with `events` added."""
        state, version, last = self.state, self.version, self.last
        for recorded in events:
            state = kind.evolve(state, recorded.event)
            version, last = recorded.version, recorded.id
            self.positions[recorded.id] = recorded.position
        if version == self.version:
            return self
        return Fold(state, version, last, self.positions, self.began, self.earlier)


Key = tuple[type[Foldable], str]
"""What is folded, and its stream."""


class _Memory:
    def __init__(self) -> None:
        self._folds: OrderedDict[Key, Fold] = OrderedDict()
        self._lock = threading.Lock()
        self._folding = [threading.Lock() for _ in range(LOCKS)]
        self._turns = [threading.Lock() for _ in range(LOCKS)]

    def folding(self, keys: Iterable[Key]) -> list[threading.Lock]:
        """Return the locks of these folds in the order in which everybody takes them."""
        return [self._folding[place] for place in sorted({hash(key) % LOCKS for key in keys})]

    def turns(self, keys: Iterable[Key]) -> list[threading.Lock]:
        """Return the turns of those that are remembered, in order likewise."""
        with self._lock:
            places = {hash(key) % LOCKS for key in keys if key in self._folds}
        return [self._turns[place] for place in sorted(places)]

    def recall(self, key: Key) -> Fold | None:
        with self._lock:
            fold = self._folds.get(key)
            if fold is not None:
                self._folds.move_to_end(key)
            return fold

    def keep(self, key: Key, fold: Fold) -> None:
        with self._lock:
            self._folds[key] = fold
            self._folds.move_to_end(key)
            if len(self._folds) > REMEMBERED_MAX:
                self._folds.popitem(last=False)

    def forget(self, key: Key) -> None:
        with self._lock:
            self._folds.pop(key, None)


_memories: WeakKeyDictionary[Any, _Memory] = WeakKeyDictionary()
_guard = threading.Lock()


@contextmanager
def in_turn(store: Streams, keys: Sequence[Key]) -> Iterator[None]:
    """Let the threads of a process write to busy streams in turn, rather than all but one in vain.

    A courtesy that does not wait long: whoever holds one may be waiting for what we hold. Streams
    that are not remembered are not busy.
    """
    taken: list[threading.Lock] = []
    try:
        for turn in _memory_of(store).turns(keys):
            if turn.acquire(timeout=TURN_SECONDS_MAX):
                taken.append(turn)
        yield
    finally:
        for turn in taken:
            turn.release()


def fold(store: Streams, kind: type[Foldable], stream: str) -> Fold:
    """Return a stream folded to its present end."""
    return fold_each(store, [(kind, stream)])[0]


def fold_each(store: Streams, keys: Sequence[Key]) -> list[Fold]:
    """Return several streams folded to their present end, in one reading."""
    memory = _memory_of(store)
    with ExitStack() as held:
        for lock in memory.folding(keys):
            held.enter_context(lock)
        try:
            return _fold_on(store, keys, memory)
        except BaseException:
            for key in keys:
                memory.forget(key)  # half of what is new may have been taken in
            raise


def stands(store: Streams, key: Key, folded: Fold) -> bool:
    """Tell if nobody has gone on from a fold, so that what it has gathered is all of its own time.

    Folds that are too short to be remembered are nobody else's.
    """
    if folded.version < REMEMBERED_FROM:
        return True
    memory = _memory_of(store)
    with ExitStack() as held:
        for lock in memory.folding([key]):
            held.enter_context(lock)  # whoever is going on from it right now
        newest = memory.recall(key)
    return newest is not None and newest.last == folded.last


def _memory_of(store: Streams) -> _Memory:
    with _guard:
        memory = _memories.get(store)
        if memory is None:  # it is made once: it has many locks
            memory = _memories[store] = _Memory()
        return memory


def _fold_on(store: Streams, keys: Sequence[Key], memory: _Memory) -> list[Fold]:
    known = {key: memory.recall(key) for key in keys}
    # The last event that a fold rests on is read again with what is new.
    asked = {key[1]: fold.version - 1 if fold else 0 for key, fold in known.items()}
    if len(asked) == 1:
        [(stream, version)] = asked.items()
        tails = {stream: store.read_stream(stream, after_version=version)}
    else:
        found = store.read_streams([*asked.items()], first=CARRIED_FROM)
        tails = {stream: _to_the_end(store, stream, tail) for stream, tail in found.items()}
    return [_folded(store, key, known[key], tails[key[1]], memory) for key in keys]


def _folded(
    store: Streams, key: Key, known: Fold | None, tail: Iterator[Any], memory: _Memory
) -> Fold:
    kind, stream = key
    if known is not None:
        first = next(tail, None)
        if first is not None and first.id == known.last:
            before, known = known, known.after(kind, tail)
            if known.version // CARRIED_FROM != before.version // CARRIED_FROM:
                known = _carried(store, kind, stream, after=known.began) or known
        else:
            known = _from_start(store, kind, stream, store.read_stream(stream))
    else:
        known = _from_start(store, kind, stream, tail)
    if known.version >= REMEMBERED_FROM:
        memory.keep(key, known)
    return known


def _to_the_end(store: Streams, stream: str, tail: Sequence[Any]) -> Iterator[Any]:
    yield from tail
    if len(tail) == CARRIED_FROM:
        yield from store.read_stream(stream, after_version=tail[-1].version)


def _from_start(store: Streams, kind: type[Foldable], stream: str, tail: Iterator[Any]) -> Fold:
    """Fold a stream that nothing is remembered of."""
    first = list(islice(tail, CARRIED_FROM))
    if len(first) == CARRIED_FROM:
        begun = _carried(store, kind, stream)
        if begun is not None:
            return begun
    return Fold().after(kind, chain(first, tail))


def carried_stream(stream: str) -> str:
    """Return the stream that tells what another one was carried forward to."""
    return f"carried-{stream}"


def _carried(store: Streams, kind: type[Foldable], stream: str, *, after: int = 0) -> Fold | None:
    """Fold a stream from what it was carried forward to; None: not since a version.

    The event that it rests on must still be the one it was.
    """
    reopened = getattr(kind, "reopened", None)
    if reopened is None or not store.finds:
        return None
    last = store.read_last([carried_stream(stream)]).get(carried_stream(stream))
    if last is None or last.event.up_to_version <= after:
        return None
    return fold_carried(store, kind, stream, last.event)


def fold_carried(
    store: Streams, kind: type[Any], stream: str, carried: Any, *, most: int | None = None
) -> Fold | None:
    """Fold a stream, `most` events at most, from where it was carried forward to."""
    version = carried.up_to_version
    tail = store.read_stream(stream, after_version=version - 1)
    first = next(tail, None)
    if first is None or first.id != carried.event_id:
        return None
    known = ref(store)  # what is remembered of a store must not keep it

    def find(name: UUID) -> list[Any]:
        there = known()
        assert there is not None, "whoever asks has the store"
        return [each.event for each in there.find_named(stream, name, up_to_version=version)]

    def earlier(event_id: UUID) -> int | None:
        there = known()
        found = there.find_event(stream, event_id) if there is not None else None
        return None if found is None or found.version > version else int(found.position)

    state = kind.reopened(carried, find)
    begun = Fold(state, version, first.id, {first.id: first.position}, version, earlier)
    return begun.after(kind, islice(tail, most))


def beside(state: Any) -> Any:
    """Return a state that may go on without the one it came from being changed by that."""
    branch = getattr(state, "branch", None)
    return state if branch is None else branch()
