"""The site in a process of its own, for whoever looks at its pages in a browser."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from django.db import connection

from tests.forking import prepared

ROOT = Path(__file__).resolve().parents[2]


class Site(Protocol):
    """A process that serves."""

    def end(self, seconds: float) -> None:
        """End it the ordinary way, within so many seconds."""


class Forked:
    """A site with the settings of this run. log: where it writes; read it when a test fails."""

    def __init__(self, listening: socket.socket, log: Path) -> None:
        name = str(connection.settings_dict["NAME"])
        self._process = prepared().Process(target=_serve, args=(listening, name, str(log)))
        self._process.start()

    def end(self, seconds: float) -> None:
        """End it the ordinary way."""
        self._process.terminate()
        self._process.join(seconds)
        assert self._process.exitcode is not None, "the site does not end"
        self._process.close()


class Started:
    """A site whose settings are others: it reads them, and all else, anew."""

    def __init__(self, listening: socket.socket, log: Path, environment: Mapping[str, str]) -> None:
        fd = listening.fileno()
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "uvicorn", "config.asgi:application", "--fd", str(fd)],
                pass_fds=(fd,),
                cwd=ROOT,
                env={
                    **os.environ,
                    "DJANGO_SETTINGS_MODULE": "tests.pages.served_settings",
                    "SITE_DATABASE": str(connection.settings_dict["NAME"]),
                    **environment,
                },
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def end(self, seconds: float) -> None:
        """End it the ordinary way."""
        self._process.terminate()
        self._process.wait(seconds)


def _serve(listening: socket.socket, database: str, log: str) -> None:
    """Serve from here on, on the database of the running test."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    connection.settings_dict["NAME"] = database

    import uvicorn

    uvicorn.run("config.asgi:application", fd=listening.fileno())
