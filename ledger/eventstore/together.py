"""Write to several streams as if by one `record` after the other, in one round trip.

Every rule is asked before anything is written. The streams are written in the order given, and a
writer who was faster on one of them ends it there: then all rules are asked again, and those whose
events are there by now are known by their command. So what is written first must do no harm if
nothing follows: money is set aside before a bid is placed, never the other way round.

On PostgreSQL all of it commits together, and the lock under which the log grows is held by the
server alone, never while a process thinks or waits for its turn on a busy machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from ledger.domain.event import Event
from ledger.domain.refusal import Refusal
from ledger.eventstore import folds
from ledger.eventstore.port import (
    DECIDE_ATTEMPTS_MAX,
    START,
    Aggregate,
    Appended,
    EventStore,
    Meta,
    OutcomeUnknown,
    Position,
    StoreError,
    StreamMoved,
    Write,
    named,
    need_standing,
    recorded_before,
    stream_name,
)

OVERTAKEN_MAX = 4
"""Attempts after which the log is held while rules are asked: the slow must come to an end too."""


@dataclass(frozen=True, slots=True)
class Part:
    """One stream's part: see `record` for `decide` and `by`.

    need: asked where there is nothing to write, with the state as it is; may raise a Refusal.
    seen: the stream as the caller has just read it, so that it is not read again at first; if it
    has moved on meanwhile the append says so, and it is read then.
    holds: nothing is appended if this stream has moved since it was asked, also where this part
    has nothing to write. So whatever is asked for with it is appended whole, where that can be.
    """

    kind: type[Aggregate]
    key: object
    decide: Callable[[Any], Sequence[Event]]
    by: Meta
    need: Callable[[Any], None] | None = None
    seen: folds.Fold | None = None
    holds: bool = False
    place: folds.Key = field(init=False, repr=False, compare=False)
    """The stream, and what it is folded to: worked out once, asked for many times."""

    def __post_init__(self) -> None:
        """Name the stream."""
        object.__setattr__(self, "place", (self.kind, stream_name(self.kind, self.key)))


def record_together(
    store: EventStore, parts: Sequence[Part], *, alone: bool = False, whole: bool = False
) -> list[Position]:
    """Ask the rules of several aggregates and append what they decide.

    Args:
        alone: let nobody else append meanwhile, where the store can do that: then it is all of it
            or nothing. Where it cannot, the parts are written in their order.
        whole: append all or nothing, where the store can do that, without keeping others out.

    Returns: for each part, the position of the last event that its decision rests on.
    Raises: what the rules refuse, with nothing written unless another writer came in between;
        StreamMoved.
    """
    [outcome] = record_each(store, [parts], alone=alone, whole=whole)
    if isinstance(outcome, Refusal):
        raise outcome
    return outcome


def record_each(
    store: EventStore,
    requests: Sequence[Sequence[Part]],
    *,
    alone: bool = False,
    whole: bool = False,
) -> list[list[Position] | Refusal]:
    """Ask for several things, each as `record_together` would, and append all of it at once.

    They come one after the other: each is asked with what those before it decided. One that is
    refused writes nothing, and the others stand. No request has two parts on one stream.

    Returns: for each request its positions, or its refusal.
    Raises: StreamMoved and other failures of the store: what was appended by then stays.
    """
    # Without a command id a lost reply must still not write twice within this call.
    command_ids = [[part.by.command_id or uuid4() for part in parts] for parts in requests]
    keys = list(dict.fromkeys(part.place for parts in requests for part in parts))
    last: StoreError | None = None
    busy = set[str]()
    whole = whole or any(part.holds for parts in requests for part in parts)
    for attempt in range(DECIDE_ATTEMPTS_MAX):
        waits = alone or attempt >= OVERTAKEN_MAX
        try:
            with (
                folds.in_turn(store, keys),
                store.in_line(busy),
                store.alone() if waits else nullcontext(),
            ):
                desk = _Desk(store, keys, () if attempt else requests)
                return desk.settle(requests, command_ids, whole=whole)
        except (StreamMoved, OutcomeUnknown) as failure:
            last = failure
            if isinstance(failure, StreamMoved):
                busy.add(failure.stream)
    # Nobody was faster where it is the answers that are lost: that must not read as harmless.
    raise (
        last
        if isinstance(last, OutcomeUnknown)
        else StreamMoved(", ".join(stream for _, stream in keys))
    )


@dataclass(slots=True)
class _Sheet:
    """One stream while it is decided on: as it will be once what is written here is appended.

    uses: parts still to be asked. written: by command, the place of its last write in the append.
    last: the place of the last write of all; None: nothing is written yet.
    """

    folded: folds.Fold
    state: Any
    version: int
    uses: int = 0
    written: dict[UUID, int] = field(default_factory=dict)
    last: int | None = None


class _Desk:
    """The streams of a few requests, and what is to be appended to them."""

    def __init__(
        self, store: EventStore, keys: Sequence[folds.Key], seen: Sequence[Sequence[Part]]
    ) -> None:
        known = {part.place: part.seen for parts in seen for part in parts if part.seen is not None}
        unknown = [key for key in keys if key not in known]
        found = dict(zip(unknown, folds.fold_each(store, unknown), strict=True)) if unknown else {}
        self._store = store
        self._sheets = {key: _sheet(known.get(key) or found[key]) for key in keys}
        self._writes: list[Write] = []

    def settle(
        self,
        requests: Sequence[Sequence[Part]],
        command_ids: Sequence[Sequence[UUID]],
        *,
        whole: bool,
    ) -> list[list[Position] | Refusal]:
        """Ask every rule, then append."""
        for parts in requests:
            for part in parts:
                self._sheets[part.place].uses += 1
        settled = [self._asked(*each) for each in zip(requests, command_ids, strict=True)]
        appended: Sequence[Appended] = []
        if any(write.events for write in self._writes):
            append = self._store.append_whole if whole else self._store.append_each
            appended = append(self._writes)
        return [
            each if isinstance(each, Refusal) else [_position(one, appended) for one in each]
            for each in settled
        ]

    def _asked(
        self, parts: Sequence[Part], command_ids: Sequence[UUID]
    ) -> list[Position | _Place] | Refusal:
        """Ask the rules of one request; put what they decide on the desk."""
        for part in parts:
            self._sheets[part.place].uses -= 1
        try:
            decided = [self._decide(*each) for each in zip(parts, command_ids, strict=True)]
        except Refusal as refusal:
            for part in parts:
                self._need_standing(part.place)
            return refusal
        if any(isinstance(each, list) for each in decided):
            for part, each in zip(parts, decided, strict=True):
                if part.holds and not isinstance(each, list):
                    self._hold(part)
        return [
            self._write(part, command_id, each) if isinstance(each, list) else each
            for part, command_id, each in zip(parts, command_ids, decided, strict=True)
        ]

    def _hold(self, part: Part) -> None:
        """Let the append say so if a stream has moved to which nothing is written."""
        _, stream = part.place
        self._writes.append(Write(stream, (), self._sheets[part.place].version, part.by))

    def _decide(self, part: Part, command_id: UUID) -> Position | _Place | list[Event]:
        """Return the events of a part, or where what it asks for stands already."""
        kind, stream = part.place
        sheet = self._sheets[kind, stream]
        stands: Position | _Place | None = recorded_before(sheet.folded, command_id, stream)
        if stands is None and command_id in sheet.written:
            stands = _Place(sheet.written[command_id])
        if stands is None:
            events = list(part.decide(sheet.state))
            if events:
                return events
            self._need_standing((kind, stream))
            stands = _end(sheet)
        if part.need is not None:
            part.need(sheet.state)
        return stands

    def _need_standing(self, key: folds.Key) -> None:
        """Begin anew where others went on from the fold that a rule was asked with."""
        need_standing(self._store, key, self._sheets[key].folded)

    def _write(self, part: Part, command_id: UUID, events: list[Event]) -> _Place:
        kind, stream = part.place
        sheet = self._sheets[kind, stream]
        fresh = named(events, command_id, stream)
        self._writes.append(Write(stream, fresh, sheet.version, part.by))
        place = len(self._writes) - 1
        if sheet.uses:
            # What is not appended yet must not get into what is remembered of the stream.
            state = sheet.state if sheet.last is not None else folds.beside(sheet.state)
            for event in events:
                state = kind.evolve(state, event)
            sheet.state = state
        sheet.version += len(events)
        sheet.last = sheet.written[command_id] = place
        return _Place(place)


class _Place(NamedTuple):
    """The place of a write in the append that is being prepared."""

    number: int


def _sheet(folded: folds.Fold) -> _Sheet:
    return _Sheet(folded, folded.state, folded.version)


def _end(sheet: _Sheet) -> Position | _Place:
    """Return where the last event of a stream stands."""
    if sheet.last is not None:
        return _Place(sheet.last)
    folded = sheet.folded
    return Position(folded.positions[folded.last]) if folded.last else START


def _position(stands: Position | _Place, appended: Sequence[Appended]) -> Position:
    return appended[stands.number].position if isinstance(stands, _Place) else stands


def look(store: EventStore, kind: type[Aggregate], key: object) -> folds.Fold:
    """Return a stream as it is now, for a part's `seen`."""
    return folds.fold(store, kind, stream_name(kind, key))


def look_at_all(
    store: EventStore, wanted: Iterable[tuple[type[Aggregate], object]]
) -> dict[tuple[type[Aggregate], object], folds.Fold]:
    """Return several streams as they are now, in one reading."""
    names = list(dict.fromkeys(wanted))
    found = folds.fold_each(store, [(kind, stream_name(kind, key)) for kind, key in names])
    return dict(zip(names, found, strict=True))


NONE_YET = folds.Fold()
"""For a part's `seen`: a stream that was named a moment ago, and has nothing in it most likely."""
