"""Control groups: bounds on all processes of a lease together, where the host lets us set them.

Both generations are used by what is mounted. What was written is read back: a bound that the
kernel did not take is none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import get_ident

from .device_lists import EVERYBODY, limit
from .limits import Limits

OURS = "offpeak"
PERIOD_US = 100_000
MOUNTS = Path("/proc/self/mounts")
_FIRST, _SECOND = "control groups v1", "control groups v2"
KEEPS = {
    "memory": {"memory.limit_in_bytes": _FIRST, "memory.max": _SECOND},
    "processes": {"pids.max": "control groups"},
    "cpu": {"cpu.cfs_quota_us": _FIRST, "cpu.max": _SECOND},
}
"""What is bounded by which file, of which generation."""


def make(name: str, limits: Limits, mounts: Path = MOUNTS) -> list[Path]:
    """Make the groups of a lease and return their folders; none where that is not allowed."""
    made = []
    for root, kind in _hierarchies(mounts):
        group = root / OURS / name
        try:
            if kind == "unified":
                _enable(root)
            group.mkdir(parents=True, exist_ok=True)
            if kind == "unified":
                _enable(group.parent)
            _bound(group, limits)
        except OSError:
            remove([group])
            continue
        made.append(group)
    return made


def remove(groups: list[Path]) -> None:
    """Remove groups in which nothing lives any more."""
    for group in groups:
        try:
            group.rmdir()
        except OSError:
            continue  # not there, or not empty: it bounds what is left


def all_of(name: str, mounts: Path = MOUNTS) -> list[Path]:
    """Return the groups of a lease that are there."""
    found = [root / OURS / name for root, _ in _hierarchies(mounts)]
    return [group for group in found if group.is_dir()]


def bound_memory(made: list[Path]) -> bool:
    """Tell if one of these groups bounds memory."""
    return any(
        (each / name).exists() for each in made for name in ("memory.max", "memory.limit_in_bytes")
    )


def kept_by(limits: Limits, mounts: Path = MOUNTS) -> Mapping[str, str]:
    """Return what groups bound here of a lease as a whole: `memory`, `processes`, `cpu`, `devices`.

    Tried out, since a host may have groups that the agent may not write.
    """
    # Of a name that no other agent of this host removes at that moment.
    made = make(f"probe-{os.getpid()}-{get_ident()}", limits, mounts)
    found = {
        what: name
        for what, files in KEEPS.items()
        for group in made
        for file, name in files.items()
        if (group / file).exists() and (what != "cpu" or limits.cpus)
    }
    try:
        lists = limit(made, EVERYBODY)
    except OSError:
        lists = ""
    remove(made)
    return {**found, "devices": lists} if lists else found


def bounds_of(limits: Limits) -> Mapping[str, str]:
    """Return what is written to which file, of the first generation and of the second."""
    memory, processes = str(limits.memory()), str(limits.processes)
    quota = limits.cpus * PERIOD_US
    cpu = {"cpu.cfs_quota_us": str(quota), "cpu.max": f"{quota} {PERIOD_US}"}
    return {
        **(cpu if limits.cpus else {}),
        "memory.limit_in_bytes": memory,
        "memory.memsw.limit_in_bytes": memory,
        "memory.max": memory,
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": processes,
    }


def _bound(group: Path, limits: Limits) -> None:
    for name, value in bounds_of(limits).items():
        file = group / name
        if file.exists():
            file.write_text(value)
            if name in ("memory.max", "memory.limit_in_bytes"):
                _check(file, limits.memory())


def _check(file: Path, most: int) -> None:
    said = file.read_text().strip()
    if not said.isdigit() or int(said) > most:
        raise OSError(0, f"{file} says {said} and not {most}")


def _enable(folder: Path) -> None:
    """Let the groups inside bound memory, processes and cores, as far as the kernel has it."""
    known = (folder / "cgroup.controllers").read_text().split()
    wanted = " ".join(f"+{each}" for each in ("memory", "pids", "cpu") if each in known)
    if wanted:
        (folder / "cgroup.subtree_control").write_text(wanted)


def _hierarchies(mounts: Path) -> Iterator[tuple[Path, str]]:
    """Yield where groups of memory, processes, cores, devices, and of all in one are mounted."""
    for line in mounts.read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup2":
            yield Path(where), "unified"
        elif kind == "cgroup" and {"memory", "pids", "cpu", "devices"} & set(options.split(",")):
            yield Path(where), "single"
