"""Processes of ours forked from one that has read all modules and the settings of this run.

To read them takes seconds, which a test that starts and kills several would wait for each time.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
from collections.abc import Callable
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path


@cache
def prepared() -> ForkServerContext:
    """Return what forks them. None of them has used the database yet, nor has their parent."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.prepared"])
    return context


class Fork:
    """A process that calls `work` with what is given, used as one that was started by its words.

    work: a function of a module, by which it is found again. log: where it writes.
    """

    def __init__(self, work: Callable[..., object], *given: object, log: Path) -> None:
        words = (work, given, str(log))
        self._process = prepared().Process(target=_begin, args=words, daemon=True)
        self._process.start()

    def poll(self) -> int | None:
        """Return its code if it has ended, else None."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended; return its code.

        Raises: subprocess.TimeoutExpired.
        """
        self._process.join(timeout)
        if (code := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired(str(self._process.pid), timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            assert self._process.pid is not None
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)


def _begin(work: Callable[..., object], given: tuple[object, ...], log: str) -> None:
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    work(*given)
