"""Secrets of the installation: given, or made once and kept in the data directory."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from config.database.private import private_folder
from config.env import Env


def secret_key(env: Env, home: Path) -> str:
    """Return the key that signs sessions, making it on the first start."""
    return env.secret_key or made_once(home / "secret_key")


def made_once(kept: Path) -> str:
    """Return what a file of the data directory holds, making it the first time.

    Two processes that start together end up with the same: the file is linked into place whole,
    and whoever comes second reads what the first one wrote.
    """
    if not kept.exists():
        private_folder(kept.parent)
        draft = kept.with_name(f".{kept.name}.{os.getpid()}")
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(48))
        try:
            os.link(draft, kept)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return kept.read_text()
