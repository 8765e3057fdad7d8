"""Feed recorded events to those who follow them: projections (rows) and policies (requests).

A projection's rows and its checkpoint commit in one transaction: exactly once. A policy asks for
something and then moves its checkpoint: at least once, so what it asks for must be harmless when
asked twice. A follower that fails stops there and says why in its checkpoint; others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog
from django.db import DatabaseError, models, transaction

from ledger.domain.event import Event
from ledger.eventstore.port import START, EventStore, Page, Position, Recorded, StoreError
from ledger.models import Checkpoint
from ledger.rows import Rows

PAGE = 1_000
RETRY_AFTER = timedelta(seconds=5)
WAIT_STEP_SECONDS = 0.005

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Projection:
    """A read model: its tables, the events it is told, and how they become rows."""

    name: str
    project: Callable[[Recorded, Rows], None]
    tables: tuple[type[models.Model], ...]
    on: frozenset[str]


@dataclass(frozen=True, slots=True)
class Policy:
    """When one of these events happens, something is asked for."""

    name: str
    react: Callable[[Recorded, EventStore], None]
    on: frozenset[str]


def names_of(*kinds: type[Event]) -> frozenset[str]:
    """Return the stored names of event types: what a follower is told."""
    return frozenset(kind.name for kind in kinds)


def follow_projections(store: EventStore, projections: Sequence[Projection]) -> int:
    """Move every projection on by at most one page; return how many events were new to one.

    Projections at the same place share one read and one decoding of the page.
    """
    moved = 0
    pages: dict[Position, Page] = {}
    for projection in projections:
        start, stopped = _standing(projection.name)
        if stopped:
            continue
        page = pages.get(start)
        if page is None:
            page = pages[start] = store.read_all(after=start, limit=PAGE)
        if page.next_position == start:
            continue
        try:
            _project_page(projection, start, page)
        except (StoreError, DatabaseError):
            raise
        except Exception as failure:
            _stop(projection.name, failure)
        else:
            moved += len(page.events)
    return moved


def _project_page(projection: Projection, start: Position, page: Page) -> None:
    with transaction.atomic():
        checkpoint = Checkpoint.objects.select_for_update().get(name=projection.name)
        if checkpoint.position != start:
            return  # another process was here first
        rows = Rows()
        for recorded in page.events:
            if recorded.type in projection.on:
                projection.project(recorded, rows)
        rows.flush()
        _move(checkpoint, page.next_position)


def follow_policies(store: EventStore, policies: Sequence[Policy]) -> int:
    """Move every policy on by at most one page; return how many events were reacted to."""
    reacted = 0
    for policy in policies:
        start, stopped = _standing(policy.name)
        if stopped:
            continue
        page = store.read_all(after=start, limit=PAGE, only=policy.on)
        if page.next_position == start:
            continue
        for recorded in page.events:
            try:
                policy.react(recorded, store)
            except (StoreError, DatabaseError):
                raise
            except Exception as failure:
                _stop(policy.name, failure)
                break
            _move(Checkpoint(name=policy.name), recorded.position)
            reacted += 1
        else:
            _move(Checkpoint(name=policy.name), page.next_position)
    return reacted


def _standing(name: str) -> tuple[Position, bool]:
    """Return where a follower stands, and whether it stopped too recently to try again."""
    checkpoint, _ = Checkpoint.objects.get_or_create(name=name)
    stopped = bool(
        checkpoint.error
        and checkpoint.moved_at
        and datetime.now(UTC) - checkpoint.moved_at < RETRY_AFTER
    )
    return Position(checkpoint.position), stopped


def _move(checkpoint: Checkpoint, position: Position) -> None:
    Checkpoint.objects.filter(name=checkpoint.name).update(
        position=position, moved_at=datetime.now(UTC), error=""
    )


def _stop(name: str, failure: Exception) -> None:
    log.error("follower.stopped", follower=name, error=repr(failure), exc_info=failure)
    Checkpoint.objects.filter(name=name).update(
        error=f"{type(failure).__name__}: {failure}"[:2000], moved_at=datetime.now(UTC)
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


def reset(name: str) -> None:
    """Put a follower back to the start of the store."""
    Checkpoint.objects.update_or_create(name=name, defaults={"position": START, "error": ""})
