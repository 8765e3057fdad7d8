"""The keeper: a small process that stays with the work of one lease until all of it is gone.

It exists so that the agent may be killed, updated and started again without touching the work and
without losing how and when the work ended. It starts the command in a session of its own, adopts
whatever the command leaves behind (child subreaper), keeps the output within bounds, and writes
`started.json` and `exit.json` with times of CLOCK_BOOTTIME. While it lives it holds the lock that
it was given, which is how the agent knows, without trusting a process id.

It knows the deadline itself: `deadline.json`, which the agent writes and the work cannot, says by
CLOCK_BOOTTIME when the work is asked to end and when it is killed. So the work ends on time with
the agent dead, removed or hung. No step of the wall clock moves that clock, and it runs on
through suspend. What cannot be read of the file leaves the deadline as it was last read.

Run as a script, isolated (`python -I -S keeper.py ...`): it imports only the standard library and
what lies beside it and does the same. All about
the lease comes by standard input, so that none of it shows in a process list and no variable of
the tenant reaches this process. So do the values of its secrets, which its output does not show.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from base64 import b64decode
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING or __package__:
    from .confining import TRIES_MAX, Entry, Unready, handed, nameless
    from .containing import Container
    from .family import Stat, descendants, kill_all, kill_user, of_user, signal_all, stat_of
    from .noted import Noted
    from .output import Output
    from .redacting import Redacted
    from .reserved import put, reserve
    from .source_first import Unfetched, bring
else:
    # As an isolated script it finds nothing beside itself by its own.
    sys.path.insert(0, str(Path(__file__).parent))
    from confining import TRIES_MAX, Entry, Unready, handed, nameless
    from containing import Container
    from family import Stat, descendants, kill_all, kill_user, of_user, signal_all, stat_of
    from noted import Noted
    from output import Output
    from redacting import Redacted
    from reserved import put, reserve
    from source_first import Unfetched, bring

PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
CHUNK_BYTES = 65_536
DEADLINE_BYTES = 256
LOOK_SECONDS = 0.5
"""How often the deadline is read while nobody knocks."""
LATE_GRACE_NS = 5_000_000_000
"""Left to work that could not be asked to end before its deadline (the host slept)."""
LEFT_PAUSE_SECONDS_MAX = 1.0
SIGNALLED = 128
FAILED = "failed "
"""What it says first where it could not start the command; the reason follows."""


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Replace the file in one step; nobody else may read it."""
    new = path.with_name(path.name + ".new")
    with open(new, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(json.dumps(record))
    os.replace(new, path)


class Deadline(NamedTuple):
    """When work is asked to end and when it is killed, by CLOCK_BOOTTIME; None: never."""

    stop_ns: int | None
    kill_ns: int | None

    @classmethod
    def read(cls, path: Path) -> Deadline | None:
        """Return what the file says; None when it cannot be read."""
        try:
            record = json.loads(path.read_bytes())
            found = cls(record["stop_ns"], record["kill_ns"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        fits = all(each is None or type(each) is int for each in found)
        return found if fits else None

    def write(self, path: Path) -> None:
        """Write it over what was there: that needs no room on a disk that is full."""
        text = json.dumps(self._asdict()).encode().ljust(DEADLINE_BYTES)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(file, text, 0)
        finally:
            os.close(file)


class Kept:
    """The work of one lease and who is told what: its processes, its deadline."""

    def __init__(
        self, folder: Path, order: dict[str, Any], child: int, container: Container | None = None
    ) -> None:
        self._file = folder / "deadline.json"
        self._user: int | None = order.get("own_user")
        self._confined = bool(order.get("confined"))
        self._enders = [Path(each, "cgroup.kill") for each in order.get("groups", ())]
        self._child = child
        self._container = container
        self._deadline = Deadline(None, None)
        self.asked_ns: int | None = None

    def look(self) -> None:
        """Read the deadline, and do what is due by it."""
        self._deadline = found = Deadline.read(self._file) or self._deadline
        now_ns = _boot_ns()
        if self.asked_ns is None and found.stop_ns is not None and now_ns >= found.stop_ns:
            self.asked_ns = now_ns
            signal_all(self._asked(), signal.SIGTERM)
        due_ns = self._kill_ns()
        if due_ns is not None and now_ns >= due_ns:
            self.kill()

    def pause(self) -> float:
        """Return the seconds until something is due."""
        due_ns = self._deadline.stop_ns if self.asked_ns is None else self._kill_ns()
        if due_ns is None:
            return LOOK_SECONDS
        return min(LOOK_SECONDS, max(0.01, (due_ns - _boot_ns()) / 1e9))

    def kill(self) -> None:
        """Kill all that there is of it."""
        first = None if self._container is None else self._container.first()
        if first is not None:
            # Its end ends all in the container; podman's own processes then tidy up after it.
            signal_all([first], signal.SIGKILL)
            return
        for ender in self._enders:
            if ender.exists():  # since Linux 5.14: all members in one step
                with suppress(OSError):
                    ender.write_text("1")
        if self._user is not None:
            kill_user(self._user)
        kill_all(os.getpid(), uid=self._user)

    def is_gone(self) -> bool:
        """Return whether no process is left, dead ones that nobody collected among them."""
        return not _children_left() and (self._user is None or not of_user(self._user))

    def _kill_ns(self) -> int | None:
        stop_ns, kill_ns = self._deadline
        if kill_ns is None or self.asked_ns is None:
            return kill_ns
        late_ns = 0 if stop_ns is None else max(0, kill_ns - stop_ns)
        return max(kill_ns, self.asked_ns + min(LATE_GRACE_NS, late_ns))

    def _asked(self) -> list[Stat]:
        """Return who is asked to end: not those by whose end all others are killed at once."""
        if self._container is not None:
            return descendants(self._container.pid)
        stats = descendants(os.getpid())
        if not self._confined:
            return stats
        first = {self._child}
        first |= {stat.pid for stat in stats if stat.parent == self._child}
        inside = {stat.pid for stat in descendants(self._child)}
        return [stat for stat in stats if stat.pid in inside - first]


def keep(folder: Path, order: dict[str, Any], ready: int) -> None:
    """Start the command, stay until all of it is gone, and leave the record of its end."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in (signal.SIGCHLD, signal.SIGUSR1):  # by the latter the agent knocks
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    child: subprocess.Popen[bytes] | Container
    entry = None
    try:
        reserve(folder / "exit.json", folder / "started.json")
        fetched = _bring(folder, order) if "source" in order else {}
        if "contained" in order:
            child = Container(order)
        else:
            child, entry = _start(folder, order)
        stat, boot_ns = stat_of(child.pid), _boot_ns()
        if isinstance(child, Container):
            child.let_go()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        what = "its source" if isinstance(error, Unfetched) else order["command"][0]
        return _refuse(folder, f"{what}: {getattr(error, 'strerror', error)}", ready)
    assert stat is not None  # not reaped yet, so at least its zombie is there
    own = stat_of(os.getpid())
    assert own is not None
    record: dict[str, Any] = {"pid": child.pid, "ticks": stat.ticks, "boot_ns": boot_ns, **fetched}
    record |= {"contained": isinstance(child, Container), "keeps_deadline": True}
    record |= {"keeper_pid": own.pid, "keeper_ticks": own.ticks, "kernel_boot_id": _boot_id()}
    put(folder / "started.json", record)
    try:
        os.write(ready, b"started\n")
    except BrokenPipeError:
        pass  # the agent is gone; the next one finds the record
    finally:
        os.close(ready)
    kept = Kept(folder, order, child.pid, container := _contained(child))
    hidden = list(_secrets(order).values())
    code = _watch(folder, child, wake_read, kept, int(order["output_bytes_max"]), hidden)
    never = entry.never_began(folder / "stderr.log") if entry is not None and code > 0 else ""
    if order.get("confined") is not None and SIGNALLED < code <= SIGNALLED + signal.NSIG:
        code = SIGNALLED - code  # as bwrap, like a shell, tells of a signal
    ended_ns = None if container is None else container.ended_ns
    end: dict[str, Any] = {"exit_code": code, "boot_ns": ended_ns or _boot_ns()}
    if never:
        end |= {"exit_code": None, "failed": never}
    put(folder / "exit.json", end | {"stopped": kept.asked_ns is not None})
    if container is not None:
        container.remove()


def _refuse(folder: Path, reason: str, ready: int) -> None:
    """Leave word that the command never began; on a full disk only to who waits for it."""
    with suppress(OSError):
        put(folder / "exit.json", {"failed": reason})
    with suppress(BrokenPipeError):
        os.write(ready, f"{FAILED}{reason}\n".encode())


def _contained(child: subprocess.Popen[bytes] | Container) -> Container | None:
    return child if isinstance(child, Container) else None


def _bring(folder: Path, order: dict[str, Any]) -> dict[str, Any]:
    """Have the source of the work fetched, until the lease is over. Raises: OSError."""

    def over() -> bool:
        found, now_ns = Deadline.read(folder / "deadline.json"), _boot_ns()
        return found is not None and any(each is not None and now_ns >= each for each in found)

    with ExitStack() as open_files:
        groups = [_joining(each, open_files) for each in order.get("groups", ())]
        limits = order.get("limits", {})
        return bring(folder, order, limit=lambda: _limit(limits, groups), over=over)


def _start(folder: Path, order: dict[str, Any]) -> tuple[subprocess.Popen[bytes], Entry | None]:
    """Start the command, once more where bwrap ended before it could. Raises: as Popen does."""
    for left in reversed(range(TRIES_MAX)):
        try:
            return _try(folder, order)
        except OSError as error:
            kill_all(os.getpid(), uid=order.get("own_user"))  # what it was to have by its side
            if not isinstance(error, Unready) or not left:
                raise
    raise AssertionError("the last try returns or raises")


def _try(folder: Path, order: dict[str, Any]) -> tuple[subprocess.Popen[bytes], Entry | None]:
    account = order.get("account")
    more: dict[str, Any] = {}
    if account is not None:
        more = {"user": account[0], "group": account[1], "extra_groups": []}
    confined = order.get("confined")
    command = list(order["command"])
    with ExitStack() as open_files:
        files: tuple[int, ...] = ()
        secrets = _secrets(order)
        entry = None
        if confined is not None:
            entry = Entry(confined, open_files)
            options, files = handed(secrets, open_files)
            said = nameless([*options, *confined["arguments"]], open_files)
            command = [confined["with"], *entry.options, "--args", str(said), "--", *command]
            files = (*files, said, *entry.theirs)
        groups = [_joining(each, open_files) for each in order.get("groups", ())]
        noted = Noted(folder, open_files)
        child = subprocess.Popen(
            command,
            env=_variables(order, secrets) | order["environment"],
            cwd="/" if confined is not None else folder / "work",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=files,
            preexec_fn=lambda: _begin(order.get("limits", {}), groups, noted),
            **more,
        )
        if entry is not None:
            entry.let_in(child)
    return child, entry


def _secrets(order: dict[str, Any]) -> dict[str, bytes]:
    """Return the values of the work's secrets by name."""
    return {name: b64decode(value) for name, value in order.get("secrets", {}).items()}


def _variables(order: dict[str, Any], secrets: dict[str, bytes]) -> dict[str, str]:
    """Return the secrets that are variables of the work as well."""
    names = order.get("secret_variables", ())
    return {name: os.fsdecode(secrets[name]) for name in names if name in secrets}


def _joining(group: str, open_files: ExitStack) -> int:
    """Return the file by which a process joins a control group; only we may open it."""
    file = os.open(Path(group, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC)
    open_files.callback(os.close, file)
    return file


def _begin(limits: dict[str, int], groups: list[int], noted: Noted) -> None:
    """Be bound and noted, as the process that is about to be the work."""
    _limit(limits, groups)
    noted.write()


def _limit(limits: dict[str, int], groups: list[int]) -> None:
    """Bound what the process about to be the work may take; it is its user already."""
    for group in groups:
        os.write(group, b"0")
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for name, most in {**limits, "RLIMIT_CORE": 0}.items():
        number = getattr(resource, name)
        _, hard = resource.getrlimit(number)
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (value, value))


def _watch(
    folder: Path,
    child: subprocess.Popen[bytes] | Container,
    wake: int,
    kept: Kept,
    bytes_max: int,
    hidden: list[bytes],
) -> int:
    selector = selectors.DefaultSelector()
    selector.register(wake, selectors.EVENT_READ)
    for pipe, name in ((child.stdout, "stdout.log"), (child.stderr, "stderr.log")):
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
        out = Output(folder / name, bytes_max)
        to = Redacted(out, hidden) if hidden else out
        selector.register(pipe.fileno(), selectors.EVENT_READ, to)
    if isinstance(child, Container):
        selector.register(child.pidfd, selectors.EVENT_READ, child)
    code = None
    while code is None:
        kept.look()
        for key, _ in selector.select(timeout=kept.pause()):
            _drain(selector, key)
        code = _reap(child.pid)
        if isinstance(child, Container):
            code = child.code()
    if not isinstance(child, Container):
        child.returncode = code
    # What the command left behind has no command any more: it must not hold the GPU. Nor is the
    # lease over while one process is left, such as one that hangs in the driver.
    pause = 0.002
    while True:
        kept.kill()
        if kept.is_gone():
            break
        time.sleep(pause)
        pause = min(LEFT_PAUSE_SECONDS_MAX, pause * 1.5)
    for key, _ in selector.select(timeout=0):
        _drain(selector, key)
    for key in selector.get_map().values():
        if isinstance(key.data, Redacted):
            key.data.end()
    return code


def _drain(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    if isinstance(key.data, Container):
        selector.unregister(key.fd)  # it ended
        return
    for _ in range(64):
        try:
            data = os.read(key.fd, CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            selector.unregister(key.fd)
            if isinstance(key.data, Redacted):
                key.data.end()
            return
        if isinstance(key.data, Output | Redacted):
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


def _children_left() -> bool:
    _reap(0)
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def main() -> None:
    """Arguments: the descriptor on which to say that it started, and that of the lock.

    The lock is held by being open, and never handed on. The rest is read from standard input.
    """
    ready, lock = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(ready, False)
    os.set_inheritable(lock, False)
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # what it knows is for no disk
    order = json.loads(sys.stdin.buffer.read())
    keep(Path(order["folder"]), order, ready)


if __name__ == "__main__":
    main()
