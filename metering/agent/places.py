"""Files below a folder that somebody else can write to: opened name by name, never by a link.

A path is looked up by the kernel through whatever links lie there at that moment. So each folder
on the way is opened by itself, without following, and what is in it is asked of what was opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def folder_at(root: int, names: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """Open the folder below `root`; make: with what is not there.

    Raises: OSError, also for a link on the way.
    """
    here = os.dup(root)
    try:
        for name in names:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=here)
            inner = os.open(name, FOLDER, dir_fd=here)
            os.close(here)
            here = inner
        yield here
    finally:
        os.close(here)


def read_at(root: int, names: Sequence[str], since: int, length: int) -> bytes:
    """Read so many bytes of a file; fewer where it has no more.

    Raises: OSError, also for what is no file.
    """
    with folder_at(root, names[:-1]) as folder:
        file = os.open(names[-1], FILE, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise FileNotFoundError(names[-1])
            found = []
            while length > 0 and (data := os.pread(file, length, since)):
                found.append(data)
                since, length = since + len(data), length - len(data)
            return b"".join(found)
        finally:
            os.close(file)


def give_to(root: Path, uid: int, gid: int) -> None:
    """Make an account the owner of a folder and of all in it, through no link."""
    handle = os.open(root, FOLDER)
    try:
        _give(handle, uid, gid)
    finally:
        os.close(handle)


def _give(folder: int, uid: int, gid: int) -> None:
    os.fchown(folder, uid, gid)
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if not is_folder:
            os.chown(name, uid, gid, dir_fd=folder, follow_symlinks=False)
            continue
        inner = os.open(name, FOLDER, dir_fd=folder)
        try:
            _give(inner, uid, gid)
        finally:
            os.close(inner)
