"""One control daemon of MPS: started, asked and ended by NVIDIA's own program.

Which processes are its own is asked of the kernel: they run as the agent's user and were started
with its pipe directory. The file in which it leaves its process id can be written by all.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...shares import DAEMONS
from ..family import Stat, signal_all, stat_of
from .limits import CardLimits, holds

PROGRAM = "nvidia-cuda-mps-control"
FOREGROUND, MULTIUSER = "-f", "-multiuser-server"
ANSWER_SECONDS_MAX = 5.0
START_SECONDS_MAX = 10.0
QUIT_SECONDS_MAX = 5.0
PAUSE_SECONDS = 0.05
PATH_BYTES_MAX = 107
"""Of the name of a socket: Linux, unix(7)."""
LOG_BYTES_MAX = 8 * 1024 * 1024
SOCKET = "control_privileged"
"""By which limits are set. Clients of MPS use the one beside it, called `control`."""
OTHERS_WRITE = 0o022


class ControlFailed(Exception):
    """The daemon does not do what it is asked; the text says what."""


@dataclass(frozen=True, slots=True)
class Control:
    """The daemon of a card whose files are in `folder`. program: NVIDIA's."""

    program: str
    folder: Path
    card: str

    @property
    def pipe(self) -> Path:
        """Return the directory of its pipes."""
        return self.folder / "pipe"

    def daemon(self) -> Stat | None:
        """Return the daemon, if it lives."""
        return next((each for each in self.members() if _serves(each.pid)), None)

    def members(self) -> list[Stat]:
        """Return the processes of the daemon: itself and its servers."""
        mark = b"CUDA_MPS_PIPE_DIRECTORY=" + os.fsencode(self.pipe)
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                known = stat_of(int(entry))
                if known is None or known.state in "ZX" or not known.name.startswith(DAEMONS):
                    continue
                if _user_of(entry) != os.geteuid():
                    continue  # work can give itself any name and environment, not our user
                if mark in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found.append(known)
        return found

    def start(self) -> int:
        """Start the daemon and wait until it can be asked; return its process, a child of ours.

        Raises: ControlFailed, OSError.
        """
        if len(os.fsencode(self.pipe / SOCKET)) > PATH_BYTES_MAX:
            raise ControlFailed(f"{self.pipe} is too long a name for its sockets")
        for each, mode in ((self.folder, 0o711), (self.pipe, 0o755), (self._logs, 0o700)):
            each.mkdir(exist_ok=True)
            each.chmod(mode)
        for left in self.pipe.iterdir():
            left.unlink()
        with open(self._logs / "start.log", "wb") as log:
            # In the foreground of a session of its own: it stays when the agent goes.
            process = subprocess.Popen(
                [self.program, FOREGROUND, MULTIUSER],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment() | {"CUDA_VISIBLE_DEVICES": self.card},
                cwd="/",
                start_new_session=True,
            )
        try:
            self._await(process)
        except ControlFailed:
            process.kill()
            process.wait()
            raise
        process.returncode = 0  # it outlives this object
        return process.pid

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + START_SECONDS_MAX
        while True:
            if process.poll() is not None:
                raise ControlFailed(f"{PROGRAM} ended: {self._last_words() or process.returncode}")
            try:
                if (self.pipe / SOCKET).exists():
                    self.ask("get_server_list")
                    return
            except ControlFailed:
                if time.monotonic() > until:
                    raise
            if time.monotonic() > until:
                raise ControlFailed(
                    f"{PROGRAM} made no {SOCKET} in {START_SECONDS_MAX:g} s: without it work could"
                    " set its own limits"
                )
            time.sleep(PAUSE_SECONDS)

    def ask(self, command: str) -> str:
        """Return the daemon's answer to one command. Raises: ControlFailed."""
        try:
            answer = subprocess.run(
                [self.program],
                input=command.encode() + b"\n",
                capture_output=True,
                env=self._environment(),
                timeout=ANSWER_SECONDS_MAX,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ControlFailed(f"{PROGRAM}: {command}: {error}") from error
        text = answer.stdout.decode(errors="replace").strip()
        if answer.returncode:
            said = (answer.stderr.decode(errors="replace").strip() or text)[:300]
            raise ControlFailed(f"{PROGRAM}: {command}: {said or answer.returncode}")
        return text

    def limit(self, limits: CardLimits) -> None:
        """Set the limits of all work from now on, and read them back. Raises: ControlFailed."""
        memory = f"{limits.memory_mib}M"
        self.ask(f"set_default_active_thread_percentage {limits.compute_percent}")
        self.ask(f"set_default_device_pinned_mem_limit {self.card} {memory}")
        self._check("default_", limits, "")
        for server in filter(str.isdigit, self.ask("get_server_list").split()):
            # A server that runs keeps what it was started with.
            self.ask(f"set_active_thread_percentage {server} {limits.compute_percent}")
            self.ask(f"set_device_pinned_mem_limit {server} {self.card} {memory}")
            self._check("", limits, f" {server}")

    def close(self) -> None:
        """Let nobody but the agent's user set limits. Raises: ControlFailed, where others can."""
        self.pipe.chmod(0o755)
        socket = (self.pipe / SOCKET).stat()
        for what, about in ((SOCKET, socket), ("pipe directory", self.pipe.stat())):
            if about.st_uid != os.geteuid() or about.st_mode & OTHERS_WRITE:
                raise ControlFailed(f"work could set its own limits: its {what} is open to it")
        if not stat.S_ISSOCK(socket.st_mode):
            raise ControlFailed(f"{SOCKET} is no socket")

    def end(self) -> None:
        """End the daemon and its servers, and wait for it."""
        if self.members():
            with suppress(ControlFailed):
                self.ask("quit")
        until = time.monotonic() + QUIT_SECONDS_MAX
        while self.members() and time.monotonic() < until:
            time.sleep(PAUSE_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kill what is left of the daemon and its servers."""
        while left := self.members():
            signal_all(left, signal.SIGKILL)
            time.sleep(PAUSE_SECONDS)

    def shorten_logs(self) -> None:
        """Empty logs that grew: every connection of work is a line of them."""
        with suppress(OSError):
            for each in self._logs.iterdir():
                if each.stat().st_size > LOG_BYTES_MAX:
                    os.truncate(each, 0)

    @property
    def _logs(self) -> Path:
        return self.folder / "log"

    def _check(self, kind: str, limits: CardLimits, server: str) -> None:
        percent = self.ask(f"get_{kind}active_thread_percentage{server}")
        memory = self.ask(f"get_{kind}device_pinned_mem_limit{server} {self.card}")
        if not holds(limits, percent=percent, memory=memory):
            raise ControlFailed(
                f"{PROGRAM} was told {limits.compute_percent} % and {limits.memory_mib} MiB, and"
                f" says {percent[:80]!r} and {memory[:80]!r}"
            )

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self._logs),
        }

    def _last_words(self) -> str:
        with suppress(OSError):
            return (self._logs / "start.log").read_text(errors="replace").strip()[-300:]
        return ""


def _serves(pid: int) -> bool:
    """Tell if a process is a daemon: its servers, and who asks it something, have its name too."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return FOREGROUND.encode() in words and any(
            os.path.basename(word) == PROGRAM.encode() for word in words
        )
    return False


def _user_of(pid: str) -> int:
    """Return the user of a process by the kernel's record: whose its folder is can be another."""
    lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    return next(int(line.split()[2]) for line in lines if line.startswith("Uid:"))
