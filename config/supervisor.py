"""Web and loops as one tree of processes, for `make up`. In production: one unit each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from config.log_files import LogFile, pump
from config.orphans import PARENT
from config.private import private_folder
from ledger.domain.redaction import redact

STOP_SECONDS = 10.0
BACKOFF_SECONDS_MAX = 10.0


@dataclass(slots=True)
class Child:
    """One process of the tree: what it runs, and how it has been doing.

    after: it is started only once this is set.
    """

    name: str
    command: Sequence[str]
    after: threading.Event | None = None
    process: subprocess.Popen[bytes] | None = None
    failures: int = 0
    start_at: float = field(default=0.0)


class Supervisor:
    """Starts children, starts again those that die, and ends all of them together."""

    def __init__(self, logs: Path, redact: Callable[[str], str] = redact) -> None:
        self._logs = logs
        self._redact = redact
        self._children: list[Child] = []
        self.stop = threading.Event()

    def add(self, name: str, *arguments: str, after: threading.Event | None = None) -> None:
        """Add a child that runs `manage.py ARGUMENTS`, if wanted only once `after` is set."""
        manage = str(Path(__file__).resolve().parent.parent / "manage.py")
        self._children.append(Child(name, [sys.executable, manage, *arguments], after))

    def run(self) -> None:
        """Keep every child running until `stop` is set; then end them all."""
        private_folder(self._logs)
        try:
            while not self.stop.is_set():
                for child in self._children:
                    self._look_after(child)
                self.stop.wait(0.2)
        finally:
            self._end_all()

    def _look_after(self, child: Child) -> None:
        if child.process is not None:
            code = child.process.poll()
            if code is None:
                return
            child.process = None
            child.failures += 1
            pause = min(BACKOFF_SECONDS_MAX, 0.25 * 2**child.failures)
            child.start_at = time.monotonic() + pause
            log = self._logs / f"{child.name}.log"
            print(f"{child.name} ended with {code}; again in {pause:.1f} s (see {log})", flush=True)
        released = child.after is None or child.after.is_set()
        if released and time.monotonic() >= child.start_at:
            child.process = self._start(child)

    def _start(self, child: Child) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            child.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, PARENT: str(os.getpid())},
            # Out of the terminal's group: Ctrl-C reaches us, and we end them in order.
            start_new_session=True,
        )
        assert process.stdout is not None
        pump(process.stdout, LogFile(self._logs / f"{child.name}.log"), self._redact)
        return process

    def _end_all(self) -> None:
        alive = [child.process for child in self._children if child.process]
        for process in alive:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        for process in alive:
            try:
                process.wait(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
