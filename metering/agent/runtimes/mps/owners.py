"""The control daemon that the owner of the host runs: one for all cards and all work there.

It has no limits that the agent set, and serves one account at a time unless its owner started it
with `-multiuser-server`. The limits of work are in its environment, which it can change.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ...shares import PIPE_DIRECTORY, is_mps, mps_runs
from ..port import StartFailed
from .port import COMPUTE, MEMORY, WATCHED, Enforces


class OwnersDaemon:
    """pipe: the directory of its pipes."""

    def __init__(self, pipe: Path = PIPE_DIRECTORY) -> None:
        self.pipe = pipe

    def enforces(self) -> Enforces:
        return ((COMPUTE, ""), (MEMORY, WATCHED))

    def ready(self, uuids: Collection[str], held: Collection[str]) -> None:
        if any(map(is_mps, uuids)) and not mps_runs(self.pipe):
            # Without the daemon the work would run unlimited beside the others on the card.
            raise StartFailed(f"no MPS control daemon listens at {self.pipe}")

    def pipe_of(self, uuids: Collection[str]) -> Path:
        return self.pipe

    def tidy(self, held: Collection[str]) -> None:
        """Leave it running: it is not this agent's."""
