"""Frees a host's cards without its agent: ends the work of its leases, and its fillers.

For the owner whose agent is dead or hangs. It changes nothing in those folders: the keepers write
how their work ended, and the next agent reads it and the owner's word, and reports both.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..filler import fillers_of, kill_fillers_of
from ..runtimes import groups
from ..runtimes.family import Stat, kill_all, kill_all_of, signal_all, stat_of
from ..runtimes.records import is_locked, read
from ..single import AlreadyRunning, lock_of

FREE_SECONDS_MAX = 10.0
"""So long the end of all work is waited for; it takes far below a second."""
PAUSE_SECONDS = 0.02
CANCEL_SECONDS_MAX = 5
UID_MIN = 1_000


def agent_runs(state_dir: Path) -> bool:
    """Tell if an agent holds this state directory."""
    if not (state_dir / "agent.lock").exists():
        return False
    return is_locked(state_dir / "agent.lock")


def living(state_dir: Path) -> list[str]:
    """Return what of an agent's work lives: leases by their id, and cards with fillers."""
    folder = state_dir / "leases"
    leases = sorted(folder.iterdir()) if folder.is_dir() else []
    fillers = [f"filler process {each.pid}" for each in fillers_of(state_dir)]
    return [each.name for each in leases if _runs(each)] + fillers


def free(
    state_dir: Path,
    *,
    stated_seconds: float = 0,
    now: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> list[str]:
    """End all of it and wait until it is gone; return what lives still.

    stated_seconds: work is asked to end first, and killed so much later.
    """
    if stated_seconds:
        _ask(state_dir)
        until = now() + stated_seconds
        while living(state_dir) and now() < until:
            pause(PAUSE_SECONDS)
    until = now() + FREE_SECONDS_MAX
    _kill(state_dir)
    while left := living(state_dir):
        _kill(state_dir)
        if now() >= until:
            return left
        pause(PAUSE_SECONDS)
    return []


def hold(state_dir: Path) -> int | None:
    """Keep an agent from starting here meanwhile; None: one runs."""
    try:
        return lock_of(state_dir / "agent.lock")
    except AlreadyRunning:
        return None


def _ask(state_dir: Path) -> None:
    for folder in (state_dir / "leases").iterdir() if (state_dir / "leases").is_dir() else ():
        if (stat := _root(read(folder / "started.json"))) is not None:
            signal_all([stat], signal.SIGTERM)
    signal_all(fillers_of(state_dir), signal.SIGTERM)


def _kill(state_dir: Path) -> None:
    leases = state_dir / "leases"
    for folder in leases.iterdir() if leases.is_dir() else ():
        root = read(folder / "started.json")
        if not root:
            _cancel(folder)
            continue
        for group in groups.all_of(folder.name):
            with suppress(OSError):
                (group / "cgroup.kill").write_text("1")
        uid = read(folder / "spec.json").get("uid")
        keeper = stat_of(root["keeper_pid"])
        kept = keeper is not None and keeper.ticks == root["keeper_ticks"]
        if root.get("contained"):
            if (stat := _root(root)) is not None:
                signal_all([stat], signal.SIGKILL)
        elif kept and keeper is not None:
            kill_all(keeper.pid, session=root["pid"])
        elif (stat := _root(root)) is not None:
            kill_all(stat.pid, session=stat.pid)
            signal_all([stat], signal.SIGKILL)
        if isinstance(uid, int) and uid >= UID_MIN:
            kill_all_of(uid)
    kill_fillers_of(state_dir)


def _cancel(folder: Path) -> None:
    """Take a lease that waits on the owner's cluster out of its queue, or it begins later."""
    if (folder / "intent.json").exists():
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                ["scancel", f"--name=offpeak-{folder.name}"],
                check=False,
                capture_output=True,
                timeout=CANCEL_SECONDS_MAX,
            )


def _runs(folder: Path) -> bool:
    root = read(folder / "started.json")
    if not root:
        return is_locked(folder / "keeper.lock")
    return _root(root) is not None or is_locked(folder / "keeper.lock")


def _root(root: dict[str, Any]) -> Stat | None:
    """Return the first process of work, if it lives."""
    return _lives(root) if root else None


def _lives(said: dict[str, Any]) -> Stat | None:
    stat = stat_of(int(said["pid"]))
    if stat is None or stat.ticks != said["ticks"] or stat.state in "ZX":
        return None
    return stat
