"""Whose a process is: by its control group or container, its ancestors and session, its account.

A control group is the kernel's own word, which work cannot leave without root; it holds what was
started beside the work too, such as by `podman exec`, and what outlived its parents. Where there is
none the family tells, and last an account that only the lease has. A process id is never trusted
without its start time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any
from uuid import UUID

from .family import content, stat_of, whose

_GROUPS = (
    re.compile(r"/(offpeak/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:/|$)"),
    re.compile(r"/(libpod-[0-9a-f]{64})(?:\.scope)?(?:/|$)"),
    re.compile(r"^(.*?/job_[0-9]+)(?:/|$)"),
)
"""Groups of our own, of podman's containers, of a cluster's jobs: what of their path names one."""


def groups_in(text: str) -> Iterator[str]:
    """Yield the groups that /proc/PID/cgroup names, as far as one of them is one lease's alone."""
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        for form in _GROUPS:
            if (found := form.search(path)) is not None:
                yield found[1]
                break


def groups_of(pid: int) -> list[str]:
    """Return such groups of a process; none when it is gone."""
    try:
        return list(groups_in(content(f"/proc/{pid}/cgroup").decode(errors="replace")))
    except OSError:
        return []


class Owners:
    """Tells whose a process is, of the leases whose work runs."""

    def __init__(self, *, groups: Callable[[int], Collection[str]] = groups_of) -> None:
        self._groups = groups
        self._known: dict[UUID, frozenset[str]] = {}

    def owner(
        self,
        pid: int,
        *,
        roots: Mapping[UUID, Mapping[str, Any]],
        tops: Mapping[tuple[int, int], UUID],
        sessions: Mapping[int, UUID],
        accounts: Mapping[int, UUID],
    ) -> UUID | None:
        """Return the lease of a process; None: it is of none.

        roots: of each lease the record of its first process; tops, sessions: as `whose` has them;
        accounts: users that only one lease has.
        """
        mine = {group: lease for lease, root in roots.items() for group in self._of(lease, root)}
        for lease in self._known.keys() - roots.keys():
            del self._known[lease]
        for group in self._groups(pid):
            if group in mine:
                return mine[group]
        true = {leader: lease for leader, lease in sessions.items() if _leads(leader, roots[lease])}
        found = whose(pid, tops, true)
        return accounts.get(_account(pid)) if found is None and accounts else found

    def _of(self, lease_id: UUID, root: Mapping[str, Any]) -> frozenset[str]:
        """Return the groups of a lease: its own by name, and those its first process is in."""
        known = self._known.get(lease_id)
        if known is None:
            own = {f"offpeak/{lease_id}"}
            stat = stat_of(root["pid"])
            if stat is not None and stat.ticks == root["ticks"]:
                # Not one that the agent is in as well: it holds more than this lease.
                own.update(set(self._groups(root["pid"])) - set(self._groups(os.getpid())))
            known = self._known[lease_id] = frozenset(own)
        return known


def _leads(leader: int, root: Mapping[str, Any]) -> bool:
    """Tell if a session is still the lease's: its leader is the same process, or gone.

    The kernel gives the id of a session to no other process as long as one of it is there.
    """
    stat = stat_of(leader)
    return stat is None or stat.ticks == root["ticks"]


def _account(pid: int) -> int:
    try:
        text = content(f"/proc/{pid}/status").decode(errors="replace")
    except OSError:
        return -1
    said = next((line for line in text.splitlines() if line.startswith("Uid:")), "Uid: -1")
    return int(said.split()[1])
