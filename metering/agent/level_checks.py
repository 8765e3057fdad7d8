"""What `offpeak-agent doctor` says of the level at which work is kept apart, and of the next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .checks import Check
from .runtimes import disks, groups
from .runtimes.levels import LEVELS, Level, sandbox_of
from .runtimes.limits import Limits
from .work_as import PODMAN, WorkAs

NAME = "isolation"


def examine(
    found: WorkAs, runtimes: tuple[str, ...], limits: Limits, state_dir: Path
) -> Iterator[Check]:
    """Yield the level of work without an image, and what the next one lacks here."""
    no_disk = disks.usable(state_dir) if limits.disk_bytes and found.users is not None else ""
    bounded = bool(limits.disk_bytes) and found.users is not None and not no_disk
    level = sandbox_of(found.users, found.confinement, limits, disk=bounded).level
    lacks = list(_missing(level, found, runtimes, limits, no_disk))
    mend = f"for {LEVELS[LEVELS.index(level) + 1]}: {'; '.join(lacks)}" if lacks else ""
    yield Check(NAME, True if LEVELS.index(level) >= 2 else None, f"level {level}", mend)


def _missing(
    level: Level, found: WorkAs, runtimes: tuple[str, ...], limits: Limits, no_disk: str
) -> Iterator[str]:
    match level:
        case "none":
            yield "run the agent as root, with --work-users 300000-300031"
        case "account" if found.confinement is None:
            yield found.unconfined
        case "account":
            yield "a network of its own for each lease, so not --work-network host"
        case "process" if found.users is None:
            yield "run the agent as root, with --work-users 300000-300031"
        case "process":
            kept = groups.kept_by(limits)
            if not limits.memory_bytes:
                yield "--work-memory-gib N"
            if not {"memory", "processes"} <= set(kept):
                yield "control groups that the agent may write"
            if not limits.disk_bytes:
                yield "--work-disk-gib N"
            elif no_disk:
                yield f"a file system for each lease: {no_disk}"
        case "full" if PODMAN not in runtimes:
            yield "--runtimes process,podman, for work in images"
        case _:
            return
