"""Records for which there is room: it is taken before, as the disk may be full when they come.

With the standard library alone: the keeper uses it as a script (see keeper.py).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

RECORD_BYTES = 4096


def reserve(*paths: Path) -> None:
    """Take the room for the records that are to come. Raises: OSError where there is none."""
    for path in paths:
        with _new(path).open("wb") as reserved:
            os.posix_fallocate(reserved.fileno(), 0, RECORD_BYTES)


def put(path: Path, record: dict[str, Any]) -> None:
    """Write a record into its room and on to the disk; it is there whole or not at all."""
    with _new(path).open("r+b") as reserved:
        reserved.write(json.dumps(record).encode().ljust(RECORD_BYTES))
        reserved.flush()
        os.fsync(reserved.fileno())
    os.replace(_new(path), path)


def _new(path: Path) -> Path:
    return path.with_name(path.name + ".new")
