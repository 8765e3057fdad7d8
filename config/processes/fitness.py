"""Whether this program may work on this database at all: asked at the start, and by who looks.

Older code on newer data fails for ever on events that it does not know; behind a pooler that hands
a connection from one transaction to another, locks and prepared statements are somebody else's.
Neither gets better by waiting, so a process refuses and says why.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import cache

from django.apps import apps
from django.conf import settings
from django.db import DatabaseError, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from config import VERSION
from config.models import Wrote
from ledger.domain.event import EVENT_TYPES

NAMED_MAX = 3
"""Unknown things that are named; the others are counted."""
LOOKS = 3
"""How often a pooler is looked for: others may be served between two questions of ours."""
TAIL = 5_000

_TYPES = """
WITH RECURSIVE known AS (
    (SELECT type FROM es_event ORDER BY type LIMIT 1)
    UNION ALL
    SELECT (SELECT type FROM es_event e WHERE e.type > known.type ORDER BY type LIMIT 1)
      FROM known WHERE known.type IS NOT NULL
)
SELECT type, 1 FROM known WHERE type IS NOT NULL
UNION
SELECT type, schema_version FROM (
    SELECT type, schema_version FROM es_event ORDER BY position DESC LIMIT %s
) AS tail
"""
_WRITTEN = "SELECT EXISTS (SELECT 1 FROM es_event WHERE type = %s AND schema_version >= %s)"


def kinds() -> dict[str, int]:
    """Return every type of event that this program reads, with its newest version."""
    return {name: kind.schema_version for name, kind in sorted(EVENT_TYPES.items())}


def version() -> str:
    """Return what to call this program: its version, and a mark of what it reads."""
    mark = hashlib.sha256(json.dumps(kinds()).encode()).hexdigest()[:8]
    return f"{VERSION} ({mark})"


def note_version(now: datetime | None = None) -> None:
    """Note that this version works on this database. Nothing depends on its being noted."""
    at = now or datetime.now(UTC)
    with suppress(DatabaseError):
        Wrote.objects.update_or_create(
            version=version(),
            defaults={"kinds": kinds(), "last_at": at},
            create_defaults={"kinds": kinds(), "first_at": at, "last_at": at},
        )


def newer_data() -> str:
    """Say what is in the database that this program does not know, and who wrote last.

    Raises: DatabaseError.
    """
    unknown = [*_unknown_migrations(), *_unknown_events()]
    if not unknown:
        return ""
    named = ", ".join(sorted(unknown)[:NAMED_MAX])
    more = f" and {len(unknown) - NAMED_MAX} more" if len(unknown) > NAMED_MAX else ""
    return (
        f"this program ({version()}) is older than the data: it does not know {named}{more}. "
        f"{_last_writer()}Install that version or a later one"
    )


def _last_writer() -> str:
    if not _has(Wrote._meta.db_table):
        return ""
    last = Wrote.objects.exclude(version=version()).order_by("-last_at").first()
    return "" if last is None else f"{last.version} wrote last, {last.last_at:%d %b %Y %H:%M} UTC. "


@cache
def known_migrations() -> frozenset[tuple[str, str]]:
    """Return app and name of every migration of this program."""
    return frozenset(MigrationLoader(None).disk_migrations)


def _unknown_migrations() -> Iterator[str]:
    known = known_migrations()
    ours = {each.label for each in apps.get_app_configs()}
    for app, name in MigrationRecorder(connection).applied_migrations():
        if app in ours and (app, name) not in known:
            yield f"migration {app}.{name}"


def _unknown_events() -> Iterator[str]:
    """Name event types and versions in the log that this program cannot read."""
    if not _has("es_event"):
        return
    here = settings.ENV.eventstore_url == "postgres"
    with connection.cursor() as cursor:
        cursor.execute(_TYPES, [TAIL])
        found = _unread(dict(sorted(cursor.fetchall())))
        for other in _others():
            for name, newest in _unread(other).items():
                known = EVENT_TYPES.get(name)
                cursor.execute(_WRITTEN, [name, known.schema_version + 1 if known else 1])
                row = cursor.fetchone()
                if not here or (row and row[0]):
                    found[name] = newest
    yield from (f"{name} version {newest}" for name, newest in found.items())


def _others() -> list[Mapping[str, int]]:
    """Return what other versions that worked here read."""
    if not _has(Wrote._meta.db_table):
        return []
    return list(Wrote.objects.exclude(version=version()).values_list("kinds", flat=True))


def _unread(told: Mapping[str, int]) -> dict[str, int]:
    known = kinds()
    return {name: newest for name, newest in told.items() if newest > known.get(name, 0)}


def _has(table: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [table])
        row = cursor.fetchone()
    return bool(row and row[0])


def pooler() -> str:
    """Say if a pooler hands our connections from one transaction to another.

    Two connections are held open, and each asks which server process serves it: one process for
    both, or another one each time, is no connection of ours.

    Raises: DatabaseError.
    """
    with closing(_another()) as one, closing(_another()) as two:
        for _ in range(LOOKS):
            first = _served_by(one)
            with closing(_held(two)):
                if first == _served_by(two) or first != _served_by(one):
                    return (
                        "DATABASE_URL leads to a pooler in transaction mode, which lends one "
                        "connection to many: locks of loops would be kept by others. Let it pool "
                        "sessions (pgbouncer: pool_mode = session), or name the server itself"
                    )
    return ""


def _another() -> BaseDatabaseWrapper:
    found = connections["default"].copy()
    found.connect()
    return found


class _Transaction:
    def __init__(self, connected: BaseDatabaseWrapper) -> None:
        self._connected = connected
        connected.set_autocommit(False)

    def close(self) -> None:
        self._connected.rollback()
        self._connected.set_autocommit(True)


def _held(connected: BaseDatabaseWrapper) -> _Transaction:
    """Begin a transaction, during which even a pooler lends nobody else the server's process."""
    return _Transaction(connected)


def _served_by(connected: BaseDatabaseWrapper) -> int:
    with connected.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        row = cursor.fetchone()
    assert row is not None
    return int(row[0])


def connections_taken() -> tuple[int, int]:
    """Return how many connections the server has and how many it can have for such as us.

    Raises: DatabaseError.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            # Of others' connections one who is no superuser sees less than the kind.
            "SELECT (SELECT count(*) FROM pg_stat_activity WHERE usesysid IS NOT NULL"
            " AND datid IS NOT NULL AND coalesce(backend_type, '') IN ('', 'client backend')),"
            " current_setting('max_connections')::int"
            " - current_setting('superuser_reserved_connections')::int"
            " - coalesce(current_setting('reserved_connections', true)::int, 0)"
        )
        row = cursor.fetchone()
    assert row is not None
    return int(row[0]), int(row[1])
