"""The keys that wrap values of work's secrets: given, or made once and kept in the data directory.

They are apart from the key that signs sessions: that one is changed at will, and these hold what
cannot be made again. The first wraps; those after it only open what has not been wrapped anew.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from config.database.private import private_folder
from config.env import Env
from config.security.secrets import made_once

NAME = "work_secret_keys"
"""The file: a key on each line."""


def work_keys(env: Env, home: Path) -> Callable[[], Sequence[bytes]]:
    """Return what gives the keys as they are now, the one to wrap with first."""
    if env.work_secret_key:
        given = [key.encode() for key in (env.work_secret_key, env.old_work_secret_key) if key]
        return lambda: given
    return _Kept(home / NAME).keys


def add_key(home: Path) -> None:
    """Put a new key before those that the data directory keeps."""
    _write(home, [secrets.token_urlsafe(48).encode(), *_Kept(home / NAME).keys()])


def drop_old_keys(home: Path) -> None:
    """Keep the first key alone: what others wrapped opens no more."""
    _write(home, _Kept(home / NAME).keys()[:1])


class _Kept:
    """A file of keys, read when it is another than before: it is replaced whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: tuple[tuple[int, int, int], list[bytes]] | None = None

    def keys(self) -> list[bytes]:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            made_once(self._path)
            found = self._path.stat()
        now = (found.st_ino, found.st_mtime_ns, found.st_size)
        if self._known is None or self._known[0] != now:
            self._known = now, self._path.read_bytes().split()
        return self._known[1]


def _write(home: Path, keys: Sequence[bytes]) -> None:
    private_folder(home)
    draft = home / f".{NAME}.{os.getpid()}"
    draft.touch(mode=0o600)
    with draft.open("wb") as file:
        file.write(b"".join(key + b"\n" for key in keys))
        file.flush()
        os.fsync(file.fileno())  # what is wrapped with a key must not outlive it
    draft.replace(home / NAME)
