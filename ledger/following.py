"""Feed recorded events to those who follow them: projections (rows) and policies (requests).

A projection's rows and its checkpoint commit in one transaction: exactly once. One that fails stops
there and says why in its checkpoint, since rows that lack an event are wrong; others go on. How
policies react is in `ledger.reacting`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import structlog
from django.db import InterfaceError, OperationalError, models, transaction

from ledger.domain.event import Event
from ledger.domain.redaction import redact
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
from ledger.prepared import ask
from ledger.rows import Rows

PAGE = 1_000
RETRY_AFTER = timedelta(seconds=5)
WAIT_STEP_SECONDS = 0.005

AWAY = (StoreUnavailable, OutcomeUnknown, StreamMoved, OperationalError, InterfaceError)
"""Store or database is away, or somebody was faster: the follower is fine and tries again. What
the database refuses (a constraint, a value) is the follower's own fault and stops it."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Projection:
    """A read model: its tables, the events it is told, and how they become rows."""

    name: str
    project: Callable[[Recorded, Rows], None]
    tables: tuple[type[models.Model], ...]
    on: frozenset[str]


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


def follow_projections(store: EventStore, projections: Sequence[Projection]) -> int:
    """Move every projection on by at most one page; return how many events were new to one.

    Projections at the same place share one read and one decoding of the page, and those that the
    page says nothing to are moved over it together: with a dozen read models that is the
    difference between one small transaction and a dozen.
    """
    moved = 0
    for start, group in by_place(projections):
        page = store.read_all(after=start, limit=PAGE)
        if page.next_position == start:
            continue
        told, idle = told_apart(group, page)
        move_over(idle, start, page.next_position)
        moved += len(page.events) if idle else 0
        if _project_together(told, start, page):
            moved += len(page.events) * len(told)
            continue
        for projection in told:
            try:
                _project_page(projection, start, page)
            except AWAY:
                raise
            except Exception as failure:
                _stop(projection.name, failure)
            else:
                moved += len(page.events)
    return moved


def _project_together(projections: Sequence[Projection], start: Position, page: Page) -> bool:
    """Project a page to several read models in one transaction; tell if that could be done.

    Where one of them fails nothing of it stands, and each has to be tried alone.
    """
    if len(projections) < 2:
        return False
    names = [projection.name for projection in projections]
    try:
        with transaction.atomic():
            held = Checkpoint.objects.select_for_update().filter(name__in=names, position=start)
            if len(held.order_by("name")) != len(names):
                return False  # another process was here first
            for projection in projections:
                _project(projection, page)
            move_to(names, page.next_position)
    except AWAY:
        raise
    except Exception:
        return False
    return True


def _project_page(projection: Projection, start: Position, page: Page) -> None:
    with transaction.atomic():
        checkpoint = Checkpoint.objects.select_for_update().get(name=projection.name)
        if checkpoint.position != start:
            return  # another process was here first
        _project(projection, page)
        move_to([projection.name], page.next_position)


def _project(projection: Projection, page: Page) -> None:
    told = [recorded for recorded in page.events if recorded.type in projection.on]
    rows = Rows()
    rows.expect(projection.tables, [recorded.event for recorded in told])
    for recorded in told:
        projection.project(recorded, rows)
    rows.flush()


_MOVE = """
UPDATE ledger_checkpoint SET position = %s, moved_at = %s, error = '' WHERE name = ANY(%s)
RETURNING set_config('synchronous_commit', 'off', true)
"""


def move_to(names: Sequence[str], position: Position) -> None:
    """Note how far these are, with what commits beside. Nobody waits for the disk: what a server
    that breaks down has forgotten is done again."""
    ask(_MOVE, (position, datetime.now(UTC), list(names)))


FollowerT = TypeVar("FollowerT", Projection, Policy)


def by_place(followers: Sequence[FollowerT]) -> list[tuple[Position, list[FollowerT]]]:
    """Group followers by where they stand; leave out those that stopped a moment ago."""
    names = [follower.name for follower in followers]
    known = {each.name: each for each in Checkpoint.objects.filter(name__in=names)}
    missing = [Checkpoint(name=name) for name in names if name not in known]
    if missing:
        Checkpoint.objects.bulk_create(missing, ignore_conflicts=True)
    retry_before = datetime.now(UTC) - RETRY_AFTER
    places: dict[Position, list[FollowerT]] = {}
    for follower in followers:
        checkpoint = known.get(follower.name)
        if checkpoint and checkpoint.error and (checkpoint.moved_at or retry_before) > retry_before:
            continue
        position = Position(checkpoint.position if checkpoint else START)
        places.setdefault(position, []).append(follower)
    return list(places.items())


def told_apart(
    followers: Sequence[FollowerT], page: Page
) -> tuple[list[FollowerT], list[FollowerT]]:
    """Tell apart those that the page says something to and those that it does not."""
    types = {recorded.type for recorded in page.events}
    told = [follower for follower in followers if follower.on & types]
    return told, [follower for follower in followers if not follower.on & types]


_MOVE_OVER = """
UPDATE ledger_checkpoint SET position = %s, moved_at = %s, error = ''
 WHERE name = ANY(%s) AND position = %s
RETURNING set_config('synchronous_commit', 'off', true)
"""


def move_over(followers: Sequence[FollowerT], start: Position, end: Position) -> None:
    """Move followers over a page that says nothing to them, unless somebody has already."""
    if followers:
        names = [follower.name for follower in followers]
        ask(_MOVE_OVER, (end, datetime.now(UTC), names, start))


def _stop(name: str, failure: Exception) -> None:
    log.error("follower.stopped", follower=name, error=repr(failure), exc_info=failure)
    Checkpoint.objects.filter(name=name).update(
        error=redact(f"{type(failure).__name__}: {failure}")[:2000], moved_at=datetime.now(UTC)
    )


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
