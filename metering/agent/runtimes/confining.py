"""What the keeper does to start bwrap: its options unseen, and its network if it is to have one.

With the standard library alone: the keeper uses it as a script (see keeper.py).
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from .packet_filter import set_up
else:
    from packet_filter import set_up

NETWORK_SECONDS_MAX = 5.0


def nameless(arguments: list[str], open_files: ExitStack) -> int:
    """Return a file without a name that holds options: so they show in no command line."""
    return _in_memory(b"".join(each.encode() + b"\0" for each in arguments), open_files)


def handed(
    secrets: Mapping[str, bytes], open_files: ExitStack
) -> tuple[list[str], tuple[int, ...]]:
    """Return bwrap's options that make a file of each secret, and the files they are read from.

    bwrap copies each into a file of its root, which is in memory, and closes what it read from.
    """
    options, files = ["--dir", "/run/secrets"] if secrets else [], []
    for name, value in secrets.items():
        files.append(file := _in_memory(value, open_files))
        options += ["--perms", "0400", "--ro-bind-data", str(file), f"/run/secrets/{name}"]
    return options, tuple(files)


def _in_memory(content: bytes, open_files: ExitStack) -> int:
    file = os.memfd_create("arguments", os.MFD_CLOEXEC)
    open_files.callback(os.close, file)
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file


class Network:
    """A way out of the network namespace of confined work, which waits until it is there."""

    def __init__(self, program: str, egress: Mapping[str, Any], open_files: ExitStack) -> None:
        self._program = program
        self._egress = egress
        self._told, tell = os.pipe2(os.O_CLOEXEC)
        wait, self._go = os.pipe2(os.O_CLOEXEC)
        self.theirs = (tell, wait)
        for file in (self._told, tell, wait, self._go):
            open_files.callback(os.close, file)
        self.options = ["--info-fd", str(tell), "--block-fd", str(wait)]

    def connect(self) -> None:
        """Lend the namespace a way out, and let the work begin.

        Raises: OSError, ValueError, KeyError.
        """
        pid = json.loads(_heard(self._told, b"}"))["child-pid"]
        set_up(int(pid), self._egress)
        read, write = os.pipe2(os.O_CLOEXEC)
        options = ["--configure", "--mtu=65520", "--disable-host-loopback", "--enable-sandbox"]
        where = ["--netns-type=path", f"/proc/{int(pid)}/ns/net", "tap0"]
        subprocess.Popen(
            [self._program, *options, f"--ready-fd={write}", *where],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(write,),
            start_new_session=True,
        ).returncode = 0  # it ends with the work, and is collected with it
        os.close(write)
        try:
            _heard(read, b"1")
        finally:
            os.close(read)
        os.write(self._go, b"1")


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
