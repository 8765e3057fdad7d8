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


def used_by(
    tops: Mapping[tuple[int, int], UUID],
    sessions: Mapping[int, UUID],
    *,
    proc: Path = Path("/proc"),
) -> dict[UUID, Used]:
    """Return what each lease has used.

    tops, sessions: as `whose` has them; what stands below a top, or in a session, is a lease's.
    """
    stats = {stat.pid: stat for stat in map(_stat, _pids(proc)) if stat is not None}
    of: dict[UUID, list[_Stat]] = {lease_id: [] for lease_id in tops.values()}
    for stat in stats.values():
        lease_id = _lease_of(stat, stats, tops, sessions)
        if lease_id in of:
            of[lease_id].append(stat)
    own = _namespace(proc / "thread-self")
    return {
        lease_id: Used(
            sum(each.cpu_ms for each in found),
            _sum(_io_bytes, [each.path for each in found]),
            _net_bytes([each.path for each in found], own),
        )
        for lease_id, found in of.items()
        if found
    }


@dataclass(frozen=True, slots=True)
class _Stat:
    path: Path
    pid: int
    parent: int
    session: int
    ticks: int
    cpu_ms: int


def _pids(proc: Path) -> list[Path]:
    return [proc / name for name in os.listdir(proc) if name.isdigit()]


def _stat(path: Path) -> _Stat | None:
    try:
        text = (path / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    part = text.rpartition(")")[2].split()
    cpu_ms = sum(map(int, part[11:15])) * TICK_MS
    return _Stat(path, int(path.name), int(part[1]), int(part[3]), int(part[19]), cpu_ms)


def _lease_of(
    stat: _Stat,
    stats: Mapping[int, _Stat],
    tops: Mapping[tuple[int, int], UUID],
    sessions: Mapping[int, UUID],
) -> UUID | None:
    here: _Stat | None = stat
    for _ in range(DEPTH_MAX):
        if here is None:
            return None
        found = tops.get((here.pid, here.ticks)) or sessions.get(here.session)
        if found is not None:
            return found
        here = stats.get(here.parent)
    return None


def _sum(read: Callable[[Path], int | None], paths: list[Path]) -> int | None:
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


def _io_bytes(path: Path) -> int | None:
    said = dict(line.split(": ", 1) for line in (path / "io").read_text().splitlines())
    return int(said["read_bytes"]) + int(said["write_bytes"])


def _net_bytes(paths: list[Path], own: str | None) -> int | None:
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


def _namespace(path: Path) -> str | None:
    try:
        return os.readlink(path / "ns" / "net")
    except OSError:
        return None


def _interfaces(path: Path) -> int | None:
    try:
        lines = (path / "net" / "dev").read_text().splitlines()[2:]
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
