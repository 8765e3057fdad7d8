"""End a child when its supervisor is gone, however it went."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading

PARENT = "OFFPEAK_SUPERVISOR"
LOOK_SECONDS = 0.5


def end_with_supervisor(by: signal.Signals = signal.SIGTERM) -> None:
    """Watch the process that started us, if it was the supervisor; end when it does.

    A supervisor killed with -9 cannot tell its children; each of them looks for itself.

    by: the signal that ends us then.
    """
    told = os.environ.get(PARENT)
    if told is None:
        return
    parent = int(told)

    def watch() -> None:
        _wait_for_end(parent)
        pause = threading.Event()
        while os.getppid() == parent:
            pause.wait(LOOK_SECONDS)
        os.kill(os.getpid(), by)

    threading.Thread(target=watch, name="supervisor-watch", daemon=True).start()


def _wait_for_end(parent: int) -> None:
    """Sleep until our parent has ended, where the system can tell; else return at once."""
    if sys.platform != "linux":
        return
    try:
        handle = os.pidfd_open(parent)
    except OSError:  # gone already, or a kernel from before 2019
        return
    try:
        if os.getppid() == parent:  # and nobody else who goes by its number since
            ended = select.poll()
            ended.register(handle, select.POLLIN)
            ended.poll()
    finally:
        os.close(handle)
