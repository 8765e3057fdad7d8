"""What the keeper does to start work in a container, and to learn how it ended.

The container is made and stands still before its first instruction: its limits are read back from
its control groups and from the kernel's record of its first process, and only then it is let go.
It writes to the keeper's pipes itself, as a process does: podman keeps no output.

With the standard library alone: the keeper uses it as a script (see keeper.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING or __package__:
    from .family import Stat, descendants, stat_of
    from .packet_filter import set_up
    from .reading_back import check
    from .standing import deliver, forbid_namespaces
else:
    from family import Stat, descendants, stat_of
    from packet_filter import set_up
    from reading_back import check
    from standing import deliver, forbid_namespaces

STEP_SECONDS_MAX = 120.0
"""podman on a host whose disk is busy; without an answer until then the start has failed."""
TIDY_SECONDS_MAX = 10.0
"""Left to podman to tidy up by itself after the work, before it is killed."""
COMMAND_SECONDS_MAX = 5.0
SIGNALLED = 128
STATE = "{{.State.Status}} {{.State.ExitCode}}"
REASON_CHARS_MAX = 300


class Container:
    """A container as the keeper sees it: its first process, its pipes, its end.

    Its first process is podman's init (catatonit), which hands on the end of the command; with it
    every process of the container ends, in one step of the kernel.
    """

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._order = order
        self._about: dict[str, Any] = order["contained"]
        self._name: str = self._about["name"]
        self._pid_file = Path(self._about["pid_file"])
        self._ended_at: float | None = None
        self.ended_ns: int | None = None
        self.stdout, out = _pipe()
        self.stderr, err = _pipe()
        self._ends = (out, err)
        self.pid, self.pidfd = 0, -1
        self._ticks = 0
        try:
            self._begin()
        except BaseException:
            self.remove()
            raise

    def _begin(self) -> None:
        variables = "".join(f"{k}={v}\n" for k, v in self._order["environment"].items())
        self._podman(["create", *self._about["create"]], variables=variables.encode())
        out, err = self._ends
        for end in self._ends:
            # So that the work can open /dev/stdout anew, as many programs do.
            os.fchown(end, -1, self._about["ids"])
            os.fchmod(end, 0o620)
        self._podman(["init", self._name], stdout=out, stderr=err)
        self.pid = int(self._pid_file.read_text())
        stat = stat_of(self.pid)
        if stat is None:
            _refuse("the container ended before it began")
        self._ticks, self.pidfd = stat.ticks, os.pidfd_open(self.pid)
        check(self.pid, self._about["bounds"], self._about["ids"])
        _find_program(self.pid, self._order["command"][0], self._about["path"])
        if self._order.get("secret_variables"):
            _find_shell(self.pid)
        forbid_namespaces(self.pid)
        if egress := self._about.get("egress"):
            set_up(self.pid, egress)
        deliver(self.pid, self._order.get("secrets", {}), self._about["ids"])
        for end in self._ends:
            os.close(end)
        for pipe in (self.stdout, self.stderr):
            _empty(pipe)  # podman's own words: the work has said nothing yet

    def let_go(self) -> None:
        """Let its first instruction come, and wait for the command. Raises: OSError."""
        try:
            self._podman(["start", self._name])
            # A signal that came before the command would reach nobody.
            until = time.monotonic() + COMMAND_SECONDS_MAX
            while self.first() and not descendants(self.pid) and time.monotonic() < until:
                time.sleep(0.005)
        except BaseException:
            self.remove()
            raise

    def first(self) -> Stat | None:
        """Return its first process; None when it is gone, and all others with it."""
        stat = stat_of(self.pid)
        gone = stat is None or stat.ticks != self._ticks or stat.state in "ZX"
        return None if gone else stat

    def code(self) -> int | None:
        """Return the exit code of its command; None while it runs, or podman tidies up after it.

        Negative for a signal.
        """
        if self.first() is not None:
            return None
        if self._ended_at is None:
            self._ended_at = time.monotonic()
            self.ended_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if _children_left() and time.monotonic() < self._ended_at + TIDY_SECONDS_MAX:
            return None
        try:
            ended, _, said = self._podman(["inspect", "--format", STATE, self._name]).partition(" ")
            code = int(said) if ended == "exited" else SIGNALLED + signal.SIGKILL
        except (OSError, ValueError):
            return -signal.SIGKILL  # podman was killed before it could learn of the end
        return SIGNALLED - code if SIGNALLED < code <= SIGNALLED + signal.NSIG else code

    def remove(self) -> None:
        """Remove what podman keeps of it, and what lives of it."""
        with suppress(OSError):
            self._podman(["rm", "--force", "--ignore", "--time", "0", self._name])
        for file in (self._pid_file, Path(f"{self._pid_file}.conmon")):
            file.unlink(missing_ok=True)

    def _podman(
        self,
        arguments: list[str],
        *,
        variables: bytes | None = None,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> str:
        """Call podman; return what it said. variables: read by it from a file without a name.

        Raises: OSError with its last line.
        """
        file = -1
        verb, *options = arguments
        if variables is not None:
            file = os.memfd_create("variables", os.MFD_CLOEXEC)
            os.write(file, variables)
            os.lseek(file, 0, os.SEEK_SET)
            options = ["--env-file", f"/dev/fd/{file}", *options]
        try:
            done = subprocess.run(
                [*self._about["podman"], verb, *options],
                env=self._about["variables"],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                timeout=STEP_SECONDS_MAX,
                cwd="/",
                check=False,
                pass_fds=() if file < 0 else (file,),
            )
        except subprocess.SubprocessError:
            _refuse(f"podman {verb} did not answer")
        finally:
            if file >= 0:
                os.close(file)
        if done.returncode:
            said = done.stderr or _empty(self.stderr)
            _refuse(reason_of(said, f"podman {verb} failed"))
        return (done.stdout or b"").decode(errors="replace").strip()


def reason_of(said: bytes, otherwise: str) -> str:
    """Return the last line that podman said, without its own decoration."""
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("Error: ")[-REASON_CHARS_MAX:] if lines else otherwise


def _find_program(pid: int, program: str, folders: str) -> None:
    """Look for the command in the container's own system, where a wrong name can still be told.

    Raises: FileNotFoundError.
    """
    if "/" in program:
        tried = [os.path.join("/lease/work", program)]
    else:
        tried = [os.path.join(folder, program) for folder in folders.split(":") if folder]
    if not _within(pid, lambda: any(os.path.exists(path) for path in tried)):
        raise FileNotFoundError(2, "No such file or directory in its image")


def _find_shell(pid: int) -> None:
    if not _within(pid, lambda: os.path.exists("/bin/sh")):
        _refuse("its image has no /bin/sh, which makes variables of secrets: read them as files")


def _within(pid: int, ask: Callable[[], bool]) -> bool:
    """Ask something of the container's files, links in it not leading out of it."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            os.chroot(f"/proc/{pid}/root")
            os.chdir("/")
            status = int(not ask())
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def _children_left() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _pipe() -> tuple[FileIO, int]:
    read, write = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(read, False)
    return FileIO(read, "rb"), write


def _empty(pipe: FileIO) -> bytes:
    said = b""
    while data := pipe.read(65_536):
        said += data
    return said


def _refuse(reason: str) -> NoReturn:
    raise OSError(0, reason)
