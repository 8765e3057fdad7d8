"""How to get into the work of a lease that runs: what the agent's door enters (`access/door.py`).

A runtime of processes is entered by namespaces and account. One of containers would start a
command of its own inside them (`podman exec`), and say so by another value than `Inside`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable
from uuid import UUID

from .family import Stat, descendants, stat_of

ENVIRONMENT_BYTES_MAX = 256 * 1024


class NoWayIn(Exception):
    """The work cannot be entered; the text says why and is shown to the consumer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """Work as it can be entered.

    pid: one of its processes, in all its namespaces. own_network: its loopback is nobody else's.
    groups: its control groups. environment, home: as its command has them.
    """

    pid: int
    uid: int
    gid: int
    own_network: bool
    home: str
    groups: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)


@runtime_checkable
class Enterable(Protocol):
    """A runtime whose work can be entered."""

    def inside(self, lease_id: UUID) -> Inside:
        """Return how to enter the work of a lease. Raises: NoWayIn."""
        ...

    def count_in(self, lease_id: UUID, pid: int) -> None:
        """Take a process of this host, and all below it, for the lease's own from now on."""
        ...


def inside_of(root: int, uid: int, *, groups: Sequence[Path], limits: Mapping[str, int]) -> Inside:
    """Return how to enter the work below a process; uid: the account that only it has.

    Raises: NoWayIn.
    """
    pid = _innermost(root)
    status = _status(pid)
    if status.get("Uid", "").split() != [str(uid)] * 4:
        raise NoWayIn("its work is about to start or to end")
    environment = _environment(pid)
    return Inside(
        pid=pid,
        uid=uid,
        gid=int(status["Gid"].split()[0]),
        own_network=_namespace(pid, "net") != _namespace(os.getpid(), "net"),
        home=environment.get("HOME", "/"),
        groups=tuple(groups),
        environment=environment,
        limits=dict(limits),
    )


def _innermost(root: int) -> int:
    """Return the command itself: below bwrap, if that is around it, the first that it started."""
    for _ in range(2):  # bwrap on the outside, and bwrap as the namespace's first process
        stat = stat_of(root)
        if stat is None:
            raise NoWayIn("its work has ended")
        if stat.name != "bwrap":
            return root
        below = [each for each in descendants(root) if each.parent == root]
        if not below:
            raise NoWayIn("its work is about to start or to end")
        root = min(below, key=_age).pid
    return root


def _age(stat: Stat) -> tuple[int, int]:
    return stat.ticks, stat.pid


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        raise NoWayIn("its work has ended") from None
    return {name: rest.strip() for name, _, rest in (line.partition(":") for line in lines)}


def _environment(pid: int) -> dict[str, str]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            said = file.read(ENVIRONMENT_BYTES_MAX)
    except OSError:
        raise NoWayIn("its work has ended") from None
    pairs = (each.decode(errors="replace").partition("=") for each in said.split(b"\0"))
    return {name: value for name, equals, value in pairs if name and equals}


def _namespace(pid: int, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/{name}")
    except OSError:
        raise NoWayIn("its work has ended") from None
