"""Who decides begins with kernels as Python, and goes over to compiled ones without a pause.

A thread beside the engine loads what is compiled. Where nothing is yet, it has a child compile it,
which ends when that is done: a process that compiles keeps more than a hundred megabytes for ever.
There is one child at a time in a home, whoever started it, and it gives way to everything else.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

import structlog
from django.conf import settings

from config.database.private import private_folder
from config.processes.orphans import PARENT
from ledger.domain.redaction import redact
from marketplace import kernels

ROOT = Path(__file__).resolve().parents[2]
NICE = 19
LOOK_SECONDS = 1.0
AGAIN_SECONDS, AGAIN_SECONDS_MAX = 10.0, 600.0
"""After so long it is tried again, twice as long after each failure."""
LOCK = "lock"
WHY_CHARACTERS_MAX = 120
COMPILED, FAILED = "compiled", "failed"
"""What `words` are, or begin with, at either end."""

log = structlog.get_logger()


def compile_command() -> list[str]:
    """Return what a child runs: it finds the lock held by who started it."""
    manage = str(ROOT / "manage.py")
    return [sys.executable, manage, "compile", "--lock-held", "--nice", str(NICE)]


class Kernels:
    """How far this process is with compiled kernels: it starts once, and says so in `words`."""

    def __init__(
        self,
        home: Path,
        *,
        command: Callable[[], list[str]] = compile_command,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self.words = "compiling"
        self.loaded = threading.Event()
        """All is loaded: whoever decides goes over between two passes."""
        self._home, self._command = home, command
        self._pause = pause or threading.Event().wait
        self._guard, self._started = threading.Lock(), False

    def start(self) -> None:
        """Begin, beside what this process does; once more changes nothing."""
        with self._guard:
            if self._started:
                return
            self._started = True
        if kernels.compiles():
            self.words = COMPILED
            return
        threading.Thread(target=self.run, name="kernels", daemon=True).start()

    def run(self) -> None:
        """Load what is compiled, as soon as it is."""
        failures = 0
        while not self.loaded.is_set():
            why = self._step()
            if why:
                failures += 1
                self.words = f"{FAILED}: {redact(why)[:WHY_CHARACTERS_MAX]}"
                log.warning("kernels.failed", why=redact(why), failures=failures)
                self._pause(min(AGAIN_SECONDS_MAX, AGAIN_SECONDS * 2 ** (failures - 1)))

    def go_over(self) -> None:
        """Decide by what is loaded from now on, if anything is. Called between two passes."""
        if self.loaded.is_set() and not kernels.compiles():
            kernels.go_over(self._home)
            self.words = COMPILED
            log.info("kernels.compiled")

    def _step(self) -> str:
        """Load, or see to it that somebody compiles; return why that failed, if it did."""
        try:
            if kernels.are_complete(self._home):
                for _ in kernels.load(self._home):
                    pass
                self.loaded.set()
                return ""
            self.words = self._progress()
            return self._compile()
        except (OSError, ImportError, kernels.NotOurs) as wrong:
            return str(wrong)
        except Exception as wrong:  # numba's own: the plain kernels do
            log.exception("kernels.broken")
            return repr(wrong)

    def _compile(self) -> str:
        """Have a child compile, or wait for another's; return why it failed, if it did."""
        private_folder(self._home)
        with (self._home / LOCK).open("w") as lock:
            if not _taken(lock):
                self._pause(LOOK_SECONDS)
                return ""
            if kernels.are_complete(self._home):
                return ""
            return self._see_through(self._child(lock))

    def _child(self, lock: IO[str]) -> subprocess.Popen[str]:
        """Start the child; it has the lock too, so that no other starts before it has ended."""
        child = subprocess.Popen(
            self._command(),
            cwd=ROOT,
            env={**os.environ, PARENT: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=(lock.fileno(),),
            start_new_session=True,
        )
        atexit.register(_end, child)
        log.info("kernels.compiling", child=child.pid)
        return child

    def _see_through(self, child: subprocess.Popen[str]) -> str:
        """Wait until the child ends; say meanwhile how far it is."""
        while True:
            try:
                _, said = child.communicate(timeout=LOOK_SECONDS)
                break
            except subprocess.TimeoutExpired:
                self.words = self._progress()
        atexit.unregister(_end)
        if child.returncode == 0:
            return ""
        return (said.strip().splitlines() or [f"the compiler ended with {child.returncode}"])[-1]

    def _progress(self) -> str:
        done, of = kernels.progress(self._home)
        return f"compiling, {done} of {of}"


@cache
def kernels_here() -> Kernels:
    """Return those of this process."""
    return Kernels(settings.KERNELS)


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _end(child: subprocess.Popen[str]) -> None:
    """End a child that its process does not outlive."""
    with suppress(OSError):
        child.terminate()
        child.wait(2.0)
