"""Write to several streams as if by one `record` after the other, in one round trip.

Every rule is asked before anything is written. The streams are written in the order given, and a
writer who was faster on one of them ends it there: then all rules are asked again, and those whose
events are there by now are known by their command. So what is written first must do no harm if
nothing follows: money is set aside before a bid is placed, never the other way round.

On PostgreSQL all of it commits together, and the lock under which the log grows is held by the
server alone, never while a process thinks or waits for its turn on a busy machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from ledger.domain.event import Event
from ledger.eventstore import folds
from ledger.eventstore.port import (
    DECIDE_ATTEMPTS_MAX,
    START,
    Aggregate,
    EventStore,
    Meta,
    OutcomeUnknown,
    Position,
    StreamMoved,
    Write,
    named,
    recorded_before,
    stream_name,
)


@dataclass(frozen=True, slots=True)
class Part:
    """One stream's part: see `record` for `decide` and `by`.

    need: asked where there is nothing to write, with the state as it is; may raise a Refusal.
    seen: the stream as the caller has just read it, so that it is not read again at first; if it
    has moved on meanwhile the append says so, and it is read then.
    """

    kind: type[Aggregate]
    key: object
    decide: Callable[[Any], Sequence[Event]]
    by: Meta
    need: Callable[[Any], None] | None = None
    seen: folds.Fold | None = None


def record_together(store: EventStore, parts: Sequence[Part]) -> list[Position]:
    """Ask the rules of several aggregates and append what they decide.

    Returns: for each part, the position of the last event that its decision rests on.
    Raises: what the rules refuse, with nothing written unless another writer came in between;
        StreamMoved.
    """
    # Without a command id a lost reply must still not write twice within this call.
    command_ids = [part.by.command_id or uuid4() for part in parts]
    for attempt in range(DECIDE_ATTEMPTS_MAX):
        if attempt:
            parts = [replace(part, seen=None) for part in parts]
        try:
            with ExitStack() as turns:
                for part in parts:
                    stream = stream_name(part.kind, part.key)
                    turns.enter_context(folds.in_turn(store, part.kind, stream))
                return _written(store, parts, command_ids)
        except (StreamMoved, OutcomeUnknown):
            continue
    raise StreamMoved(", ".join(stream_name(part.kind, part.key) for part in parts))


def _written(
    store: EventStore, parts: Sequence[Part], command_ids: Sequence[UUID]
) -> list[Position]:
    found: list[Position | None] = []
    writes: list[Write] = []
    for part, command_id in zip(parts, command_ids, strict=True):
        position, write = _asked(store, part, command_id)
        found.append(position)
        if write is not None:
            writes.append(write)
    appended = iter(store.append_each(writes) if writes else [])
    return [next(appended).position if each is None else each for each in found]


def _asked(
    store: EventStore, part: Part, command_id: UUID
) -> tuple[Position, None] | tuple[None, Write]:
    """Return where a part's decision stands already, or what is to be written for it."""
    stream = stream_name(part.kind, part.key)
    folded = part.seen or folds.fold(store, part.kind, stream)
    position = recorded_before(folded, command_id, stream)
    if position is None:
        events = part.decide(folded.state)
        if events:
            fresh = named(events, command_id, stream)
            return None, Write(stream, fresh, folded.version, part.by)
        position = Position(folded.positions[folded.last]) if folded.last else START
    if part.need is not None:
        part.need(folded.state)
    return position, None


def look(store: EventStore, kind: type[Aggregate], key: object) -> folds.Fold:
    """Return a stream as it is now, for a part's `seen`."""
    return folds.fold(store, kind, stream_name(kind, key))
