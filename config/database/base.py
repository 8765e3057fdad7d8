"""Django's PostgreSQL backend, which starts the embedded server on its first connection.

On the first connection, and not when the settings are read, so that type checkers, `--help` and
the agent start nothing. A lost embedded server is started again by the next connection.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.db.backends.postgresql import base

from config.database.embedded import ensure_running


class DatabaseWrapper(base.DatabaseWrapper):
    """Where OPTIONS has `embedded_home`, the host is found (and started) there."""

    def get_connection_params(self) -> dict[str, Any]:
        """Return what psycopg.connect needs."""
        parameters = super().get_connection_params()
        home = parameters.pop("embedded_home", None)
        if home is not None:
            parameters["host"] = ensure_running(Path(home))
            parameters["user"] = "postgres"
        return parameters
