"""What a door takes over from the first process of a container: its filter of system calls.

Who enters a container by its namespaces has all that holds it but this. The kernel gives out the
filter that a process has, and so the one of a shell is that of the work, and not one like it.

With the standard library alone: the door uses it as a script (see door.py).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from contextlib import suppress
from pathlib import Path

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
PTRACE_SECCOMP_GET_FILTER = 0x420C
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
WALL = 0x4000_0000
INSTRUCTION_BYTES = 8
FILTERS_MAX = 32

libc = ctypes.CDLL(None, use_errno=True)


def filters_of(pid: int) -> list[bytes]:
    """Return the filters of system calls that a process has, the oldest first.

    Raises: OSError, also where it has none.
    """
    _ptrace(PTRACE_SEIZE, pid, 0, 0)
    try:
        _ptrace(PTRACE_INTERRUPT, pid, 0, 0)
        os.waitpid(pid, WALL)
        found: list[bytes] = []
        while len(found) < FILTERS_MAX and (one := _filter_of(pid, len(found))):
            found.append(one)
    finally:
        with suppress(OSError):
            _ptrace(PTRACE_DETACH, pid, 0, 0)
    if not found:
        raise OSError(0, "its work has no filter of system calls")
    return found


class Label:
    """What the host's security module (AppArmor) holds a process to, and us from `take` on.

    Asked for while the host's /proc is in sight.
    """

    def __init__(self, pid: int) -> None:
        self._own = -1
        self._wanted = b""
        with suppress(OSError):
            self._wanted = Path(f"/proc/{pid}/attr/current").read_bytes().strip(b"\0\n")
            self._own = os.open("/proc/self/attr/current", os.O_RDWR | os.O_CLOEXEC)

    def take(self) -> None:
        """Be held to the same. Raises: OSError."""
        if self._own < 0:
            return
        if self._read() != self._wanted:
            os.write(self._own, b"changeprofile " + self._wanted.partition(b" ")[0])
        if self._read() != self._wanted:
            raise OSError(0, "what its work is held to could not be taken")
        os.close(self._own)

    def _read(self) -> bytes:
        return os.pread(self._own, 4096, 0).strip(b"\0\n")


def take(filters: list[bytes]) -> None:
    """Be held by these filters from now on, for good. Raises: OSError."""
    for each in filters:
        code = ctypes.create_string_buffer(each, len(each))
        program = struct.pack("@HP", len(each) // INSTRUCTION_BYTES, ctypes.addressof(code))
        if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0):
            raise _failed("its filter of system calls could not be taken")


def _filter_of(pid: int, number: int) -> bytes:
    """Return one of its filters; empty: it has no such one."""
    try:
        length = _ptrace(PTRACE_SECCOMP_GET_FILTER, pid, number, 0)
    except OSError as error:
        if error.errno == errno.ENOENT or (error.errno == errno.EINVAL and not number):
            return b""
        raise
    code = ctypes.create_string_buffer(length * INSTRUCTION_BYTES)
    _ptrace(PTRACE_SECCOMP_GET_FILTER, pid, number, ctypes.addressof(code))
    return code.raw


def _ptrace(request: int, pid: int, address: int, data: int) -> int:
    done = libc.ptrace(
        ctypes.c_long(request), ctypes.c_long(pid), ctypes.c_void_p(address), ctypes.c_void_p(data)
    )
    if done < 0:
        raise _failed("its filter of system calls cannot be read")
    return int(done)


def _failed(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")
