"""A projection that counts, and a process that is stopped in the middle of following it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import ClassVar
from unittest.mock import patch
from uuid import UUID, uuid5

from django.db import models

from ledger import following, places
from ledger.domain.event import EVENT_TYPES, Event
from ledger.eventstore.port import Meta, NewEvent, Position, Recorded
from ledger.eventstore.postgres import PostgresStore
from ledger.following import Projection
from ledger.rows import Rows

NAMESPACE = UUID(int=77)


class Counted(Event, name="tallying.counted"):
    """Something to count."""

    number: int


class Echoed(Event, name="tallying.echoed"):
    """A policy answered something counted."""

    number: int


KINDS: tuple[type[Event], ...] = (Counted, Echoed)
for _kind in KINDS:
    # Known only where a test says so: other tests look at all event types.
    del EVENT_TYPES[_kind.name]


class Tally(models.Model):
    """How many events one stream has had, and the sum of their numbers."""

    stream = models.CharField(max_length=64, primary_key=True)
    events = models.IntegerField()
    total = models.BigIntegerField()

    objects: ClassVar[models.Manager[Tally]]

    class Meta:
        app_label = "tallying"  # of no installed app: this table exists in tests only

    def __str__(self) -> str:
        return f"{self.stream}: {self.events}"


def project_tally(recorded: Recorded, rows: Rows) -> None:
    """Count once more: an event that comes twice shows, and so does one that is missing."""
    event = recorded.event
    assert isinstance(event, Counted)
    row = rows.find(Tally, recorded.stream)
    if row is None:
        rows.add(Tally(stream=recorded.stream, events=1, total=event.number))
    else:
        rows.change(Tally, recorded.stream, events=row.events + 1, total=row.total + event.number)


PROJECTION = Projection("tallying.tally", project_tally, (Tally,), frozenset({Counted.name}))


def counted(stream: str, number: int) -> NewEvent:
    """Return an event of `stream` with the id that belongs to its number."""
    return NewEvent(uuid5(NAMESPACE, f"{stream}/{number}"), Counted(number=number))


BY = Meta(actor="user:test")


def stop_at(point: str) -> None:
    """Say that `point` has been reached and wait there to be killed."""
    print(point, flush=True)
    sys.stdin.read()


def follow_until(point: str) -> None:
    """Follow one page, up to `point`: checkpoint, rows (not written yet), commit."""
    EVENT_TYPES.update({kind.name: kind for kind in KINDS})
    flush, move = Rows.flush, places.move

    def stopped_flush(rows: Rows) -> None:
        if point == "rows":
            stop_at(point)
        flush(rows)
        if point == "commit":
            stop_at(point)

    def stopped_move(names: Sequence[str], start: Position, end: Position) -> int:
        if point == "checkpoint":
            stop_at(point)
        return move(names, start, end)

    with (
        patch.object(Rows, "flush", stopped_flush),
        patch.object(following, "move", stopped_move),
    ):
        following.follow_projections(PostgresStore(), [PROJECTION])
