"""Every form in which the database says that it cannot do something now.

One failure comes by many names: psycopg's own, Django's around it, a store's around either, and a
second failure that is only the consequence of the first. What decides is what the server said
(its SQLSTATE), or that it said nothing. What it refuses for a reason of ours (a constraint, a
value, a right that was not given) is no outage and is not found here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import psycopg
from django.db import InterfaceError, OperationalError, connection
from django.db.utils import ProgrammingError

Cause = Literal["away", "hung", "read-only", "full", "connections", "slow", "busy", "broken"]

WORDS: Mapping[Cause, str] = {
    "away": "the database cannot be reached",
    "hung": "the database does not answer",
    "read-only": "the database is read-only",
    "full": "the database's disk is full",
    "connections": "the database has no connection left",
    "slow": "the database took too long",
    "busy": "the database is busy with others",
    "broken": "the database cannot read or write its files",
}

CHAIN_MAX = 10
"""Causes of causes that are looked at."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Why the database cannot do it.

    nothing_written: it said so itself; else the answer may be what was lost.
    by_connection: another connection may be better off.
    """

    cause: Cause
    nothing_written: bool
    by_connection: bool

    @property
    def words(self) -> str:
        """Return it as words."""
        return WORDS[self.cause]


AWAY = Outage("away", nothing_written=False, by_connection=True)
HUNG = Outage("hung", nothing_written=False, by_connection=True)
NOT_REACHED = Outage("away", nothing_written=True, by_connection=True)
NO_CONNECTION = Outage("connections", nothing_written=True, by_connection=True)
READ_ONLY = Outage("read-only", nothing_written=True, by_connection=True)
FULL = Outage("full", nothing_written=True, by_connection=False)
SLOW = Outage("slow", nothing_written=True, by_connection=False)
BUSY = Outage("busy", nothing_written=True, by_connection=False)
BROKEN = Outage("broken", nothing_written=True, by_connection=False)
OUTDATED = Outage("busy", nothing_written=True, by_connection=True)

BY_STATE: Mapping[str, Outage] = {
    "25006": READ_ONLY,
    "25P03": Outage("slow", nothing_written=True, by_connection=True),  # idle in a transaction
    "25P04": SLOW,
    "26000": OUTDATED,  # a prepared statement that this connection has no more
    "40001": BUSY,
    "40003": AWAY,
    "40P01": BUSY,
    "53100": FULL,
    "53200": BUSY,
    "53300": NO_CONNECTION,
    "53400": BUSY,
    "55P03": BUSY,
    "57014": SLOW,
    "57P01": AWAY,
    "57P02": AWAY,
    "57P03": NOT_REACHED,
    "57P04": AWAY,
    "57P05": NOT_REACHED,
    "58030": BROKEN,
    "58P01": BROKEN,
    "XX001": BROKEN,
    "XX002": BROKEN,
}
"""What the server says, PostgreSQL's manual, appendix A; class 08 besides."""

FILE_SOURCES = frozenset(
    {"md.c", "fd.c", "xlog.c", "slru.c", "buffile.c", "storage.c", "copydir.c"}
)
"""Where the server reports its own files: a file system that became read-only is told by the same
SQLSTATE as a missing grant."""


UNCONNECTED = ("connection failed", "connection is bad", "couldn't stat host")
"""How psycopg begins to say that there was no connection to begin with."""


class DatabaseHung(psycopg.OperationalError):
    """The server took a question and gave no answer, not even that it takes too long."""


def outage_of(failure: BaseException | None) -> Outage | None:
    """Return what this failure says of the database; None where it says nothing."""
    last = failure
    for _ in range(CHAIN_MAX):
        match last:
            case None:
                return None
            case psycopg.Error():
                return _told(last)
            case ProgrammingError() | InterfaceError() if last.__cause__ is None:
                # "Not in this transaction": the consequence of what broke it.
                found = outage_of(last.__context__)
                if found is None and isinstance(last, InterfaceError):
                    return AWAY
                return found
            case OperationalError() if last.__cause__ is None:
                return AWAY
        last = last.__cause__
    return None


def _told(failure: psycopg.Error) -> Outage | None:
    """Return what psycopg's failure says."""
    state = failure.sqlstate
    if state is None:
        return _untold(failure)
    if state.startswith("08"):
        return AWAY
    if state == "0A000" and "cached plan" in str(failure):
        return OUTDATED  # a migration went by: only this connection's plans are of before
    if state == "25P02":
        return outage_of(failure.__context__)
    if state == "42501" and failure.diag.source_file in FILE_SOURCES:
        return BROKEN
    return BY_STATE.get(state)


def _untold(failure: psycopg.Error) -> Outage | None:
    """Return what it means that no server said anything."""
    match failure:
        case DatabaseHung():
            return HUNG
        case psycopg.errors.ConnectionTimeout():
            return Outage("hung", nothing_written=True, by_connection=True)
        case psycopg.OperationalError() | psycopg.InterfaceError():
            # A refusal to connect has no SQLSTATE in libpq; its words may be in any language.
            told = str(failure)
            if "too many" in told or "remaining connection slots" in told:
                return NO_CONNECTION
            return NOT_REACHED if told.startswith(UNCONNECTED) else AWAY
    return None


def let_go_after(outage: Outage) -> None:
    """Close this thread's connection if another may be better off, at the latest afterwards."""
    if not outage.by_connection:
        return
    if connection.in_atomic_block:
        connection.close_at = 0.0  # Django's own words for: obsolete, close when the request ends
    else:
        connection.close()


@contextmanager
def letting_go() -> Iterator[None]:
    """Do something below Django's cursor that fails as Django does."""
    try:
        with connection.wrap_database_errors:
            yield
    except (OperationalError, InterfaceError) as failure:
        let_go_after(outage_of(failure) or AWAY)
        raise
