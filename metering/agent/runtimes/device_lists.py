"""What device files a lease may open, by the control group of its work: its cards' and few more.

Control groups v1 take a list. Those of v2 take a program of the kernel (BPF), which is put together
here, since nothing on a host of GPUs is sure to have a compiler. A list holds whatever the rights
of a device file are, and whether or not the work sees it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import stat
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

GPU_FOLDER = Path("/proc/driver/nvidia/gpus")
NUMBERS = Path("/proc/devices")
DEV = Path("/dev")
SHARED_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps")
"""What work on any card opens; the last is a folder, of the instances of cards."""
NVIDIA = 195
"""The major number of cards, since ever: Linux, Documentation/admin-guide/devices.txt."""
NVIDIACTL, NVIDIA_MODESET = 255, 254
MAJORS_BY_NAME = ("nvidia-uvm", "nvidia-caps")
"""Numbers that the kernel gives out anew at each start, by the names in /proc/devices."""

SYSCALL = {"x86_64": 321, "aarch64": 280}
BPF_PROG_LOAD, BPF_PROG_ATTACH = 5, 8
BPF_PROG_TYPE_CGROUP_DEVICE, BPF_CGROUP_DEVICE, BPF_F_ALLOW_MULTI = 15, 6, 2
CHARACTER = 2
LOG_BYTES = 65_536
BASIC_BYTES = 128


class Device(NamedTuple):
    """Character devices by their numbers; minor None: all of a major."""

    major: int
    minor: int | None = None

    @property
    def rule(self) -> str:
        """Return it as control groups v1 write it."""
        return f"c {self.major}:{'*' if self.minor is None else self.minor} rwm"


EVERYBODY = (
    Device(1, 3), Device(1, 5), Device(1, 7), Device(1, 8), Device(1, 9),
    Device(5, 0), Device(5, 2), Device(136),
)  # fmt: skip
"""null, zero, full, random, urandom, tty, ptmx and pts: what every container has."""


def files_of(uuids: Iterable[str]) -> list[str] | None:
    """Return the device files of GPUs by what the driver says; None: it does not know one."""
    minors: dict[str, str] = {}
    for about in GPU_FOLDER.glob("*/information"):
        lines = [line.partition(":") for line in about.read_text().splitlines()]
        said = {name.strip(): value.strip() for name, _, value in lines}
        minors[said.get("GPU UUID", "")] = said.get("Device Minor", "")
    found = [minors.get(uuid, "") for uuid in uuids]
    return [f"nvidia{minor}" for minor in found] if all(found) else None


def devices_of(cards: Iterable[str]) -> tuple[Device, ...]:
    """Return what the work of a lease on these cards may open.

    Where the driver does not say which file is whose, that is every card.
    """
    names = files_of(cards)
    if names is None:
        own = [Device(NVIDIA)]
    else:
        own = [Device(NVIDIA, int(name.removeprefix("nvidia"))) for name in names]
        own += [Device(NVIDIA, NVIDIACTL), Device(NVIDIA, NVIDIA_MODESET)]
        own += _there([*names, *SHARED_DEVICES])
    return tuple(dict.fromkeys([*EVERYBODY, *own, *_numbered()]))


def limit(groups: Iterable[Path], allowed: Sequence[Device]) -> str:
    """Let what is in these groups open nothing but these devices.

    Return what holds it; empty: no group of theirs can. Raises: OSError where one should.
    """
    groups = list(groups)
    for group in groups:
        if (group / "devices.deny").exists():
            _list(group, allowed)
            return "control groups v1"
    for group in groups:
        if (group / "cgroup.controllers").exists():
            _attach(group, _program(allowed))
            return "control groups v2"
    return ""


def _there(names: Iterable[str]) -> list[Device]:
    """Return the numbers of those device files that are there."""
    found = []
    for name in names:
        try:
            about = (DEV / name).stat()
        except OSError:
            continue
        if stat.S_ISCHR(about.st_mode):
            found.append(Device(os.major(about.st_rdev), os.minor(about.st_rdev)))
    return found


def _numbered() -> list[Device]:
    """Return the devices whose numbers only the kernel knows."""
    rows = [line.split() for line in NUMBERS.read_text().splitlines()]
    return [Device(int(row[0])) for row in rows if len(row) == 2 and row[1] in MAJORS_BY_NAME]


def _list(group: Path, allowed: Sequence[Device]) -> None:
    (group / "devices.deny").write_text("a")
    for each in allowed:
        (group / "devices.allow").write_text(each.rule)
    said = (group / "devices.list").read_text().splitlines()
    if sorted(said) != sorted(each.rule for each in allowed):
        raise OSError(0, f"{group} lists other devices than it was told")


def _program(allowed: Iterable[Device]) -> bytes:
    """Return the program that is asked at each opening, in instructions of 8 bytes.

    It gets what is opened as three numbers: its kind below the 16 bits of the way of access, major
    and minor. It answers 1 or 0.
    """
    kind, major, minor = 2, 4, 5  # registers
    code = [
        _does(0x61, to=kind, by=1, offset=0),  # load
        _does(0x57, to=kind, value=0xFFFF),  # and
        _does(0x61, to=major, by=1, offset=4),
        _does(0x61, to=minor, by=1, offset=8),
    ]
    yes = [_does(0xB7, to=0, value=1), _does(0x95)]  # set the answer, return
    for each in allowed:
        wanted = [(kind, CHARACTER), (major, each.major)]
        wanted += [] if each.minor is None else [(minor, each.minor)]
        for place, (register, value) in enumerate(wanted):
            past = len(wanted) - place - 1 + len(yes)
            code.append(_does(0x55, to=register, offset=past, value=value))  # jump unless equal
        code += yes
    return b"".join([*code, _does(0xB7, to=0, value=0), _does(0x95)])


def _does(what: int, *, to: int = 0, by: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("<BBhi", what, by << 4 | to, offset, value)


def _attach(group: Path, code: bytes) -> None:
    """Let the kernel check a program and ask it for a group, until that is removed."""
    held = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"GPL")
    told = ctypes.create_string_buffer(LOG_BYTES)
    at = ctypes.addressof
    program = _bpf(
        BPF_PROG_LOAD,
        struct.pack(
            "<IIQQIIQ",
            *(BPF_PROG_TYPE_CGROUP_DEVICE, len(code) // 8, at(held), at(licence)),
            *(1, LOG_BYTES, at(told)),
        ),
    )
    try:
        folder = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            attached = struct.pack("<IIII", folder, program, BPF_CGROUP_DEVICE, BPF_F_ALLOW_MULTI)
            _bpf(BPF_PROG_ATTACH, attached)
        finally:
            os.close(folder)
    finally:
        os.close(program)


def _bpf(command: int, attributes: bytes) -> int:
    number = SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(0, f"no device lists on {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    block = ctypes.create_string_buffer(attributes, max(len(attributes), BASIC_BYTES))
    answer = int(libc.syscall(number, command, block, len(block)))
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer
