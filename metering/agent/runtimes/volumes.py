"""Volumes in the place where work starts: there before it does, part of what it may fill."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ..places import FOLDER, folder_at
from .port import Mounted

TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.ELOOP)


def lay(
    work: Path, volumes: Sequence[Mounted], copy: Callable[[Path, int], None] | None = None
) -> None:
    """Move the files of each volume to its path below `work`; not through a link of the inputs.

    copy: brings them into an open folder instead, from where they stay.
    Raises: OSError, also where something of the inputs lies there.
    """
    if not volumes:
        return
    work.mkdir(mode=0o700, exist_ok=True)
    root = os.open(work, FOLDER)
    try:
        for each in volumes:
            *above, name = each.names
            try:
                with folder_at(root, above, make=True) as inner:
                    if copy is None:
                        os.rename(each.folder, name, dst_dir_fd=inner)
                    else:
                        _copied(each.folder, name, inner, copy)
                    os.chmod(name, 0o755, dir_fd=inner)
            except OSError as error:
                path = "/".join(each.names)
                why = f"volume at {path}: {error.strerror}"
                if error.errno in TAKEN:
                    why = f"its inputs have something at {path}, where a volume goes"
                raise OSError(0, why) from error
    finally:
        os.close(root)


def _copied(source: Path, name: str, inner: int, copy: Callable[[Path, int], None]) -> None:
    os.mkdir(name, dir_fd=inner)
    target = os.open(name, FOLDER, dir_fd=inner)
    try:
        copy(source, target)
    finally:
        os.close(target)
