"""End a child when its supervisor is gone, however it went."""

from __future__ import annotations

import os
import signal
import threading

PARENT = "OFFPEAK_SUPERVISOR"
LOOK_SECONDS = 0.5


def end_with_supervisor() -> None:
    """Watch the process that started us, if it was the supervisor; end when it does.

    A supervisor killed with -9 cannot tell its children; each of them looks for itself.
    """
    parent = os.environ.get(PARENT)
    if parent is None:
        return

    def watch() -> None:
        pause = threading.Event()
        while os.getppid() == int(parent):
            pause.wait(LOOK_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="supervisor-watch", daemon=True).start()
