"""Waiting in line for a stream that several processes write to at once.

Whoever is overtaken asks its rule again with the newest state. Of many that do so at the same time
all but one are overtaken again, and each try costs the server as much as a write. So who was
overtaken once takes its turn: an advisory lock of the stream, which no reader and no first try asks
for. It is a courtesy and never what keeps a stream right, which is the version that an append
expects: who waits too long, or on another store, or inside a transaction, tries as before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from django.db import DatabaseError, InterfaceError, connection

_TAKE = "SELECT es_take_turn(%s)"
_LEAVE = "SELECT pg_advisory_unlock(5122, hashtext(%s))"


@contextmanager
def in_line(streams: Collection[str]) -> Iterator[None]:
    """Wait for a turn on each of these streams, half a second at most, and hold it meanwhile."""
    if not streams or connection.in_atomic_block:
        yield
        return
    taken = [stream for stream in sorted(streams) if _take(stream)]
    try:
        yield
    finally:
        for stream in taken:
            _leave(stream)


def _take(stream: str) -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute(_TAKE, [stream])
            return bool(cursor.fetchone()[0])
    except (DatabaseError, InterfaceError):
        return False  # an outage is told by what is read and appended next


def _leave(stream: str) -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute(_LEAVE, [stream])
    except (DatabaseError, InterfaceError):
        connection.close()  # the server lets go of what a session held
