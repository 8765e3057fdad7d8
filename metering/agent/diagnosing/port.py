"""What the agent asks of whatever probes a card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a probe found. fine None: it could not look, which says nothing of the card."""

    fine: bool | None
    said: str


class Prober(Protocol):
    """Probes cards, each by itself. Nothing here waits for a card."""

    def begin(self, uuid: str) -> None:
        """Begin to probe a card that nobody uses. Raises: OSError."""
        ...

    def look(self, uuid: str) -> Verdict | None:
        """Return what a probe found, once; None: it goes on."""
        ...

    def end(self, uuid: str) -> None:
        """End a probe at once, whatever it does; nothing to do where there is none."""
        ...

    def owns(self, pid: int) -> bool:
        """Tell if a process is that of a probe."""
        ...
