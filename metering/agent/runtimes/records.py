"""What lies in the folder of a lease, as the agent reads it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

BLOCK_BYTES = 512


def read(path: Path) -> dict[str, Any]:
    """Return a record; empty when there is none, or none yet."""
    try:
        record: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return record


def keep_newest(folder: Path, most: int) -> None:
    """Remove all but the newest folders inside."""
    older = sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime)
    for each in older[:-most]:
        shutil.rmtree(each, ignore_errors=True)


def bytes_in(*folders: Path) -> int:
    """Return what files take of the disk: in these folders, and below."""
    found = 0
    for top in folders:
        for folder, _, files in os.walk(top):
            for name in files:
                with suppress(OSError):
                    found += os.lstat(os.path.join(folder, name)).st_blocks * BLOCK_BYTES
    return found


def is_locked(path: Path) -> bool:
    """Return whether somebody holds the lock, such as the keeper of the lease."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
