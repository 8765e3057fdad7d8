"""Web and loops as one tree of processes, for `make up`. In production: one unit each.

One thread looks after all of them and holds nothing else, so that a child that died is made again
from a parent as clean as at its start (`config.processes.children`).
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from config.database.private import private_folder
from config.logs.files import Lines, LogFile
from config.processes.children import fork, settle_before_forks
from ledger.domain.redaction import redact

STOP_SECONDS = 10.0
BACKOFF_SECONDS_MAX = 10.0
LOOK_SECONDS_MAX = 1.0
"""How long at most nobody looks: signals and what children say wake us sooner."""
READ_BYTES = 65_536


@dataclass(slots=True, eq=False)
class Child:
    """One process of the tree: what it does, and how it has been doing.

    after: it is started only once that one, which was added before, is done.
    once: it is not started again when it ended well, and speaks on our own standard output.
    must: all end where it fails. stop_seconds: how long it is waited for when all end.
    """

    name: str
    work: Callable[[], object]
    after: Child | None = None
    once: bool = False
    must: bool = False
    stop_seconds: float = STOP_SECONDS
    process: BaseProcess | None = None
    done: bool = False
    failures: int = 0
    start_at: float = field(default=0.0)


class Supervisor:
    """Starts children, starts again those that die, and ends all of them together."""

    def __init__(self, logs: Path, redact: Callable[[str], str] = redact) -> None:
        self._logs = logs
        self._redact = redact
        self._children: list[Child] = []
        self._failed = 0
        self.stop = threading.Event()

    def add(self, name: str, work: Callable[[], object], after: Child | None = None) -> Child:
        """Add a child that works until it is asked to end."""
        return self._add(Child(name, work, after))

    def step(
        self,
        name: str,
        work: Callable[[], object],
        after: Child | None = None,
        *,
        must: bool = False,
        stop_seconds: float = STOP_SECONDS,
    ) -> Child:
        """Add a child that does something once. must: all end with its code where it fails."""
        return self._add(Child(name, work, after, once=True, must=must, stop_seconds=stop_seconds))

    def _add(self, child: Child) -> Child:
        self._children.append(child)
        return child

    def run(self) -> int:
        """Keep every child running until `stop` is set; then end them all.

        Nothing that holds threads or connections may be begun before, nor by who calls.

        Returns: 0, or the code of a step that had to be done and failed.
        """
        private_folder(self._logs)
        settle_before_forks()
        with selectors.DefaultSelector() as self._heard, _woken_by_signals(self._heard):
            try:
                while not self.stop.is_set() and not self._failed:
                    for child in self._children:
                        self._look_after(child)
                    self._hear(self._rest())
            finally:
                self._end_all()
        return self._failed

    def _look_after(self, child: Child) -> None:
        if child.process is not None:
            code = child.process.exitcode
            if code is None:
                return
            child.process.close()
            child.process = None
            self._ended(child, code)
        released = child.after is None or child.after.done
        wanted = released and not child.done and not self._failed
        if wanted and time.monotonic() >= child.start_at:
            self._start(child)

    def _ended(self, child: Child, code: int) -> None:
        if child.once and code == 0:
            child.done = True
            return
        if child.must:
            self._failed = code if code > 0 else 1
            return
        child.failures += 1
        pause = min(BACKOFF_SECONDS_MAX, 0.25 * 2**child.failures)
        child.start_at = time.monotonic() + pause
        where = "" if child.once else f" (see {self._logs / child.name}.log)"
        print(f"{child.name} ended with {code}; again in {pause:.1f} s{where}", flush=True)

    def _start(self, child: Child) -> None:
        if child.once:
            child.process = fork(f"offpeak up: {child.name}", child.work, output=None)
            return
        ours, its = os.pipe()
        try:
            child.process = fork(f"offpeak: {child.name}", child.work, output=its)
        finally:
            os.close(its)
        os.set_blocking(ours, False)
        lines = Lines(LogFile(self._logs / f"{child.name}.log"), self._redact)
        self._heard.register(ours, selectors.EVENT_READ, lines)

    def _rest(self) -> float:
        """Return after how many seconds a child is to be started again, or to be looked for."""
        now = time.monotonic()
        starts = [each.start_at - now for each in self._children if each.start_at > now]
        return min([*starts, LOOK_SECONDS_MAX])

    def _hear(self, seconds: float) -> None:
        """Write to the logs what children say; return when there is something, or after a time."""
        for key, _ in self._heard.select(seconds):
            if isinstance(key.data, Lines):
                self._write(key.fd, key.data)
            else:
                key.data.recv(READ_BYTES)

    def _write(self, descriptor: int, lines: Lines) -> bool:
        """Write what a child has said; tell if there may be more."""
        try:
            said = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        if said:
            lines.add(said)
            return True
        self._heard.unregister(descriptor)
        os.close(descriptor)
        lines.close()
        return False

    def _end_all(self) -> None:
        began = time.monotonic()
        alive = [child for child in self._children if child.process]
        for child in alive:
            assert child.process is not None
            child.process.terminate()
        while alive:
            self._hear(LOOK_SECONDS_MAX)
            for child in list(alive):
                assert child.process is not None
                if child.process.exitcode is not None:
                    alive.remove(child)
                elif time.monotonic() - began > child.stop_seconds:
                    child.process.kill()
        for key in list(self._heard.get_map().values()):
            if isinstance(key.data, Lines):
                while self._write(key.fd, key.data):
                    pass
                key.data.close()


@contextmanager
def _woken_by_signals(heard: selectors.BaseSelector) -> Iterator[None]:
    """Let a signal, and so a child's end, be heard at once.

    Python's own handlers run between two steps of ours; one that came just before we sleep would
    be looked at only after.
    """
    ours, its = socket.socketpair()
    with ours, its:
        ours.setblocking(False)
        its.setblocking(False)
        heard.register(ours, selectors.EVENT_READ, ours)
        before = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(its.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, before)
