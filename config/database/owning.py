"""What makes or changes tables is done as their owner, and by nobody who serves.

On the embedded server a process becomes the owner for as long as that takes. On a server of the
operator's own it is whoever `DATABASE_URL` names: the owner's address is given to `migrate` and
`rebuild` alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.core.management.base import CommandError
from django.db import DatabaseError, connection, connections

from config.database.base import DatabaseWrapper
from config.database.roles import OWNER, let_serve, serving

NOT_THE_OWNER = (
    "This takes the owner of the tables, which DATABASE_URL does not name: run it with the owner's"
    ' address (/docs/operating/, "Two roles").'
)


@contextmanager
def as_owner() -> Iterator[None]:
    """Let this thread's connection be the owner's.

    Raises: CommandError, where it is not and cannot be.
    """
    connected = connections["default"]
    assert isinstance(connected, DatabaseWrapper)
    settings = connected.settings_dict
    becomes = "embedded_home" in settings["OPTIONS"] and settings["USER"] != OWNER
    if becomes:
        connected.close()
        connected.as_owner = True
    try:
        yield
    except DatabaseError as failure:
        if isinstance(failure.__cause__, psycopg.errors.InsufficientPrivilege):
            raise CommandError(f"{str(failure).splitlines()[0]}. {NOT_THE_OWNER}") from failure
        raise
    finally:
        if becomes:
            connected.close()
            connected.as_owner = False


def keep_serving() -> None:
    """Let who serves to tables that are new since, as its owner."""
    connected = _psycopg()
    for role in serving(connected):
        let_serve(connected, role)


def begin_serving(role: str) -> None:
    """Let a role serve. Raises: CommandError."""
    connected = _psycopg()
    refused = connected.execute(_REFUSED, {"role": role}).fetchone()
    assert refused is not None
    if refused[0]:
        raise CommandError(refused[0].format(role=role))
    let_serve(connected, role)


_REFUSED = """
SELECT CASE
    WHEN to_regrole(quote_ident(%(role)s)) IS NULL
    THEN 'There is no role {role}: make it first (CREATE ROLE {role} LOGIN PASSWORD ''…'').'
    WHEN to_regclass('public.es_event') IS NULL
    THEN 'There are no tables yet: manage.py migrate makes them.'
    WHEN pg_has_role(to_regrole(quote_ident(%(role)s)), c.relowner, 'MEMBER')
    THEN '{role} has the rights of the tables'' owner: name a role without them.'
    WHEN NOT pg_has_role(c.relowner, 'USAGE')
    THEN 'Only the owner of the tables can do this: DATABASE_URL names another role.'
END
FROM (SELECT 1) AS one LEFT JOIN pg_class c ON c.oid = to_regclass('public.es_event')
"""


def _psycopg() -> psycopg.Connection[Any]:
    connection.ensure_connection()
    found: psycopg.Connection[Any] = connection.connection
    return found
