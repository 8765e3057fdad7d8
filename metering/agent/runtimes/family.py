"""Processes of this host: who they are, who is below whom, and how they are ended.

Read from /proc with the standard library alone: the keeper uses it as a script (see keeper.py).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from uuid import UUID

CONTENT_BYTES_MAX = 4096
KILL_PASSES_MAX = 500
ANCESTORS_MAX = 1024
TOP_DEPTH_MAX = 64


class Stat(NamedTuple):
    """The part of /proc/PID/stat that tells processes apart and how they are related.

    ticks: start time since boot in clock ticks; (pid, ticks) names a process for ever.
    """

    pid: int
    name: str
    state: str
    parent: int
    session: int
    ticks: int


def content(path: str) -> bytes:
    """Return what a short file of /proc says, in one step of the kernel. Raises: OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, CONTENT_BYTES_MAX)
    finally:
        os.close(file)


def stat_of(pid: int) -> Stat | None:
    """Return what the kernel says of a process; None when it is gone."""
    try:
        text = content(f"/proc/{pid}/stat").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    head, _, tail = text.rpartition(")")
    part = tail.split()
    name = head.partition("(")[2]
    return Stat(pid, name, part[0], int(part[1]), int(part[3]), int(part[19]))


def descendants(of: int, *, session: int | None = None) -> list[Stat]:
    """Return the living processes below `of`, and those of `session`, in no order."""
    found = {
        stat.pid: stat
        for entry in os.listdir("/proc")
        if entry.isdigit() and (stat := stat_of(int(entry))) is not None
    }
    below: dict[int, bool] = {of: True}

    def is_below(pid: int) -> bool:
        chain: list[int] = []
        while pid not in below and pid in found and len(chain) < ANCESTORS_MAX:
            chain.append(pid)
            pid = found[pid].parent
        answer = below.get(pid, False)
        below.update(dict.fromkeys(chain, answer))
        return answer

    return [
        stat
        for pid, stat in found.items()
        if pid != of and stat.state not in "ZX" and (is_below(pid) or stat.session == session)
    ]


def whose(
    pid: int, tops: Mapping[tuple[int, int], UUID], sessions: Mapping[int, UUID]
) -> UUID | None:
    """Return the lease that a process belongs to; None: to no lease.

    tops: by process id and start, whose descendants are a lease's; sessions: by their leader.
    """
    for _ in range(TOP_DEPTH_MAX):
        stat = stat_of(pid)
        if stat is None:
            return None
        if (lease_id := tops.get((stat.pid, stat.ticks))) is not None:
            return lease_id
        if (lease_id := sessions.get(stat.session)) is not None:
            return lease_id
        pid = stat.parent
    return None


def of_user(uid: int) -> list[Stat]:
    """Return the living processes of a user, by the kernel's record and not by who owns /proc."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            text = Path(f"/proc/{entry}/status").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        uids = next(line.split()[1:] for line in text.splitlines() if line.startswith("Uid:"))
        if str(uid) in uids and (stat := stat_of(int(entry))) and stat.state not in "ZX":
            found.append(stat)
    return found


def users_alive() -> set[int]:
    """Return the users of all living processes, by the kernel's record."""
    found = set[int]()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            text = Path(f"/proc/{entry}/status").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        if lines["State"].split()[0] not in "ZX":
            found.update(int(uid) for uid in lines["Uid"].split())
    return found


def signal_all(stats: list[Stat], number: int) -> None:
    """Send a signal to processes, skipping those that are gone or whose id went to another."""
    for stat in stats:
        now = stat_of(stat.pid)
        if now is not None and now.ticks == stat.ticks:
            try:
                os.kill(stat.pid, number)
            except ProcessLookupError:
                continue


def kill_all(of: int, *, session: int | None = None, uid: int | None = None) -> None:
    """Kill everything below `of`, again until nothing is left that could have forked meanwhile.

    uid: a user that nobody else is, whose processes are killed wherever they stand.
    """
    _kill(lambda: descendants(of, session=session) + ([] if uid is None else of_user(uid)))


def kill_all_of(uid: int) -> None:
    """Kill every process of a user, again until nothing is left."""
    _kill(lambda: of_user(uid))


def _kill(find: Callable[[], list[Stat]]) -> None:
    for _ in range(KILL_PASSES_MAX):
        left = find()
        if not left:
            return
        signal_all(left, signal.SIGKILL)
        time.sleep(0.002)


def kill_user(uid: int) -> None:
    """Kill all processes of a user in one step of the kernel, which no fork outruns."""
    assert uid > 0
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresuid(uid, uid, uid)
            if os.getresuid() == (uid, uid, uid):
                os.kill(-1, signal.SIGKILL)
        except OSError:
            pass  # there was nobody
        finally:
            os._exit(0)
    os.waitpid(child, 0)
