"""Secrets on their way to a job of a cluster: in memory from the agent to the keeper, on one host.

A job may wait in the queue, and its keeper is no child of the agent's, so nothing is said to it
by a pipe. What its work is handed lies in a file of memory (tmpfs) that root alone reads, outside
of all that the cluster is told, stores or sends; the keeper takes it away before the work begins. A
restart of the host takes it away, too: then the job ends, and the lease fails.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

from .keeper import write_json

PLACE = Path("/run/offpeak-agent")
IN_MEMORY = ("tmpfs", "ramfs")


class Handover:
    """The files of one agent. folder: None: there is no place for them on this host."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @classmethod
    def for_agent(cls, state: Path, *, place: Path = PLACE) -> Handover:
        """Return the handover of the agent with this state, where only root can make one."""
        if os.geteuid() or not is_in_memory(place):
            return cls(None)
        return cls(place / f"handed-{sha256(str(state).encode()).hexdigest()[:16]}")

    @property
    def is_possible(self) -> bool:
        """Tell if secrets can be handed over here."""
        return self._folder is not None

    def put(self, lease_id: UUID, secrets: dict[str, Any]) -> Path:
        """Lay down what the work of a lease is handed; return where. Raises: OSError."""
        assert self._folder is not None, "nobody is told that secrets can be handed over"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self._folder / str(lease_id)
        write_json(file, secrets)
        return file

    def drop(self, lease_id: UUID) -> None:
        """Remove what a lease was to be handed, if it lies there still."""
        if self._folder is not None:
            with suppress(FileNotFoundError):
                (self._folder / str(lease_id)).unlink()

    def keep_only(self, lease_ids: Collection[UUID]) -> None:
        """Remove what an earlier run of the agent left for other leases."""
        if self._folder is None or not self._folder.is_dir():
            return
        known = {str(each) for each in lease_ids}
        for file in self._folder.iterdir():
            if file.name not in known:
                file.unlink(missing_ok=True)


def is_in_memory(path: Path) -> bool:
    """Tell if what is written beneath a path touches no disk, swap aside."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return False
    mounts = [line.split()[1:3] for line in lines]
    real = path.resolve()
    over = [(len(where), n, kind) for n, (where, kind) in enumerate(mounts) if _is_in(real, where)]
    return bool(over) and max(over)[2] in IN_MEMORY


def _is_in(path: Path, where: str) -> bool:
    return path.is_relative_to(where.replace("\\040", " "))
