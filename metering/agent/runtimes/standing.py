"""What the keeper does to a container that stands before its first instruction.

Secrets are written into memory of the container's own, past podman, which keeps what it is told on
disk and shows it to who asks: so none of them is in its store, its answers or a command line.
What work wants as a variable its shell reads from there just before it becomes the command.

podman's filter of system calls lets work make user namespaces, in which it would reach far more of
the kernel: their number is set to none.

With the standard library alone: the keeper uses it as a script (see keeper.py).
"""

from __future__ import annotations

import ctypes
import os
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

FOLDER = "/run/secrets"
NAMESPACES = Path("/proc/sys/user/max_user_namespaces")
CLONE_NEWNS, CLONE_NEWUSER = 0x2_0000, 0x1000_0000
READ_ONLY = 1 | 2 | 4 | 8 | 32 | 4096
"""MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT and MS_BIND."""
FAILED = 255

AS_VARIABLES = f"""\
for _offpeak_name in {{}}; do
  _offpeak_value=
  while IFS= read -r _offpeak_line; do _offpeak_value=$_offpeak_value$_offpeak_line"
"; done <{FOLDER}/$_offpeak_name
  export "$_offpeak_name=$_offpeak_value$_offpeak_line"
done
unset _offpeak_name _offpeak_value _offpeak_line
exec "$@"
"""
"""With what every shell has built in: an image may have no other program."""


def with_variables(command: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the command that makes variables of secrets and then becomes the command given."""
    if not names:
        return list(command)
    return ["/bin/sh", "-c", AS_VARIABLES.format(" ".join(names)), "sh", *command]


def deliver(pid: int, secrets: Mapping[str, str], ids: int) -> None:
    """Write secrets where the work of a container finds them, and let nobody change them.

    pid: its first process. secrets: in base 64 by name. ids: the first of its user ids.
    Raises: OSError.
    """
    if not secrets:
        return
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    group = int(next(line for line in lines if line.startswith("Gid:")).split()[1])
    values = {name: b64decode(value) for name, value in secrets.items()}
    why = _within(pid, "mnt", CLONE_NEWNS, lambda: _write(values, ids, group))
    if why:
        raise OSError(0, f"its secrets could not be handed in: {why}")


def forbid_namespaces(pid: int) -> None:
    """Let nobody make a user namespace in that of a process. Raises: OSError."""
    if why := _within(pid, "user", CLONE_NEWUSER, _forbid):
        raise OSError(0, f"it could make user namespaces: {why}")


def _within(pid: int, namespace: str, kind: int, act: Callable[[], None]) -> str:
    """Do something in a namespace of a process; return why that failed, or nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{pid}/ns/{namespace}", "rb") as entered:
        child = os.fork()
        if child == 0:
            status = FAILED
            try:
                if libc.setns(entered.fileno(), kind):
                    raise OSError(ctypes.get_errno(), "setns")
                act()
                status = 0
            except OSError as error:
                status = error.errno or FAILED
            finally:
                os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 0:
        return ""
    return os.strerror(status) if 0 < status < FAILED else "it failed"


def _forbid() -> None:
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    NAMESPACES.write_text("0")
    if NAMESPACES.read_text().strip() != "0":
        raise OSError(FAILED, "not taken")


def _write(secrets: Mapping[str, bytes], ids: int, group: int) -> None:
    if os.stat(FOLDER).st_dev == os.stat("/run").st_dev:
        raise OSError(FAILED, "no memory of its own")
    os.umask(0)
    # As the container's root: its memory knows no others.
    os.setegid(group)
    os.seteuid(ids)
    for name, value in secrets.items():
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(f"{FOLDER}/{name}", flags, 0o440), "wb") as file:
            file.write(value)
    os.seteuid(0)
    os.setegid(0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", FOLDER.encode(), None, READ_ONLY, None):
        raise OSError(ctypes.get_errno(), "mount")
