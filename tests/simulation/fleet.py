"""The state of a shared fleet: who runs where, whose the nodes are, and what was lost."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.nodes import Room
from tests.simulation.traces import FILLER, GPUS_PER_NODE, HOUR, Jobs

Places = list[tuple[int, int]]
"""Node and GPUs taken there."""


@dataclass(slots=True)
class Tally:
    """What happened inside the measured span, in GPU-seconds, and every interruption."""

    since: float
    until: float
    held_owners: float = 0.0
    held_filler: float = 0.0
    lost: float = 0.0
    """Held without progress: notice, resuming, and work done twice."""
    cloud: float = 0.0
    down: float = 0.0
    resumed_after: dict[str, list[float]] = field(default_factory=dict)
    """By why it was interrupted: the seconds until each went on."""

    def overlap(self, start: float, end: float) -> float:
        """Return how much of a span was measured."""
        return max(0.0, min(end, self.until) - max(start, self.since))


class Fleet:
    """Nodes of several owners, and the jobs on them."""

    def __init__(self, jobs: Jobs, nodes: tuple[int, ...], tally: Tally) -> None:
        self.tally = tally
        self.gpus: list[int] = jobs.gpus.tolist()
        self.owner: list[int] = jobs.owner.tolist()
        self.arrival: list[float] = jobs.arrival.tolist()
        self.remaining: list[float] = jobs.duration.tolist()
        self.duration: list[float] = jobs.duration.tolist()
        self.nodes = nodes
        count = sum(nodes)
        self.all = (1 << count) - 1
        self.owner_of = [owner for owner, own in enumerate(nodes) for _ in range(own)]
        self.own = [0] * len(nodes)
        for node, owner in enumerate(self.owner_of):
            self.own[owner] |= 1 << node
        self.free, self.firm = Room(count), Room(count)
        """What nobody holds; and what nobody but filler holds."""
        self.on: list[dict[int, int]] = [{} for _ in range(count)]
        self.cleared_at = [0.0] * count
        self.used = [0] * len(nodes)
        self.history: list[tuple[int, int, int, float, float]] | None = None
        """Where somebody asks for it: node, job, GPUs, and from when until when they were held."""
        self.filler: dict[int, None] = {}
        """Filler that runs, longest first."""
        self.places: dict[int, Places] = {}
        self.held_since: dict[int, float] = {}
        self.works_since: dict[int, float] = {}

    def hold(
        self, job: int, places: Places, now: float, *, resume: float, saved_at: float
    ) -> float:
        """Give a job its GPUs; return when it begins: once they are cleared, and its work saved."""
        filler = self.owner[job] == FILLER
        begins = max(now, saved_at)
        for node, taken in places:
            self.free.change(node, -taken)
            if not filler:
                self.firm.change(node, -taken)
            self.on[node][job] = taken
            begins = max(begins, self.cleared_at[node])
        if filler:
            self.filler[job] = None
        else:
            self.used[self.owner[job]] += self.gpus[job]
        self.places[job], self.held_since[job] = places, now
        self.works_since[job] = begins + resume
        return begins

    def release(self, job: int, now: float) -> float:
        """Take a job's GPUs back; return for how long it made progress on them."""
        filler = self.owner[job] == FILLER
        for node, taken in self.places.pop(job):
            self.free.change(node, taken)
            if not filler:
                self.firm.change(node, taken)
            del self.on[node][job]
            if self.history is not None:
                self.history.append((node, job, taken, self.held_since[job], now))
        held_since, works_since = self.held_since.pop(job), self.works_since.pop(job)
        held = self.tally.overlap(held_since, now) * self.gpus[job]
        if filler:
            del self.filler[job]
            self.tally.held_filler += held
        else:
            self.used[self.owner[job]] -= self.gpus[job]
            self.tally.held_owners += held
        idle = self.tally.overlap(held_since, min(works_since, now))
        self.tally.lost += idle * self.gpus[job]
        return max(0.0, now - works_since)

    def clear(self, job: int, at: float) -> None:
        """Say from when the nodes of a job that is told to go can be used again."""
        for node, _ in self.places[job]:
            self.cleared_at[node] = max(self.cleared_at[node], at)

    def below_quota(self, owner: int, gpus: int) -> bool:
        """Tell if the owner would stay within what its own nodes have."""
        return self.used[owner] + gpus <= GPUS_PER_NODE * self.nodes[owner]

    def progress(self, job: int, now: float) -> float:
        """Return for how long a job has made progress in all, on these GPUs and before."""
        before = self.duration[job] - self.remaining[job]
        since = self.works_since.get(job)
        return before if since is None else before + max(0.0, now - since)

    def borrows(self, job: int) -> bool:
        """Tell if a job runs on anybody else's node."""
        owner = self.owner[job]
        return any(self.owner_of[node] != owner for node, _ in self.places[job])

    @property
    def measured_hours(self) -> float:
        return (self.tally.until - self.tally.since) / HOUR
