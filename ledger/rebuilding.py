"""Rebuild a read model beside the live one and swap it in: `manage.py rebuild NAME`.

The new tables are made in a schema of their own, with that schema first in the search path, so
the very projection code fills them. The live tables serve readers until one short transaction
drops them and moves the new ones in their place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, models, transaction

from ledger.collecting import uncollected
from ledger.domain.refusal import Refusal
from ledger.eventstore.port import START, EventStore, Position
from ledger.following import Projection
from ledger.models import Checkpoint
from ledger.rows import Rows

REBUILD_PAGE = 20_000
ROWS_HELD_MAX = 300_000


class RebuildRunning(Refusal):
    """This read model is being rebuilt by another process; let that one finish."""


def rebuild(store: EventStore, projection: Projection) -> int:
    """Fill new tables from event 0, swap them in, and return how many events were read.

    Readers see the old rows until the swap and the new ones after it. The live follower is held
    off only while the last few events are read.

    Raises: RebuildRunning.
    """
    schema = "rebuild_" + projection.name.replace(".", "_").replace("-", "_")
    Checkpoint.objects.get_or_create(name=projection.name)
    with _alone(schema), _beside(schema), uncollected():
        with connection.schema_editor() as editor:
            for table in projection.tables:
                editor.create_model(table)
                for guard in getattr(table, "GUARDS", ()):
                    editor.execute(guard)
        rows = Rows(fresh=True)
        position, events = _replay(store, projection, START, rows)
        rows.forget()
        with transaction.atomic():
            checkpoint = Checkpoint.objects.select_for_update().get(name=projection.name)
            position, more = _replay(store, projection, position, rows)
            rows.flush()
            _swap(schema, projection.tables)
            checkpoint.position, checkpoint.error = position, ""
            checkpoint.save(update_fields=["position", "error"])
    return events + more


def _replay(
    store: EventStore, projection: Projection, position: Position, rows: Rows
) -> tuple[Position, int]:
    events = 0
    while True:
        page = store.read_all(after=position, limit=REBUILD_PAGE, only=projection.on)
        for recorded in page.events:
            projection.project(recorded, rows)
        events += len(page.events)
        position = page.next_position
        if len(rows) > ROWS_HELD_MAX:
            rows.forget()
        if page.caught_up:
            return position, events


@contextmanager
def _alone(schema: str) -> Iterator[None]:
    """Keep a second rebuild out: it would drop the tables that this one fills."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", [schema])
        (held,) = cursor.fetchone() or (False,)
    if not held:
        raise RebuildRunning(name=schema.removeprefix("rebuild_"))
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", [schema])


@contextmanager
def _beside(schema: str) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
        cursor.execute(f'CREATE SCHEMA "{schema}"')
        cursor.execute(f'SET search_path TO "{schema}", public')
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SET search_path TO DEFAULT")
            cursor.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


def _swap(schema: str, tables: tuple[type[models.Model], ...]) -> None:
    with connection.cursor() as cursor:
        for table in tables:
            name = table._meta.db_table
            cursor.execute(f'DROP TABLE public."{name}"')
            cursor.execute(f'ALTER TABLE "{schema}"."{name}" SET SCHEMA public')


def fingerprint(tables: tuple[type[models.Model], ...]) -> str:
    """Return a sha256 over every byte of the tables' rows in key order.

    Columns are read by name: a migration adds one at the end, a rebuild makes it in its place.
    """
    digest = hashlib.sha256()
    for table in tables:
        key = table._meta.pk
        assert key is not None
        columns = ", ".join(sorted(f'"{f.column}"' for f in table._meta.local_concrete_fields))
        query = f'SELECT {columns} FROM "{table._meta.db_table}" ORDER BY "{key.column}"'
        with connection.cursor() as cursor, cursor.cursor.copy(f"COPY ({query}) TO STDOUT") as copy:
            for chunk in copy:
                digest.update(chunk)
    return digest.hexdigest()
