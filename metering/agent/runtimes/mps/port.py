"""What a runtime asks of MPS before it starts work on a share, and after the work is gone."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

Enforces = tuple[tuple[str, str], ...]
COMPUTE, MEMORY = "compute of a share", "memory of a share"
"""As an agent says what keeps work within its share."""
WATCHED = "the agent stops what holds more"


class Mps(Protocol):
    """The control daemons of MPS that work of this host can use."""

    def enforces(self) -> Enforces:
        """Return what keeps work within its share, and by what; empty text: nothing does."""
        ...

    def ready(self, uuids: Collection[str], held: Collection[str]) -> None:
        """Return once work on these GPUs may start, as far as MPS is concerned.

        held: the GPUs that other work has now.

        Raises: StartFailed: there is no daemon for it, or none that holds the limits; NotYet: one
        is being started or ended on their card, ask again.
        """
        ...

    def pipe_of(self, uuids: Collection[str]) -> Path:
        """Return the directory at which work on these GPUs finds its daemon, if it needs one."""
        ...

    def tidy(self, held: Collection[str]) -> None:
        """End the daemons of cards of which no share is held any more. Does not wait."""
        ...
