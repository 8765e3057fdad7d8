"""Feed recorded events to those who follow them: projections (rows) and policies (requests).

A projection's rows and its checkpoint commit in one transaction: exactly once. One that fails stops
there and says why in its checkpoint, since rows that lack an event are wrong; others go on. How
policies react is in `ledger.reacting`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import structlog
from django.db import InterfaceError, OperationalError, models, transaction

from ledger.domain.event import Event
from ledger.eventstore.port import (
    START,
    EventStore,
    OutcomeUnknown,
    Page,
    Position,
    Recorded,
    StoreUnavailable,
    StreamMoved,
)
from ledger.eventstore.together import Part
from ledger.models import Checkpoint
from ledger.places import Places, move, note_stop
from ledger.rows import Rows

PAGE = 1_000
WAIT_STEP_SECONDS = 0.005

AWAY = (StoreUnavailable, OutcomeUnknown, StreamMoved, OperationalError, InterfaceError)
"""Store or database is away, or somebody was faster: the follower is fine and tries again. What
the database refuses (a constraint, a value) is the follower's own fault and stops it."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Projection:
    """A read model: its tables, the events it is told, and how they become rows.

    is_bulk: its rows are many, and nobody waits for a single one: they are written apart from those
        that somebody waits for, more at a time.
    """

    name: str
    project: Callable[[Recorded, Rows], None]
    tables: tuple[type[models.Model], ...]
    on: frozenset[str]
    is_bulk: bool = False


Steps = Sequence[Sequence[Part]]
Asking = Callable[[Sequence[Recorded], EventStore], Sequence[Steps | None]]


def _stream_of(recorded: Recorded) -> str:
    return recorded.stream


@dataclass(frozen=True, slots=True)
class Policy:
    """When one of these events happens, something is asked for.

    ask: what each of several events asks for, step by step; a step is written in one append for all
        of them. None for an event that has to be reacted to alone. So is one that is refused.
    subject: what an event is about: those of one subject are reacted to in their order.
    """

    name: str
    react: Callable[[Recorded, EventStore], None]
    on: frozenset[str]
    ask: Asking | None = None
    subject: Callable[[Recorded], str] = _stream_of


def names_of(*kinds: type[Event]) -> frozenset[str]:
    """Return the stored names of event types: what a follower is told."""
    return frozenset(kind.name for kind in kinds)


class Projecting:
    """Writes the rows of some read models, page by page. Not for threads: one loop has one."""

    def __init__(self, projections: Sequence[Projection]) -> None:
        """Begin where their checkpoints are."""
        self._places = Places(projections)

    def forget(self) -> None:
        """Look where the checkpoints are before the next pass."""
        self._places.forget()

    def run_once(self, store: EventStore) -> int:
        """Move every projection on by at most one page; return how many events were new to one.

        Projections at the same place share one read, one decoding and one transaction, and those
        that the page says nothing to are moved over it in the same statement.
        """
        moved = 0
        for start, group in self._places.groups():
            page = store.read_all(after=start, limit=PAGE)
            if page.next_position != start:
                moved += self._project_page(group, start, page)
        return moved

    def _project_page(self, group: Sequence[Projection], start: Position, page: Page) -> int:
        told, idle = told_apart(group, page)
        try:
            self._move_on(group, told, start, page)
            return len(page.events) * (len(told) + bool(idle))
        except AWAY:
            self._places.forget()
            raise
        except Exception as failure:  # noted at the one that fails: the others go on
            if not told:
                raise
            if len(group) == 1:
                self._stop(group[0], failure)
                return 0
        # Nothing of it stands, so each is tried alone: the others go on without the one that fails.
        alone = [*([idle] if idle else []), *([each] for each in told)]
        return sum(self._project_page(each, start, page) for each in alone)

    def _move_on(
        self, group: Sequence[Projection], told: Sequence[Projection], start: Position, page: Page
    ) -> None:
        """Move a group over a page and write what that says to `told`, all of it or nothing.

        Nothing if another process was here first; then the next pass looks where they stand.
        """
        names = [projection.name for projection in group]
        with transaction.atomic() if told else nullcontext():
            if move(names, start, page.next_position) < len(names):
                if told:
                    transaction.set_rollback(True)
                self._places.forget()
                return
            for projection in told:
                _project(projection, page)
        self._places.moved(names, page.next_position)

    def _stop(self, projection: Projection, failure: Exception) -> None:
        log.error(
            "follower.stopped", follower=projection.name, error=repr(failure), exc_info=failure
        )
        note_stop(projection.name, failure)
        self._places.forget()


def follow_projections(store: EventStore, projections: Sequence[Projection]) -> int:
    """Move every projection on by at most one page, from where its checkpoint is just now."""
    return Projecting(projections).run_once(store)


def _project(projection: Projection, page: Page) -> None:
    told = [recorded for recorded in page.events if recorded.type in projection.on]
    rows = Rows()
    rows.expect(projection.tables, [recorded.event for recorded in told])
    for recorded in told:
        projection.project(recorded, rows)
    rows.flush()


FollowerT = TypeVar("FollowerT", Projection, Policy)


def told_apart(
    followers: Sequence[FollowerT], page: Page
) -> tuple[list[FollowerT], list[FollowerT]]:
    """Tell apart those that the page says something to and those that it does not."""
    types = {recorded.type for recorded in page.events}
    told = [follower for follower in followers if follower.on & types]
    return told, [follower for follower in followers if not follower.on & types]


def wait_until_read(names: Sequence[str], position: Position, *, timeout_seconds: float) -> bool:
    """Wait until every named follower has read up to `position`; tell if it came to that.

    This is read-your-writes: a command answers with a position, a read may ask to see it.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        behind = Checkpoint.objects.filter(name__in=names, position__lt=position)
        known = Checkpoint.objects.filter(name__in=names).count()
        if known == len(names) and not behind.exists():
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(WAIT_STEP_SECONDS)


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a follower is behind.

    seconds: age of the oldest event it has not read; 0 when it has read everything. Not a count:
    positions are opaque, and on some stores their differences are bytes.
    error: why it stopped, if it did.
    """

    name: str
    seconds: float
    error: str


def lag(store: EventStore, *, now: datetime) -> list[Lag]:
    """Return how far each follower is behind, by name."""
    head = store.head()
    oldest: dict[int, float] = {}
    found = []
    for checkpoint in Checkpoint.objects.order_by("name"):
        position = checkpoint.position
        if position not in oldest:
            oldest[position] = 0.0 if position >= head else _age_after(store, position, now)
        found.append(Lag(checkpoint.name, oldest[position], checkpoint.error))
    return found


def _age_after(store: EventStore, position: int, now: datetime) -> float:
    events = store.read_all(after=Position(position), limit=1).events
    return max(0.0, (now - events[0].recorded_at).total_seconds()) if events else 0.0


def read_up_to(name: str) -> Position:
    """Return the position up to which a follower has read."""
    checkpoint = Checkpoint.objects.filter(name=name).first()
    return Position(checkpoint.position if checkpoint else START)


def last_moves() -> dict[str, datetime | None]:
    """Return when each follower last moved on, or stopped."""
    return dict(Checkpoint.objects.values_list("name", "moved_at"))
