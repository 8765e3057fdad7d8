"""What the processes of leased work have used so far: processor time, disk and network.

Read from /proc in one pass for all leases. Time and bytes of a process that ended are its
parent's, as the kernel adds them up, so sums only grow; one that shrank is not known.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from .family import content

TICK_MS = 1000 // os.sysconf("SC_CLK_TCK")
DEPTH_MAX = 64
LOOPBACK = "lo"


@dataclass(frozen=True, slots=True)
class Used:
    """What work has used since it began; None: not known. io_bytes: to and from block devices.

    net_bytes: over all interfaces of the network that is the work's own, but its loopback.
    """

    cpu_ms: int | None
    io_bytes: int | None
    net_bytes: int | None

    def since(self, before: Used) -> Used:
        """Return what was used after `before` was read."""
        return Used(
            _difference(self.cpu_ms, before.cpu_ms),
            _difference(self.io_bytes, before.io_bytes),
            _difference(self.net_bytes, before.net_bytes),
        )


NOT_KNOWN = Used(None, None, None)


class Uses:
    """Reads what leases use, again and again, and looks but once at a process of none of them.

    Whom the kernel has below a lease's processes was started there, so who is not there at one look
    never will be, unless other processes count for leases: then all are looked at anew. The kernel
    names a process in /proc by another inode when its id went to another one.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = str(proc)
        self._marks: tuple[object, object] = (None, None)
        self._others: dict[int, int] = {}

    def of(
        self, tops: Mapping[tuple[int, int], UUID], sessions: Mapping[int, UUID]
    ) -> dict[UUID, Used]:
        """Return what each lease has used.

        tops, sessions: as `whose` has them; what stands below a top, or in a session, is a lease's.
        """
        if self._marks != (tops, sessions):
            self._marks, self._others = (dict(tops), dict(sessions)), {}
        inodes = self._processes()
        others = {pid: each for pid, each in self._others.items() if inodes.get(pid) == each}
        new = (_stat(self._proc, pid) for pid in inodes.keys() - others.keys())
        stats = {stat.pid: stat for stat in new if stat is not None}
        found: dict[UUID, list[_Stat]] = {lease_id: [] for lease_id in tops.values()}
        self._others = dict(others)
        for stat in stats.values():
            lease_id, above = _lease_of(stat, stats, tops, sessions)
            if lease_id in found:
                found[lease_id].append(stat)
            elif lease_id is None and (above == 0 or above in others):
                # Else its parent ended meanwhile, and who has it now is seen at the next look.
                self._others[stat.pid] = inodes[stat.pid]
        own = _namespace(f"{self._proc}/thread-self")
        return {
            lease_id: Used(
                sum(each.cpu_ms for each in processes),
                _sum(_io_bytes, [each.path for each in processes]),
                _net_bytes([each.path for each in processes], own),
            )
            for lease_id, processes in found.items()
            if processes
        }

    def _processes(self) -> dict[int, int]:
        """Return the inode of each process in /proc."""
        with os.scandir(self._proc) as entries:
            return {int(each.name): each.inode() for each in entries if each.name.isdigit()}


@dataclass(frozen=True, slots=True)
class _Stat:
    path: str
    pid: int
    parent: int
    session: int
    ticks: int
    cpu_ms: int


def _stat(proc: str, pid: int) -> _Stat | None:
    path = f"{proc}/{pid}"
    try:
        text = content(f"{path}/stat")
    except (FileNotFoundError, ProcessLookupError):
        return None
    part = text.rpartition(b")")[2].split()
    cpu_ms = sum(map(int, part[11:15])) * TICK_MS
    return _Stat(path, pid, int(part[1]), int(part[3]), int(part[19]), cpu_ms)


def _lease_of(
    stat: _Stat,
    stats: Mapping[int, _Stat],
    tops: Mapping[tuple[int, int], UUID],
    sessions: Mapping[int, UUID],
) -> tuple[UUID | None, int]:
    """Return whose a process is, and the first above it that was not looked at; 0: none is."""
    here, above = stat, 0
    for _ in range(DEPTH_MAX):
        found = tops.get((here.pid, here.ticks)) or sessions.get(here.session)
        above = here.parent
        if found is not None:
            return found, above
        if above not in stats:
            break
        here = stats[above]
    return None, above


def _sum(read: Callable[[str], int | None], paths: list[str]) -> int | None:
    total = 0
    for path in paths:
        try:
            found = read(path)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile: its parent has it from now on
        except OSError:
            return None
        if found is None:
            return None
        total += found
    return total


def _io_bytes(path: str) -> int | None:
    said = dict(line.split(b": ", 1) for line in content(f"{path}/io").splitlines())
    return int(said[b"read_bytes"]) + int(said[b"write_bytes"])


def _net_bytes(paths: list[str], own: str | None) -> int | None:
    """Return what went over the networks of these processes; None: one is the host's."""
    found: dict[str, int] = {}
    for path in paths:
        space = _namespace(path)
        if space is None or space in found:
            continue
        if space == own:
            # Keeper and the like stand outside; work that does shares the host's network.
            continue
        read = _interfaces(path)
        if read is not None:
            found[space] = read
    return sum(found.values()) if found else None


def _namespace(path: str) -> str | None:
    try:
        return os.readlink(f"{path}/ns/net")
    except OSError:
        return None


def _interfaces(path: str) -> int | None:
    try:
        lines = Path(path, "net", "dev").read_text().splitlines()[2:]
    except OSError:
        return None
    total = 0
    for line in lines:
        name, _, rest = line.partition(":")
        part = rest.split()
        if name.strip() != LOOPBACK and len(part) > 8:
            total += int(part[0]) + int(part[8])
    return total


def _difference(now: int | None, before: int | None) -> int | None:
    if now is None or before is None or now < before:
        return None
    return now - before
