"""The data directory belongs to who runs the market: no other user of the machine reads in it.

It holds the keys that sign sessions and wrap secrets of work, logs, and without DATABASE_URL all
that anybody ever bid.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

OTHERS = stat.S_IRWXG | stat.S_IRWXO
PASS = stat.S_IXGRP | stat.S_IXOTH
OURS = (
    "secret_key",
    "work_secret_keys",
    "logs",
    "demo",
    "kernels",
    "up.lock",
    "postgres.lock",
    "postgres.created",
    "postgres.secret",
)
"""What the market keeps in its data directory. The database's own folder is its own affair, what
the site serves to everybody is no secret, and what else lies there is not ours to change."""
ENTRIES_MAX = 10_000


def keep_private(home: Path) -> None:
    """Let this process make no file that others may read, and close what stands open already."""
    os.umask(OTHERS)
    private_folder(home)
    for entry in _entries(home):
        close(entry, passable=False)


def private_folder(folder: Path) -> Path:
    """Make a folder that only its owner enters; one that was there before becomes such a one."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    close(folder)
    return folder


def close(entry: Path, *, passable: bool = True) -> None:
    """Take from others what they may do with a file or folder of ours.

    passable: it may be a data directory, or lie above one. Such a folder that others could only
    pass through stays so: as root, the embedded database runs as a user of its own, whose way to
    its folder leads through the data directory, or through this one to that of another market:
    with its way closed a server that runs would end.
    """
    try:
        found = entry.lstat()
        mode = stat.S_IMODE(found.st_mode)
        shared = bool(mode & stat.S_ISVTX)  # as /tmp is: a data directory that is not ours alone
        if stat.S_ISLNK(found.st_mode) or shared or found.st_uid != os.geteuid():
            return
        passed = PASS if passable and _is_passed(entry, mode) else 0
        if mode & OTHERS & ~passed:
            entry.chmod(mode & ~OTHERS | passed)
    except OSError:
        return  # not ours to change, or gone: `open_entries` tells the operator


def open_entries(home: Path) -> list[Path]:
    """Return what under the data directory others may still read or write."""
    found = []
    for entry in (home, *_entries(home)):
        try:
            mode = entry.lstat().st_mode
        except OSError:
            continue
        passed = PASS if entry == home and _is_passed(entry, mode) else 0
        if not stat.S_ISLNK(mode) and stat.S_IMODE(mode) & OTHERS & ~passed:
            found.append(entry)
    return found


def _is_passed(entry: Path, mode: int) -> bool:
    """Tell if a server's way may lead through here: nobody reads or writes in it all the same."""
    if os.geteuid() != 0 or not entry.is_dir():
        return False
    servers = ("postgres", "*/postgres")
    return mode & OTHERS == PASS or any(any(entry.glob(each)) for each in servers)


def _entries(home: Path) -> Iterator[Path]:
    """Yield what the market keeps in its data directory."""
    waiting = [home / name for name in OURS]
    for _ in range(ENTRIES_MAX):
        if not waiting:
            return
        entry = waiting.pop()
        if entry.is_symlink() or not entry.exists():
            continue
        yield entry
        if entry.is_dir():
            waiting.extend(entry.iterdir())
