"""What holds a container, read back from the kernel: a limit that is not there is none.

With the standard library alone: the keeper uses it as a script (see keeper.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

MOUNTS = Path("/proc/self/mounts")
WORK = "lease/work"
"""Where the work writes what it leaves, as seen from its root."""


def check(pid: int, bounds: Mapping[str, int], ids: int) -> None:
    """Read back what was asked for: a limit that the kernel does not have is none.

    bounds: memory_bytes, processes, and cpu_percent and disk_bytes (0: not asked for).
    Raises: OSError with what is not as it must be.
    """
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        if int(status[name], 16):
            _refuse(f"the container has capabilities: {name} {status[name]}")
    if status["NoNewPrivs"] != "1":
        _refuse("the container could gain privileges")
    if status["Seccomp"] != "2":
        _refuse("the container has no system call filter")
    if not all(ids <= int(uid) < ids + 65_536 for uid in status["Uid"].split()):
        _refuse(f"the container runs as {status['Uid']}")
    for what, limit, found in (
        ("memory", bounds["memory_bytes"], _bound(pid, MEMORY)),
        ("memory and swap", bounds["memory_bytes"], _bound(pid, SWAP)),
        ("processes", bounds["processes"], _bound(pid, PROCESSES)),
    ):
        if found is None or found > limit:
            _refuse(f"its limit on {what} is {found} and not {limit}: no container runs without")
    share, percent = cpu_percent(pid), bounds["cpu_percent"]
    if percent and (share is None or share > percent):
        _refuse(f"its limit on processors is {share} % and not {percent} %")
    if disk_bytes := bounds["disk_bytes"]:
        _check_disk(pid, disk_bytes)


MEMORY = ("memory", "memory.limit_in_bytes", "memory.max")
SWAP = ("memory", "memory.memsw.limit_in_bytes", "memory.swap.max")
PROCESSES = ("pids", "pids.max", "pids.max")


def _bound(pid: int, which: tuple[str, str, str]) -> int | None:
    """Return the bound that the control group of a process has; None: it has none."""
    controller, first, second = which
    text = _read(pid, controller, first, second)
    return int(text) if text is not None and text.isdigit() else None


def cpu_percent(pid: int) -> int | None:
    """Return how much of one processor the group of a process may take; None: all there are."""
    quota = _read(pid, "cpu", "cpu.cfs_quota_us", "cpu.max")
    if quota is None or quota.startswith(("-1", "max")):
        return None
    if " " not in quota:
        quota += " " + (_read(pid, "cpu", "cpu.cfs_period_us", "cpu.max") or "100000")
    most, period = map(int, quota.split())
    return most * 100 // period


def _read(pid: int, controller: str, first: str, second: str) -> str | None:
    """Read a file of the group of a process: of the first generation, or of the second."""
    mounts = [line.split() for line in MOUNTS.read_text().splitlines()]
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        single = controller in names.split(",")
        for _, where, kind, options, *_ in mounts:
            ours = kind == "cgroup" and controller in options.split(",")
            if (single and ours) or (not names and kind == "cgroup2"):
                file = Path(where + path, first if single else second)
                if file.exists():
                    return file.read_text().strip()
    return None


def _check_disk(pid: int, most: int) -> None:
    """Ask how large the file system is that the work's folder is on."""
    space = os.statvfs(f"/proc/{pid}/root/{WORK}")
    if (size := space.f_blocks * space.f_frsize) > most:
        _refuse(f"its limit on disk is {size} and not {most}: no container runs without")


def _refuse(reason: str) -> NoReturn:
    raise OSError(0, reason)
