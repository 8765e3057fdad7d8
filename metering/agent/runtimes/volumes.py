"""Volumes in the place where work starts: moved there before it does, part of what it may fill."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from ..files.manifest import FolderWrong, need_path
from ..places import FOLDER, folder_at
from .port import Mounted

TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.ELOOP)


def lay(work: Path, volumes: Sequence[Mounted]) -> None:
    """Move the files of each volume to its path below `work`; not through a link of the inputs.

    Raises: OSError, also where something of the inputs lies there.
    """
    if not volumes:
        return
    work.mkdir(mode=0o700, exist_ok=True)
    root = os.open(work, FOLDER)
    try:
        for each in volumes:
            try:
                *above, name = need_path(each.path)
                with folder_at(root, above, make=True) as inner:
                    os.rename(each.folder, name, dst_dir_fd=inner)
                    os.chmod(name, 0o755, dir_fd=inner)
            except FolderWrong as wrong:
                raise OSError(0, str(wrong)) from wrong
            except OSError as error:
                why = f"volume at {each.path}: {error.strerror}"
                if error.errno in TAKEN:
                    why = f"its inputs have something at {each.path}, where a volume goes"
                raise OSError(0, why) from error
    finally:
        os.close(root)
