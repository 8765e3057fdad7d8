"""How to get into the work of a lease that runs: what the agent's door enters (`access/door.py`).

Processes and containers alike are entered by namespaces and account. What holds a container
beyond those, the filter of its system calls, is copied from its first process (`access/door.py`).
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
from .podman import IDS
from .port import Work

ENVIRONMENT_BYTES_MAX = 256 * 1024
LIMITS_OF_CONTAINERS = ("RLIMIT_NPROC", "RLIMIT_NOFILE", "RLIMIT_FSIZE")


class NoWayIn(Exception):
    """The work cannot be entered; the text says why and is shown to the consumer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """Work as it can be entered.

    pid: one of its processes, in all its namespaces. own_network: its loopback is nobody else's.
    groups: its control groups. environment, home: as its command has them. ids: the first user id
    of the container that it runs in, in which `uid`, `gid` and `more_groups` are counted; 0: none.
    """

    pid: int
    uid: int
    gid: int
    own_network: bool
    home: str
    groups: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    ids: int = 0
    more_groups: tuple[int, ...] = ()


@runtime_checkable
class Enterable(Protocol):
    """A runtime whose work can be entered."""

    def inside(self, lease_id: UUID) -> Inside:
        """Return how to enter the work of a lease. Raises: NoWayIn."""
        ...

    def count_in(self, lease_id: UUID, pid: int) -> None:
        """Take a process of this host, and all below it, for the lease's own from now on."""
        ...


Tops = tuple[dict[tuple[int, int], UUID], dict[int, UUID]]
"""What the processes of leases stand below, by process id and start, and their sessions."""


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
            limits = self._limits.resources()
            return inside_of_container(root["pid"], self._ids[lease_id][0], limits=limits)
        uid = self._own_uid(lease_id)
        if uid is None:
            # As the agent's own user, or as one that others have too, it would be no lease's shell.
            raise NoWayIn("work on this host has no account of its own, so nobody is let in")
        made = self._groups_within(lease_id, root["pid"])
        return inside_of(root["pid"], uid, groups=made, limits=self._limits.resources())

    def _groups_within(self, lease_id: UUID, pid: int) -> Sequence[Path]:
        """Return the control groups of a lease's work; pid: its command, or what is around it."""
        return control.all_of(str(lease_id))

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


def inside_of_container(root: int, ids: int, *, limits: Mapping[str, int]) -> Inside:
    """Return how to enter a container by its first process; ids: the first of its user ids.

    Raises: NoWayIn.
    """
    status = _status(root)
    whole = range(ids, ids + IDS)
    uids, gids = ({int(each) for each in status.get(name, "").split()} for name in ("Uid", "Gid"))
    if len(uids) != 1 or len(gids) != 1 or not uids | gids <= set(whole):
        raise NoWayIn("its work is about to start or to end")
    below = [each for each in descendants(root) if each.parent == root]
    if not below:
        raise NoWayIn("its work is about to start or to end")
    environment = _environment(min(below, key=_age).pid)
    groups = {int(each) for each in status.get("Groups", "").split()}
    return Inside(
        pid=root,
        uid=uids.pop() - ids,
        gid=gids.pop() - ids,
        own_network=_namespace(root, "net") != _namespace(os.getpid(), "net"),
        home=environment.get("HOME", "/"),
        groups=groups_of(root),
        environment=environment,
        limits={name: most for name, most in limits.items() if name in LIMITS_OF_CONTAINERS},
        ids=ids,
        more_groups=tuple(sorted(each - ids for each in groups if each in whole)),
    )


def groups_of(pid: int) -> tuple[Path, ...]:
    """Return the control groups of a process that are not ours."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    ours = Path("/proc/self/cgroup").read_text().splitlines()
    found = []
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for _, where, kind, options, *_ in mounts:
            single = kind == "cgroup" and names and set(names.split(",")) <= set(options.split(","))
            group = Path(where + path)
            if line not in ours and (single or (kind == "cgroup2" and not names)):
                found += [group] if (group / "cgroup.procs").exists() else []
    return tuple(found)


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
