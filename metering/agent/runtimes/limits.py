"""What the work of one lease may take of its host."""

from __future__ import annotations

import os
from dataclasses import dataclass

GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one lease's work.

    processes: with their threads, over the account that it runs as. open_files: of one process.
    file_bytes: of one file. memory_bytes: of all of it where the host has control groups that the
    agent may write, else the data of one process. disk_bytes: of all that it can write; 0: not
    bounded. cpus: cores that it may use at a time, where there are control groups; 0: all.
    """

    processes: int = 4096
    open_files: int = 65_536
    file_bytes: int = 256 * GIB
    memory_bytes: int = 0
    disk_bytes: int = 0
    cpus: int = 0

    def resources(self) -> dict[str, int]:
        """Return the bounds of each process, by the names of `resource`.

        Not its address space: CUDA reserves far more of that than there is memory.
        """
        return {
            "RLIMIT_NPROC": self.processes,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_DATA": self.memory(),
        }

    def memory(self) -> int:
        """Return the bytes of memory: by default all that the host has."""
        return self.memory_bytes or memory_of_host()


LIMITS = Limits()


def memory_of_host() -> int:
    """Return the bytes of memory that this host has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
