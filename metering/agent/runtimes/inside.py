"""How to get into the work of a lease that runs: what the agent's door enters (`access/door.py`).

A runtime of processes is entered by namespaces and account. One of containers would start a
command of its own inside them (`podman exec`), and say so by another value than `Inside`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, runtime_checkable
from uuid import UUID

from . import groups as control
from .family import Stat, descendants, stat_of
from .limits import Limits
from .port import Work

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


class Entered:
    """The part of a runtime of processes by which their work is entered."""

    _works: dict[UUID, Work]
    _roots: dict[UUID, dict[str, int]]
    _ids: dict[UUID, tuple[int, str]]
    _limits: Limits
    _doors: Mapping[tuple[int, int], UUID] = MappingProxyType({})
    """Processes of ours that count for a lease, by id and start."""

    def _look(self, lease_id: UUID) -> Work:
        raise NotImplementedError

    def _own_uid(self, lease_id: UUID) -> int | None:
        raise NotImplementedError

    def inside(self, lease_id: UUID) -> Inside:
        """Return how to enter the work of a lease. Raises: NoWayIn."""
        root = self._roots.get(lease_id)
        if root is None or lease_id not in self._works or self._look(lease_id).state != "running":
            raise NoWayIn("no work of this lease runs here")
        if lease_id in self._ids:
            # By its namespaces a shell would be without the filter of system calls that it has.
            raise NoWayIn("work in an image cannot be entered yet")
        uid = self._own_uid(lease_id)
        if uid is None:
            # As the agent's own user, or as one that others have too, it would be no lease's shell.
            raise NoWayIn("work on this host has no account of its own, so nobody is let in")
        made = control.all_of(str(lease_id))
        return inside_of(root["pid"], uid, groups=made, limits=self._limits.resources())

    def count_in(self, lease_id: UUID, pid: int) -> None:
        """Take a process of this host, and all below it, for the lease's own from now on."""
        known = {known: of for known, of in self._doors.items() if stat_of(known[0])}
        if (stat := stat_of(pid)) is not None:
            known[stat.pid, stat.ticks] = lease_id
        self._doors = known


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
