"""Give way to other processes of this machine."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def give_way(nice: int) -> None:
    """Run at a lower priority than other processes of this machine.

    Linux may weigh whole sessions against each other first; in one of our own that has to be told
    too, or niceness would only count within it.
    """
    if nice == 0:
        return
    os.nice(nice)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(nice))
