"""Tokens of the demo's people and hosts, made on the first start and kept in the data directory."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from ledger.domain import tokens


class Secrets:
    """A small file of token texts by name, readable by its owner only."""

    def __init__(self, home: Path) -> None:
        self._path = home / "demo" / "tokens.json"

    def get(self, name: str, kind: tokens.Kind) -> str:
        """Return the token of that name, making it the first time."""
        kept: dict[str, str] = {}
        if self._path.exists():
            kept = json.loads(self._path.read_text())
        if name not in kept:
            kept[name] = tokens.write(kind, secrets.token_bytes(tokens.ENTROPY_BYTES_MIN))
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft = self._path.with_suffix(f".{os.getpid()}")
            draft.touch(mode=0o600)
            draft.write_text(json.dumps(kept, indent=1))
            draft.rename(self._path)
        return kept[name]
