"""What the keeper does to start bwrap: its options unseen, and its network if it is to have one.

With the standard library alone: the keeper uses it as a script (see keeper.py).
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from .family import signal_all, stat_of
    from .packet_filter import owner_of, set_up
else:
    from family import signal_all, stat_of
    from packet_filter import owner_of, set_up

TRIES_MAX = 3
"""How often bwrap is started that ends before the command could begin."""
LOOPBACK = "127.0.0.1"
NETWORK_SECONDS_MAX = 5.0
READY_SECONDS_MAX = 10.0
LOOK_SECONDS = 0.01
WAITING_SECONDS = 1.0
"""How long a bwrap may take to end that seems to wait for us."""
ENDING_SECONDS_MAX = 10.0
"""How long one may that came to nothing."""


def nameless(arguments: list[str], open_files: ExitStack) -> int:
    """Return a file without a name that holds options: so they show in no command line."""
    return in_memory(b"".join(each.encode() + b"\0" for each in arguments), open_files)


def handed(
    secrets: Mapping[str, bytes], open_files: ExitStack
) -> tuple[list[str], tuple[int, ...]]:
    """Return bwrap's options that make a file of each secret, and the files they are read from.

    bwrap copies each into a file of its root, which is in memory, and closes what it read from.
    """
    options, files = ["--dir", "/run/secrets"] if secrets else [], []
    for name, value in secrets.items():
        files.append(file := in_memory(value, open_files))
        options += ["--perms", "0400", "--ro-bind-data", str(file), f"/run/secrets/{name}"]
    return options, tuple(files)


def in_memory(content: bytes, open_files: ExitStack) -> int:
    """Return a file without a name that holds this."""
    file = os.memfd_create("arguments", os.MFD_CLOEXEC)
    open_files.callback(os.close, file)
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file


class Unready(OSError):
    """bwrap ended before it could start the command."""


class Entry:
    """How work gets into its confinement: bwrap tells of its steps and waits before the last one.

    With a way out of the work's network, where it is to have one.
    """

    def __init__(self, confined: Mapping[str, Any], open_files: ExitStack) -> None:
        self._program: str | None = confined["way_out"]
        self._egress: Mapping[str, Any] = confined["egress"] or {}
        self._told, tell = os.pipe2(os.O_CLOEXEC)
        wait, self._go = os.pipe2(os.O_CLOEXEC)
        self.theirs = (tell, wait)
        for file in (tell, wait, self._go):
            open_files.callback(_close, file)
        self.options = ["--json-status-fd", str(tell), "--block-fd", str(wait)]

    def let_in(self, bwrap: subprocess.Popen[bytes]) -> None:
        """Wait until all is made, and let bwrap start the command.

        Raises: Unready: it had ended by itself, with its last words; OSError.
        """
        for file in self.theirs:
            _close(file)  # so that its end shows
        first = None
        try:
            first = int(json.loads(_heard(self._told, b"}"))["child-pid"])
            if self._program is not None:
                self._connect(self._program, first)
            os.write(self._go, b"1")
            self._see_it_go()
        except (OSError, ValueError, KeyError):
            _close(self._told)
            raise _why_not(bwrap, first) from None

    def never_began(self, errors: Path) -> str:
        """Return why bwrap, which has ended, did not start the command; empty: it did.

        errors: where its last words are. A command that cannot be started ended by itself.
        """
        os.set_blocking(self._told, False)
        try:
            told = os.read(self._told, 4096)
        except BlockingIOError:
            told = b""
        if b'"exit-code"' in told:
            return ""
        said = _last_line(errors.read_bytes())
        return "" if said.startswith("bwrap: execvp ") else said or "bubblewrap ended by itself"

    def _connect(self, program: str, first: int) -> None:
        """Lend the namespace of bwrap's first process a way out. Raises: OSError."""
        # bwrap gives up when the loopback is up already, to which slirp4netns sees as well.
        until = time.monotonic() + NETWORK_SECONDS_MAX
        while LOOPBACK not in Path(f"/proc/{first}/net/fib_trie").read_text():
            if time.monotonic() > until:
                raise TimeoutError
            time.sleep(LOOK_SECONDS)
        set_up(first, self._egress)
        read, write = os.pipe2(os.O_CLOEXEC)
        options = ["--configure", "--mtu=65520", "--disable-host-loopback"]
        where = ["--netns-type=path", f"/proc/{first}/ns/net", "tap0"]
        files = [write]
        if os.geteuid():
            # It cannot become root of a user namespace that has none, as its sandbox would.
            network = os.open(f"/proc/{first}/ns/net", os.O_RDONLY)
            files.append(owner_of(network))
            os.close(network)
            options += ["--enable-seccomp", f"--userns-path=/proc/self/fd/{files[-1]}"]
        else:
            options.append("--enable-sandbox")
        subprocess.Popen(
            [program, *options, f"--ready-fd={write}", *where],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=files,
            start_new_session=True,
        ).returncode = 0  # it ends with the work, and is collected with it
        for file in files:
            os.close(file)
        try:
            _heard(read, b"1")
        finally:
            os.close(read)

    def _see_it_go(self) -> None:
        """Wait until bwrap took the word to go on, which is when all is made. Raises: OSError."""
        poll = select.poll()
        poll.register(self._go, 0)
        until = time.monotonic() + READY_SECONDS_MAX
        while True:
            nobody_waits = bool(poll.poll(LOOK_SECONDS * 1000))
            left = int.from_bytes(fcntl.ioctl(self._go, termios.FIONREAD, bytes(4)), sys.byteorder)
            if not left:
                return
            if nobody_waits or time.monotonic() > until:
                raise OSError(0, "it was not taken")


def _why_not(bwrap: subprocess.Popen[bytes], first: int | None) -> OSError:
    """End bwrap; return what it said where it had ended by itself."""
    waits = first is not None and (stat := stat_of(first)) is not None and stat.state not in "ZX"
    try:
        bwrap.wait(WAITING_SECONDS if waits else ENDING_SECONDS_MAX)
        ended = True
    except subprocess.TimeoutExpired:
        ended = False
    bwrap.kill()
    if waits and stat is not None:
        signal_all([stat], signal.SIGKILL)  # it waits for a word, with the pipe of errors open
    said = _last_line(bwrap.communicate()[1])
    if not ended:
        return OSError(0, "its confinement or its network could not be made")
    return Unready(0, said or f"bubblewrap ended by itself, with {bwrap.returncode}")


def _last_line(said: bytes) -> str:
    return "".join(said.decode(errors="replace").strip().splitlines()[-1:])[:300]


def _close(file: int) -> None:
    with suppress(OSError):
        os.close(file)


def _heard(file: int, last: bytes) -> bytes:
    """Read up to the last byte expected. Raises: TimeoutError, EOFError as OSError."""
    heard = b""
    while not heard.rstrip().endswith(last):
        if not select.select([file], [], [], NETWORK_SECONDS_MAX)[0]:
            raise TimeoutError
        if not (more := os.read(file, 4096)):
            raise OSError(0, "it ended")
        heard += more
    return heard
