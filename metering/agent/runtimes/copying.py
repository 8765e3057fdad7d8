"""Files copied as they are, by a process that ends with the agent, and when it is told to."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from pathlib import Path

SECONDS_MAX = 6 * 3_600
LOOK_SECONDS = 0.1
FIRST_SECONDS = 0.02


def copy(source: Path, target: Path | int, stop: threading.Event) -> None:
    """Copy what is in a folder into another, given by its path or open.

    Raises: OSError, also where it is told to stop.
    """
    files = () if isinstance(target, Path) else (target,)
    into = str(target) if isinstance(target, Path) else f"/proc/self/fd/{target}"
    process = subprocess.Popen(
        [*_with_its_parent(), "cp", "-a", "--", f"{source}/.", into],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=files,
        cwd="/",
        text=True,
        errors="replace",
    )
    until, pause = time.monotonic() + SECONDS_MAX, FIRST_SECONDS
    while process.poll() is None:
        if stop.wait(pause) or time.monotonic() > until:
            process.kill()
            process.communicate()
            raise OSError(0, "its files were not copied in time")
        pause = LOOK_SECONDS
    _, said = process.communicate()
    if process.returncode:
        raise OSError(0, f"cp: {(said.strip() or 'it failed').splitlines()[-1]}")


def _with_its_parent() -> list[str]:
    """Return what a command is begun with so that it ends with us; nothing where there is none."""
    program = shutil.which("setpriv")
    return [] if program is None else [program, "--pdeathsig", "KILL", "--"]
