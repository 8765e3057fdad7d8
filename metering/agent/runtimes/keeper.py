"""The keeper: a small process that stays with the work of one lease until all of it is gone.

It exists so that the agent may be killed, updated and started again without touching the work and
without losing how and when the work ended. It starts the command in a session of its own, adopts
whatever the command leaves behind (child subreaper), keeps the output within bounds, and writes
`started.json` and `exit.json` with times of CLOCK_BOOTTIME. While it lives it holds the lock that
it was given, which is how the agent knows, without trusting a process id.

Run as a script, isolated (`python -I -S keeper.py ...`): it imports only the standard library and
nothing beside it. The command and its environment come by standard input, so that neither shows
in a process list and no variable of the tenant reaches this process.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

PR_SET_CHILD_SUBREAPER = 36
CHUNK_BYTES = 65_536
EXIT_RECORD_BYTES = 4096
KILL_PASSES_MAX = 500
ANCESTORS_MAX = 1024


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


def stat_of(pid: int) -> Stat | None:
    """Return what the kernel says of a process; None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
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


def signal_all(stats: list[Stat], number: int) -> None:
    """Send a signal to processes, skipping those that are gone or whose id went to another."""
    for stat in stats:
        now = stat_of(stat.pid)
        if now is not None and now.ticks == stat.ticks:
            try:
                os.kill(stat.pid, number)
            except ProcessLookupError:
                continue


def kill_all(of: int, *, session: int | None = None) -> None:
    """Kill everything below `of`, again until nothing is left that could have forked meanwhile."""
    for _ in range(KILL_PASSES_MAX):
        left = descendants(of, session=session)
        if not left:
            return
        signal_all(left, signal.SIGKILL)
        time.sleep(0.002)


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Replace the file in one step."""
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(record))
    os.replace(new, path)


@dataclass
class BoundedFile:
    """Output of which the newest is kept: `path` and one older part, each up to `bytes_max`."""

    path: Path
    bytes_max: int

    def __post_init__(self) -> None:
        self._file = self.path.open("ab", buffering=0)
        self._bytes = self._file.tell()

    def write(self, data: bytes) -> None:
        """Append; when the disk is full the output is dropped, for the work must go on."""
        try:
            for start in range(0, len(data), self.bytes_max):
                self._put(data[start : start + self.bytes_max])
        except (OSError, ValueError):
            return

    def _put(self, part: bytes) -> None:
        if self._bytes + len(part) > self.bytes_max:
            self._file.close()
            os.replace(self.path, self.path.with_name(self.path.name + ".1"))
            self._file = self.path.open("ab", buffering=0)
            self._bytes = 0
        self._bytes += self._file.write(part) or 0


def keep(folder: Path, order: dict[str, Any], ready: int) -> None:
    """Start the command, stay until all of it is gone, and leave the record of its end."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    # The room for the last record is taken now: at the end the disk may be full.
    with (folder / "exit.json.new").open("wb") as reserved:
        os.posix_fallocate(reserved.fileno(), 0, EXIT_RECORD_BYTES)
    try:
        child = _start(folder, order)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        _end(folder, {"failed": f"{order['command'][0]}: {getattr(error, 'strerror', error)}"})
        os.write(ready, b"failed\n")
        return
    stat = stat_of(child.pid)
    assert stat is not None  # not reaped yet, so at least its zombie is there
    own = stat_of(os.getpid())
    assert own is not None
    record: dict[str, Any] = {"pid": child.pid, "ticks": stat.ticks, "boot_ns": _boot_ns()}
    record |= {"keeper_pid": own.pid, "keeper_ticks": own.ticks, "kernel_boot_id": _boot_id()}
    write_json(folder / "started.json", record)
    try:
        os.write(ready, b"started\n")
    except BrokenPipeError:
        pass  # the agent is gone; the next one finds the record
    finally:
        os.close(ready)
    code = _watch(folder, child, wake_read, int(order["output_bytes_max"]))
    _end(folder, {"exit_code": code, "boot_ns": _boot_ns()})


def _start(folder: Path, order: dict[str, Any]) -> subprocess.Popen[bytes]:
    account = order.get("account")
    more: dict[str, Any] = {}
    if account is not None:
        more = {"user": account[0], "group": account[1], "extra_groups": []}
    return subprocess.Popen(
        order["command"],
        env=order["environment"],
        cwd=folder / "work",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        **more,
    )


def _watch(folder: Path, child: subprocess.Popen[bytes], wake: int, bytes_max: int) -> int:
    selector = selectors.DefaultSelector()
    selector.register(wake, selectors.EVENT_READ)
    for pipe, name in ((child.stdout, "stdout.log"), (child.stderr, "stderr.log")):
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
        selector.register(
            pipe.fileno(), selectors.EVENT_READ, BoundedFile(folder / name, bytes_max)
        )
    code = None
    while code is None:
        for key, _ in selector.select(timeout=1.0):
            _drain(selector, key)
        code = _reap(child.pid)
    child.returncode = code
    # What the command left behind has no command any more: it must not hold the GPU.
    for _ in range(KILL_PASSES_MAX):
        kill_all(os.getpid())
        if not _children_left(child.pid):
            break
        time.sleep(0.002)
    for key, _ in selector.select(timeout=0):
        _drain(selector, key)
    return code


def _drain(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    for _ in range(64):
        try:
            data = os.read(key.fd, CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            selector.unregister(key.fd)
            return
        if isinstance(key.data, BoundedFile):
            key.data.write(data)


def _reap(pid: int) -> int | None:
    """Collect every dead child; return the exit code of `pid` if it was among them."""
    code = None
    while True:
        try:
            found, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if found == 0:
            return code
        if found == pid:
            code = os.waitstatus_to_exitcode(status)


def _children_left(pid: int) -> bool:
    _reap(pid)
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _end(folder: Path, record: dict[str, Any]) -> None:
    with (folder / "exit.json.new").open("r+b") as reserved:
        reserved.write(json.dumps(record).encode().ljust(EXIT_RECORD_BYTES))
        reserved.flush()
        os.fsync(reserved.fileno())
    os.replace(folder / "exit.json.new", folder / "exit.json")


def _boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def main() -> None:
    """Arguments: the lease's folder, and the descriptor on which to say that it started.

    The lock is another inherited descriptor: it is held by being open, and never handed on.
    """
    folder, ready = Path(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(ready, False)
    os.set_inheritable(int(sys.argv[3]), False)
    order = json.loads(sys.stdin.buffer.read())
    keep(folder, order, ready)


if __name__ == "__main__":
    main()
