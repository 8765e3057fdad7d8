"""Django's PostgreSQL backend, with an embedded server, time limits, and no stale connection.

The embedded server is started on the first connection, and not when the settings are read, so
that type checkers, `--help` and the agent start nothing. A lost one is started again by the next
connection.
"""

from __future__ import annotations

import select
from pathlib import Path
from typing import Any

import psycopg
from django.db import OperationalError
from django.db.backends.postgresql import base
from django.db.utils import DatabaseErrorWrapper
from django.utils.functional import cached_property

from config.database import driver
from config.database.embedded import ensure_running, owners_password
from config.database.limits import kept, program
from config.database.roles import OWNER
from ledger.outages import outage_of

WHERE_ASKED = 1_000_000_000
"""Statements are prepared where `prepare=True` asks for it. With psycopg's None, which Django sets,
none ever is; with a small number so would be texts with values in them, which come but once."""
PREPARED_MAX = 400
"""More than a process has of them: what it forgets is read and planned anew each time."""

_LIMIT = (
    "SELECT set_config(name, value, false)"
    " FROM unnest(%s::text[], %s::text[]) AS wanted (name, value)"
    " WHERE current_setting(name) = '0'"
)
"""Whoever set one for the role, the database or in DATABASE_URL's options is heeded."""


class Errors(DatabaseErrorWrapper):
    """Django's names for psycopg's errors, by what the server said where it cannot do it now.

    Some of that is an InternalError, or looks as if we had asked for something impossible.
    """

    def __init__(self, connected: DatabaseWrapper) -> None:
        super().__init__(connected)
        self._connected = connected

    def __exit__(self, kind: Any, failure: Any, trace: Any) -> None:
        """Raise OperationalError for an outage; else what Django raises."""
        known = (psycopg.OperationalError, psycopg.InterfaceError)
        told = isinstance(failure, psycopg.Error) and not isinstance(failure, known)
        if told and outage_of(failure) is not None:
            self._connected.errors_occurred = True
            raise OperationalError(*failure.args).with_traceback(trace) from failure
        super().__exit__(kind, failure, trace)


class DatabaseWrapper(base.DatabaseWrapper):
    """Where OPTIONS has `embedded_home`, the host is found (and started) there."""

    Database = driver

    must_last = False
    """What is kept by the connection itself (a lock) would be lost with it: it is not replaced
    behind the back of who relies on that."""

    as_owner = False
    """Whether the next connection to the embedded server is its owner's (see `owning`)."""

    @cached_property
    def wrap_database_errors(self) -> Errors:
        """Return what turns psycopg's errors into Django's."""
        return Errors(self)

    def get_connection_params(self) -> dict[str, Any]:
        """Return what psycopg.connect needs."""
        parameters = super().get_connection_params()
        home = parameters.pop("embedded_home", None)
        if home is not None:
            parameters["host"] = _started(Path(home))
            if self.as_owner:
                parameters["user"] = OWNER
            if parameters["user"] == OWNER:
                parameters["password"] = owners_password(Path(home))
        parameters.setdefault("fallback_application_name", program())
        parameters["prepare_threshold"] = WHERE_ASKED
        return parameters

    def init_connection_state(self) -> None:
        """Tell a new connection how long this process waits."""
        super().init_connection_state()
        self.connection.prepared_max = PREPARED_MAX
        limits = kept().settings()
        if limits:
            with self.connection.cursor() as cursor:
                cursor.execute(_LIMIT, [list(limits), list(limits.values())])

    def ensure_connection(self) -> None:
        """Connect, also where the connection at hand was ended by the other side meanwhile.

        Every way to the database comes by here, those too that go around Django's cursors and
        their health check. A look at the socket costs a microsecond; asking the server, a hundred.
        """
        if self._close_if_gone() and self.must_last:
            raise OperationalError("the connection that held a lock was ended")
        super().ensure_connection()

    def close_if_unusable_or_obsolete(self) -> None:
        """Close what is of no use, before and after a request: where nobody hears of a failure."""
        if not self._close_if_gone():
            super().close_if_unusable_or_obsolete()

    def _close_if_gone(self) -> bool:
        if self.connection is None or self.in_atomic_block or not _is_gone(self.connection):
            return False
        self.close()
        return True

    def connect(self) -> None:
        """Connect anew: nothing is kept by the new connection yet."""
        self.must_last = False
        super().connect()

    def is_usable(self) -> bool:
        """Tell if the server answers and takes writes: one that stands by since will not."""
        if self.connection is None:
            return False
        try:
            with self.connection.cursor() as cursor:
                cursor.execute("SELECT current_setting('transaction_read_only')")
                row = cursor.fetchone()
        except psycopg.Error:
            return False
        return bool(row) and row[0] == "off"


def _is_gone(connected: psycopg.Connection[Any]) -> bool:
    """Tell if the server has said something that nobody asked for: only ever goodbye."""
    if connected.closed:
        return True
    if connected.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        return False
    look = select.poll()
    look.register(connected.pgconn.socket, select.POLLIN)
    return bool(look.poll(0))


def _started(home: Path) -> str:
    """Return the folder of the embedded server's socket.

    Whatever its library says while the server starts, stops or has no room: it cannot be reached.
    """
    try:
        return ensure_running(home)
    except Exception as failure:
        raise psycopg.OperationalError(
            f"connection failed: the embedded server does not start: {failure!r}"
        ) from failure
