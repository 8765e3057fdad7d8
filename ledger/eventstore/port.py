"""What an event store promises, and `record`, the only way to write to one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from itertools import count
from typing import Any, ClassVar, NamedTuple, NewType, Protocol, Self, TypeVar
from uuid import UUID, uuid4

from ledger.domain import ids
from ledger.domain.event import Event
from ledger.domain.making import made_quickly
from ledger.domain.refusal import Refusal
from ledger.eventstore import codec, folds

Position = NewType("Position", int)
"""A place in the whole store. Rises; opaque: compare and store it, never count with it."""

START = Position(0)
NO_STREAM = 0
"""The version expected of a stream that must not exist yet."""

NAMES = ("entry_id", "hold_id")
"""Fields by whose ids the events of an account can be found."""
EVENT_BYTES_MAX = 1_048_576
DECIDE_ATTEMPTS_MAX = 8


class Expect(Enum):
    """What else than a number may be expected of a stream."""

    ANY = "any"
    """Whatever its version. For telemetry; a decision names the version it rests on."""


@made_quickly
@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """Who did it, and because of what.

    actor: `user:<id>`, `agent:<host id>`, `loop:<name>` or `policy:<name>`.
    command_id: names the request; asking again with the same id records nothing twice.
    causation_id: the event that led to this one. correlation_id: the first cause of the chain.
    """

    actor: str
    tenant_id: UUID | None = None
    token_id: UUID | None = None
    request_id: UUID | None = None
    command_id: UUID | None = None
    causation_id: UUID | None = None
    correlation_id: UUID | None = None

    def step(self, name: str) -> Meta:
        """Return the Meta of one part of a request that writes to one stream more than once."""
        if self.command_id is None:
            return self
        return Meta(
            actor=self.actor,
            tenant_id=self.tenant_id,
            token_id=self.token_id,
            request_id=self.request_id,
            command_id=ids.named(self.command_id)(name),
            causation_id=self.causation_id,
            correlation_id=self.correlation_id,
        )

    @classmethod
    def because(cls, cause: Recorded, *, policy: str) -> Meta:
        """Return the Meta of what `policy` asks for on seeing `cause`; the same each time."""
        because = cause.id
        return cls(
            actor=f"policy:{policy}",
            command_id=ids.named(because)(policy),
            causation_id=because,
            correlation_id=cause.meta.correlation_id or because,
        )


@made_quickly
@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event on its way in. `id` is the idempotency key of the append."""

    id: UUID
    event: Event


class _Row(NamedTuple):
    """An event's row as a store keeps it."""

    position: Position
    stream: str
    version: int
    id: UUID
    type: str
    schema_version: int
    data: bytes
    meta_data: bytes
    recorded_at: datetime
    hash: bytes | None = None


class Recorded(_Row):
    """An event as the store returns it.

    position: place in the whole store. version: place in its own stream, from 1, no gaps.
    data, meta_data: the bytes as stored; `event` and `meta` decode them when first asked.
    hash: of this record and the one before it, where the store chains them.
    """

    # A tuple, because a database row is one already: a rebuild makes a million of these. The
    # decoded are kept by hand: `cached_property` takes a lock in Python 3.11, dearer than decoding.
    @property
    def event(self) -> Event:
        """Return the typed event, brought up to the present schema version."""
        known: Event | None = self.__dict__.get("event")
        if known is None:
            known = codec.decode(self.type, self.schema_version, self.data)
            self.__dict__["event"] = known
        return known

    @property
    def meta(self) -> Meta:
        """Return who did it and why."""
        known: Meta | None = self.__dict__.get("meta")
        if known is None:
            known = self.__dict__["meta"] = codec.decode_as(Meta, self.meta_data)
        return known


@dataclass(frozen=True, slots=True)
class Appended:
    """What an append did. deduplicated: these very events were there already."""

    version: int
    position: Position
    deduplicated: bool = False


@made_quickly
@dataclass(frozen=True, slots=True)
class Write:
    """One of several appends that are asked for together: see `EventStore.append`."""

    stream: str
    events: Sequence[NewEvent]
    expected: int
    by: Meta


@dataclass(frozen=True, slots=True)
class Page:
    """A run of events in position order.

    next_position: where the next page starts; moves over events that the filter left out.
    caught_up: there was nothing more at the time of reading.
    """

    events: Sequence[Recorded]
    next_position: Position
    caught_up: bool


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """A subscription has delivered all there was up to `position` and waits."""

    position: Position


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What `verify` found. broken_at: the first position whose hash does not follow."""

    checked: int
    head: Position
    broken_at: Position | None = None
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Tell if nothing was changed, removed or put in between."""
        return self.broken_at is None


class StoreError(Exception):
    """The store could not do what was asked."""


class StreamMoved(StoreError):
    """The stream is not at the version expected. Load again and decide again."""

    def __init__(self, stream: str, expected: object = None, actual: int | None = None) -> None:
        super().__init__(f"{stream}: expected {expected}, is at {actual}")
        self.stream, self.expected, self.actual = stream, expected, actual


class EventIdConflict(StoreError):
    """One of these event ids is taken by another event."""


class EventTooLarge(StoreError):
    """An event is larger than EVENT_BYTES_MAX."""


class StoreUnavailable(StoreError):
    """The store cannot be reached. Nothing was written; try again later."""


class OutcomeUnknown(StoreError):
    """The reply was lost: written or not, nobody knows. Repeat with the same event ids."""


class EventStore(Protocol):
    """An append-only log of streams. `tests/contracts` holds every store to this."""

    shares_django_transaction: bool
    """True where an append and rows written through Django commit together."""
    appends_whole: bool
    """True where `append_whole` appends all or nothing."""
    finds: bool
    """True where `find_event` and `find_named` look into an index; else they read the stream."""

    def append(
        self, stream: str, events: Sequence[NewEvent], *, expected: int | Expect, by: Meta
    ) -> Appended:
        """Append all of `events` or none.

        Repeating an append with the same ids (a reply was lost) changes nothing and returns
        the first outcome, whatever the stream's version is by now.

        Raises: StreamMoved, EventIdConflict, EventTooLarge, StoreUnavailable, OutcomeUnknown.
        """
        ...

    def append_each(self, writes: Sequence[Write]) -> list[Appended]:
        """Append to several streams, one after the other as given, in one round trip if it can.

        The first that fails ends it: those before it stay, those after it are not asked for.

        Raises: as `append` does.
        """
        ...

    def append_whole(self, writes: Sequence[Write]) -> list[Appended]:
        """Append to several streams all or nothing where the store `appends_whole`, else in order.

        A write without events holds its stream: nothing is appended if that has moved.

        Raises: as `append` does.
        """
        ...

    def read_stream(self, stream: str, *, after_version: int = 0) -> Iterator[Recorded]:
        """Yield a stream's events in version order; nothing for an unknown stream."""
        ...

    def alone(self) -> AbstractContextManager[None]:
        """Let nobody else append for so long, where the store can do that.

        For who was overtaken again and again; all others wait meanwhile.
        """
        ...

    def in_line(self, streams: Collection[str], /) -> AbstractContextManager[None]:
        """Wait a little for a turn on streams that others write to, where the store can do that."""
        ...

    def read_streams(
        self, asked: Sequence[tuple[str, int]], *, first: int | None = None
    ) -> Mapping[str, Sequence[Recorded]]:
        """Return the events of several streams after a version of each, each stream asked once.

        first: no more than so many of each. In one round trip if it can.
        """
        ...

    def read_last(self, streams: Sequence[str]) -> Mapping[str, Recorded]:
        """Return the last event of each of these streams that has any."""
        ...

    def find_event(self, stream: str, event_id: UUID) -> Recorded | None:
        """Return the event of a stream that has this id."""
        ...

    def find_named(self, stream: str, name: UUID, *, up_to_version: int) -> Sequence[Recorded]:
        """Return the events of an account's stream that carry an id in one of `NAMES`.

        In version order, up to a version.
        """
        ...

    def read_all(
        self, *, after: Position = START, limit: int = 1000, only: frozenset[str] | None = None
    ) -> Page:
        """Return up to `limit` events after a position, of the types in `only` (None: all).

        No event is ever skipped: what a page has passed over will not appear later.
        """
        ...

    def subscribe(
        self,
        *,
        after: Position = START,
        only: frozenset[str] | None = None,
        stop: threading.Event,
        idle_seconds: float = 1.0,
    ) -> Iterator[Recorded | CaughtUp]:
        """Yield events as they come, and CaughtUp whenever there is nothing more for now.

        CaughtUp comes at least every `idle_seconds`, so that the caller can look at a clock.
        Ends soon after `stop` is set. Who asks for `only` nothing is merely woken.
        """
        ...

    def head(self) -> Position:
        """Return the last position; START for an empty store."""
        ...

    def verify(self) -> ChainReport:
        """Check the hash chain from the first event to the last."""
        ...

    def ping(self) -> None:
        """Raise StoreUnavailable if the store does not answer."""
        ...


class Aggregate(Protocol):
    """State rebuilt from one stream."""

    STREAM: ClassVar[str]

    @classmethod
    def evolve(cls, state: Self | None, event: Any, /) -> Self:
        """Return the state after `event`. Never refuses: the event already happened."""
        ...


StateT = TypeVar("StateT", bound=Aggregate)


def stream_name(kind: type[Aggregate], key: object) -> str:
    """Return the name of the stream that holds one aggregate."""
    return f"{kind.STREAM}-{ids.text_of(key) if isinstance(key, UUID) else key}"


def load(store: EventStore, kind: type[StateT], key: object) -> StateT | None:
    """Return an aggregate as it stands, or None where nothing has happened yet."""
    state: StateT | None = folds.fold(store, kind, stream_name(kind, key)).state
    return state


def record(
    store: EventStore,
    kind: type[StateT],
    key: object,
    decide: Callable[[StateT | None], Sequence[Event]],
    *,
    by: Meta,
) -> Position:
    """Load one aggregate, ask a rule, append what it decided: the only way to write.

    `decide` sees the state (None: nothing happened yet) and returns the new events (empty:
    nothing to do) or raises a Refusal. It may run more than once: if another writer came
    first it is asked again with the newer state, at most DECIDE_ATTEMPTS_MAX times. If this
    very request (`by.command_id`) was recorded before, it is not asked at all.

    Returns:
        The position of the last event of the stream that this decision rests on.
    """
    stream = stream_name(kind, key)
    # Without a command id a lost reply must still not write twice within this call.
    command_id = by.command_id or uuid4()
    last: StoreError | None = None
    for attempt in range(DECIDE_ATTEMPTS_MAX):
        try:
            with store.in_line([stream] if attempt else ()):
                return _decided(store, kind, stream, decide, by, command_id)
        except (StreamMoved, OutcomeUnknown) as failure:
            last = failure
    # Nobody was faster where it is the answers that are lost: that must not read as harmless.
    raise last if isinstance(last, OutcomeUnknown) else StreamMoved(stream)


def _decided(
    store: EventStore,
    kind: type[StateT],
    stream: str,
    decide: Callable[[StateT | None], Sequence[Event]],
    by: Meta,
    command_id: UUID,
) -> Position:
    """Ask a rule once, and append. Raises: StreamMoved, also where it was asked too early."""
    folded = folds.fold(store, kind, stream)
    answered = recorded_before(folded, command_id, stream)
    if answered is not None:
        return answered
    try:
        events = decide(folded.state)
    except Refusal:
        need_standing(store, (kind, stream), folded)
        raise
    if not events:
        need_standing(store, (kind, stream), folded)
        return Position(folded.positions[folded.last]) if folded.last else START
    fresh = named(events, command_id, stream)
    return store.append(stream, fresh, expected=folded.version, by=by).position


def need_standing(store: EventStore, key: folds.Key, folded: folds.Fold) -> None:
    """Have a rule asked anew where others went on from the fold that it was asked with.

    Raises: StreamMoved.
    """
    if not folds.stands(store, key, folded):
        raise StreamMoved(key[1], folded.version, folded.version + 1)


def named(events: Sequence[Event], command_id: UUID, stream: str) -> list[NewEvent]:
    """Give the events that a command decided for a stream the ids by which it is known again."""
    id_of = ids.named(command_id)
    return [NewEvent(id_of(f"{stream}#{index}"), event) for index, event in enumerate(events)]


def recorded_before(folded: folds.Fold, command_id: UUID, stream: str) -> Position | None:
    """Return where the last event of this very command stands, if it was recorded before."""
    if not folded.positions:
        return None
    answered: int | None = None
    id_of = ids.named(command_id)
    for index in count():
        event_id = id_of(f"{stream}#{index}")
        position = folded.positions.get(event_id)
        if position is None and folded.earlier is not None:
            position = folded.earlier(event_id)
        if position is None:
            break
        answered = position
    return None if answered is None else Position(answered)
