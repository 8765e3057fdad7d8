"""psycopg, whose connections give up where the server does not answer at all.

The server's own time limits end what takes too long. They cannot help where the server itself
stands still, is cut off, or waits for a disk that hangs: then only who waits can stop waiting.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar, TypeVar

import psycopg

# Django looks errors and values up by these names.
from psycopg import (
    Binary,
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
)
from psycopg.abc import PQGen

from config.database.limits import kept
from ledger.outages import DatabaseHung

__all__ = [
    "Binary",
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "connect",
]

REST_SECONDS = 1.0
"""After a server did not answer at all nobody else of this process tries for so long."""

RV = TypeVar("RV")


class Connection(psycopg.Connection[Any]):
    """One that waits for each answer only so long."""

    silent_until: ClassVar[float] = 0.0

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Wait for the server. Raises: DatabaseHung, with the connection closed."""
        limit = kept().answer_seconds if timeout is None else timeout
        try:
            return super().wait(gen, interval, limit)
        except psycopg.errors._WaitTimeout:
            if timeout is not None:
                raise
            self.pgconn.finish()
            raise DatabaseHung(f"no answer within {limit:.0f} s") from None


def connect(**parameters: Any) -> psycopg.Connection[Any]:
    """Connect, unless the server gave no answer a moment ago.

    Else everybody who asks would wait as long, one behind the other.
    """
    if time.monotonic() < Connection.silent_until:
        raise DatabaseHung("it did not answer a moment ago")
    try:
        return Connection.connect(**parameters)
    except psycopg.errors.ConnectionTimeout:
        Connection.silent_until = time.monotonic() + REST_SECONDS
        raise
