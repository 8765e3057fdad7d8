"""The token of this host as it is kept: its file, where the market is, and since when it is had.

The file is read again when it was written anew, so a running agent takes up what `enrol` or
`rotate-token` brought.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEPT = "market.json"
TOKEN = "token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolled:
    """Where the market is that this host is enrolled with, and where its token is kept.

    made_at: when the token was made, in seconds since the epoch; 0: not known.
    """

    server: str
    token_file: Path
    ca_file: Path | None = None
    allow_plain_http: bool = False
    made_at: int = 0

    @classmethod
    def kept_in(cls, state_dir: Path) -> Enrolled | None:
        """Return what `enrol` kept; None: this host was never enrolled.

        Raises: OSError; ValueError for a file that cannot be read.
        """
        path = state_dir / KEPT
        try:
            said = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except ValueError:
            said = None
        if not isinstance(said, dict) or not all(
            isinstance(said.get(name), str) and said[name] for name in ("server", "token_file")
        ):
            raise ValueError(f"{path} cannot be read: enrol this host again")
        ca_file, made_at = said.get("ca_file"), said.get("made_at")
        return cls(
            server=said["server"],
            token_file=Path(said["token_file"]),
            ca_file=Path(ca_file) if isinstance(ca_file, str) else None,
            allow_plain_http=said.get("allow_plain_http") is True,
            made_at=made_at if isinstance(made_at, int) else 0,
        )

    def keep(self, state_dir: Path) -> None:
        """Write it down."""
        said = {
            "server": self.server,
            "token_file": str(self.token_file),
            "ca_file": None if self.ca_file is None else str(self.ca_file),
            "allow_plain_http": self.allow_plain_http,
            "made_at": self.made_at,
        }
        write_private(state_dir / KEPT, json.dumps(said, indent=1) + "\n")


class TokenFile:
    """The token in a file, as it is now; the last one known where it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[int, int, int] | None = None
        self._text = ""
        self()

    def __call__(self) -> str:
        """Return the token.

        Raises: OSError, the first time.
        """
        try:
            found = self.path.stat()
            state = (found.st_ino, found.st_mtime_ns, found.st_size)
            if state != self._read:
                text = self.path.read_text().strip()
                self._text, self._read = text or self._text, state
        except OSError:
            if not self._text:
                raise
        return self._text


def write_private(path: Path, text: str) -> None:
    """Put a text into a file that only its owner may read: whole, or as it was before."""
    new = path.with_name(f".{path.name}.new")
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(file, 0o600)
        os.write(file, text.encode())
        os.fsync(file)
    finally:
        os.close(file)
    os.replace(new, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_kept(path: Path) -> dict[str, Any]:
    """Return what a file of JSON says; nothing where it is not there or cannot be read."""
    try:
        said = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}
