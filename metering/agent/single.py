"""One agent for one state directory, and one for each account of leased work."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

CLAIMS = Path("/run/offpeak-agent.accounts")
"""Which agent of this host has which accounts of leased work."""


class AlreadyRunning(Exception):
    """Another agent uses this state directory, or these accounts."""


def lock_of(path: Path) -> int:
    """Take the lock of a state directory for as long as this process lives.

    Raises: AlreadyRunning.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise AlreadyRunning(f"another agent uses {path.parent}") from None
    return file


def claim(uids: list[int], path: Path) -> int:
    """Take accounts for as long as this process lives: a byte each of a file that agents share.

    Raises: AlreadyRunning.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for uid in uids:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, uid)
        except OSError:
            os.close(file)
            raise AlreadyRunning(f"another agent on this host uses the account {uid}") from None
    return file
