"""The children of a supervisor: forks of it, which share what it has imported and go their own way.

An interpreter that has imported the product takes a hundred megabytes; a fork of it takes what it
writes to, ten or twenty. That holds as long as nothing is forked but imports: a thread would not
be there in the child, a connection would be used by two, a lock might be held for ever. So who
forks has neither (ADR 0061), and a child lets go of all that it was born with before it works.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

from config.processes.orphans import PARENT

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
"""What a supervisor handles by itself, and a child as any other process."""
STANDARD = 3
"""Descriptors of standard input, output and error; what is open beside them is a parent's."""
FILES_MAX = 65_536
"""Up to which descriptors are looked for, where a process may have any number."""


def fork(title: str, work: Callable[[], object], *, output: int | None) -> BaseProcess:
    """Let a fork of this process do `work`, in a session of its own, and end.

    title: what `ps` shows for it.
    output: what it writes to in place of our standard output and error; None: to these.
    """
    assert threading.active_count() == 1, "a fork has no threads but the one that forks"

    def begin() -> None:
        _forget_parent(title, output)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        try:
            work()
        except Exception:  # printed; the child must not go on as its parent
            sys.excepthook(*sys.exc_info())
            raise SystemExit(1) from None

    child = multiprocessing.get_context("fork").Process(target=begin, name=title)
    with _held_back():  # one that came before the child is on its own feet would be lost
        child.start()
    return child


def settle_before_forks() -> None:
    """Take what was imported for permanent: a collector that walks it would write to all of it."""
    gc.collect()
    gc.freeze()


@contextmanager
def _held_back() -> Iterator[None]:
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _forget_parent(title: str, output: int | None) -> None:
    """Become a process of our own: its session, signals, descriptors and name."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.set_wakeup_fd(-1)
    # Out of the terminal's group: Ctrl-C reaches the supervisor, which ends us in order.
    os.setsid()
    if output is not None:
        os.dup2(output, sys.__stdout__.fileno() if sys.__stdout__ else 1)
        os.dup2(output, sys.__stderr__.fileno() if sys.__stderr__ else 2)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    unlimited = limit == resource.RLIM_INFINITY
    os.closerange(STANDARD, FILES_MAX if unlimited else min(limit, FILES_MAX))
    os.environ[PARENT] = str(os.getppid())
    call_this_process(title)


def call_this_process(title: str) -> None:
    """Show `title` for this process in `ps` and `top`, as far as there is room; else all forks of
    a process go by its command line."""
    with suppress(OSError, ValueError, IndexError):
        Path("/proc/self/comm").write_text(title.replace(": ", "-").replace(" ", "-")[:15])
        # Fields 48 and 49, counted from 1: where the words of the command line begin and end.
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        begin, end = int(fields[45]), int(fields[46])
        words = title.encode()[: end - begin - 1]
        memory = os.open("/proc/self/mem", os.O_WRONLY)
        try:
            os.pwrite(memory, words.ljust(end - begin, b"\0"), begin)
        finally:
            os.close(memory)
