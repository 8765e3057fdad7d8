"""The key that signs sessions: given, or made once and kept in the data directory."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from config.database.private import private_folder
from config.env import Env


def secret_key(env: Env, home: Path) -> str:
    """Return the installation's secret key, making it on the first start.

    Two processes that start together end up with the same key: the file is linked into place
    whole, and whoever comes second reads what the first one wrote.
    """
    if env.secret_key:
        return env.secret_key
    kept = home / "secret_key"
    if not kept.exists():
        private_folder(home)
        draft = home / f".secret_key.{os.getpid()}"
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(48))
        try:
            os.link(draft, kept)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return kept.read_text()
