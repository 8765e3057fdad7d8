"""One work of a run: what was seen of it, from its bid to the lease that it went on in."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.departures.plan import Planned
from tests.departures.work import Kind
from tests.journeys.hosts import Machine


@dataclass(slots=True)
class Chain:
    """Work of one bid and of what follows it. Times are seconds of this machine's clock.

    planned, host: how it is taken away, and from where; ready_at: from when on. free_by, free_at:
    when its owner was promised the card, and when the work was off it; off: set from then on.
    last_word_at: when the market heard the host last, where all of it left without a word. room:
    the share of the staying host's GPUs that was leased when this departure came. following: the
    lease that it went on in; next_from, ends_by: its time there. is_given_up: nothing
    follows any more.
    """

    planned: Planned
    host: Machine
    bid_id: str
    volume: str
    folder: Path
    deadline: float
    placed_at: float
    lease: dict[str, Any] = field(default_factory=dict)
    ready_at: float = 0.0
    left_at: float = 0.0
    free_by: float | None = None
    free_at: float | None = None
    last_word_at: float | None = None
    room: float = 0.0
    following: str = ""
    links: int = 0
    resumed_at: float | None = None
    next_from: float | None = None
    ends_by: float | None = None
    is_given_up: bool = False
    is_finished: bool = False
    off: threading.Event = field(default_factory=threading.Event)

    @property
    def kind(self) -> Kind:
        """How it is taken away."""
        return self.planned.kind

    def first_process(self) -> int:
        """Return the process of the work where it ran first."""
        told = (self.folder / self.lease["id"]).read_text().splitlines()[0]
        return int(told.split()[2])

    def steps(self, lease_id: str) -> list[tuple[int, float]]:
        """Return the steps that the work of a lease told, each with its time; the first is where it
        began."""
        path = self.folder / lease_id
        lines = path.read_text().splitlines() if path.exists() else []
        told = [line.split() for line in lines]
        return [(int(each[0]), float(each[1])) for each in told if len(each) >= 2]

    def finish(self, lease_id: str) -> None:
        """Let the work of a lease end well."""
        (self.folder / f"{lease_id}.finish").touch()
