"""The site in a process of its own, forked from one that has read all its modules already.

To read them takes seconds, and every test that looks at pages in a browser needs a site of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Protocol

from django.db import connection

ROOT = Path(__file__).resolve().parents[2]


class Site(Protocol):
    """A process that serves."""

    def end(self, seconds: float) -> None:
        """End it the ordinary way, within so many seconds."""


class Forked:
    """A site with the settings of this run. log: where it writes; read it when a test fails."""

    def __init__(self, listening: socket.socket, log: Path) -> None:
        name = str(connection.settings_dict["NAME"])
        self._process = _prepared().Process(target=_serve, args=(listening, name, str(log)))
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


@cache
def _prepared() -> ForkServerContext:
    """Return what forks processes that have read everything, the settings of this run too."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.pages.prepared"])
    return context


def _serve(listening: socket.socket, database: str, log: str) -> None:
    """Serve from here on, on the database of the running test."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    connection.settings_dict["NAME"] = database

    import uvicorn

    uvicorn.run("config.asgi:application", fd=listening.fileno())
