"""What the link of a card to its host says of it, against the best that was ever seen of it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..gpus.port import Link

REPLAYS_MAX = 80
"""Packets that the bus had to repeat since the last look and that are too many of them.
Source: NVIDIA DCGM, `max_pcie_replays` of its PCIe test."""


@dataclass(slots=True)
class Best:
    """The best link of each card so far; kept, so that a start of the agent forgets nothing."""

    kept_in: Path | None = None
    _best: dict[str, Link] = field(default_factory=dict)
    _replays: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kept_in is None:
            return
        with suppress(OSError, ValueError, TypeError, AttributeError):
            for uuid, said in json.loads(self.kept_in.read_text()).items():
                self._best[uuid] = Link(**said)

    def worse(self, uuid: str, link: Link, *, awake: bool) -> str:
        """Say what is worse than it was; empty: nothing.

        awake: the card has just worked. One that rests has a slower link, to save power.
        """
        best = self._best.get(uuid, Link())
        before, self._replays[uuid] = self._replays.get(uuid, link.replays), link.replays
        generation = max(best.generation, link.generation if awake else 0)
        now = Link(max(best.lanes, link.lanes), generation)
        if now != best:
            self._best[uuid] = now
            self._keep()
        found = []
        if 0 < link.lanes < best.lanes:
            found.append(f"its bus has {link.lanes} lanes of {best.lanes} that it had")
        if awake and 0 < link.generation < best.generation:
            found.append(f"its bus is of generation {link.generation}, it was {best.generation}")
        if link.replays - before > REPLAYS_MAX:
            found.append(f"its bus had to repeat {link.replays - before} packets")
        return "; ".join(found)

    def _keep(self) -> None:
        if self.kept_in is not None:
            told = {uuid: asdict(link) for uuid, link in self._best.items()}
            new = self.kept_in.with_name(f"{self.kept_in.name}.new")
            with suppress(OSError):  # it is learned again
                new.write_text(json.dumps(told))
                new.replace(self.kept_in)
