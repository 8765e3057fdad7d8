"""What the events of a replay say: when jobs began, stood and ended, what was held, paid and lost.

Nothing is asked of who plays the trace: a job is known by its bids' cost centre, and everything
else is in the events of bids, leases, meters and accounts. Checked on the way, by code of its own:

- no GPU is leased twice at a time;
- every lease is closed with a reason, and its hold given back;
- every entry sums to zero, and what is granted is rated once and charged at the lease's price.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np

from ledger.domain.events import HoldPlaced, HoldReleased, UsageCaptured
from ledger.domain.ids import HoldId, LeaseId
from ledger.domain.money import NANOS_PER_UNIT
from marketplace.domain.facts.close_reasons import (
    INTERRUPTED,
    PAUSED,
    REASONS,
    WINDOW_OVER,
    WORK_DONE,
)
from marketplace.domain.facts.events import (
    BidExpired,
    BidPlaced,
    LeaseActivated,
    LeaseClosed,
    LeaseScheduled,
    LeaseStarting,
    WorkSaved,
)
from metering.domain.events import UsageWindowClosed
from tests.simulation.fleet import Tally
from tests.simulation.product.clock import Clock
from tests.simulation.product.founding import seconds
from tests.simulation.rules import Outcome
from tests.simulation.traces import FILLER, GPUS_PER_NODE, Jobs

WHY = {
    INTERRUPTED: "interrupted",
    PAUSED: "paused",
    WINDOW_OVER: "window over",
}
"""How an interruption is named on the page, by the close reason of the lease before it."""


@dataclass(eq=False, slots=True)
class Lease:
    """A lease that is not over, as the events tell it; times in seconds."""

    scheduled: LeaseScheduled
    job: int
    gpus: int
    starts: float
    begun: bool = False
    works: float | None = None
    safe: dict[str, float] = field(default_factory=dict)
    granted_ms: int = 0
    charged: int = 0
    ended: float | None = None


class Measured:
    """The figures of a replay, gathered as events are recorded."""

    def __init__(self, jobs: Jobs, nodes: tuple[int, ...], tally: Tally) -> None:
        self.jobs, self.nodes, self.tally = jobs, nodes, tally
        self.owner, self.gpus = jobs.owner.tolist(), jobs.gpus.tolist()
        count = len(jobs)
        self.started, self.ended = np.full(count, np.inf), np.full(count, np.inf)
        self.stood, self.within = np.zeros(count), np.zeros(count, dtype=np.bool_)
        self.counted: Counter[str] = Counter()
        self.reasons: Counter[int] = Counter()
        self.charged_nanos = 0
        self._asked: set[int] = set()
        self._used = [0] * len(nodes)
        self._waits_since: dict[int, float] = {}
        self._stopped: dict[int, tuple[float, str]] = {}
        self._leases: dict[LeaseId, Lease] = {}
        self._by_hold: dict[HoldId, LeaseId] = {}
        self._held_until: dict[str, float] = defaultdict(float)
        self._holds: set[HoldId] = set()

    def listen_to(self, clock: Clock) -> None:
        """Follow everything that is recorded from now on."""
        clock.listen([BidPlaced], self._placed)
        clock.listen([BidExpired], self._expired)
        clock.listen([LeaseScheduled], self._scheduled)
        clock.listen([LeaseStarting], self._starting)
        clock.listen([LeaseActivated], self._activated)
        clock.listen([WorkSaved], self._saved)
        clock.listen([LeaseClosed], self._closed)
        clock.listen([UsageWindowClosed], self._rated)
        clock.listen([UsageCaptured], self._captured)
        clock.listen([HoldPlaced], self._hold_placed)
        clock.listen([HoldReleased], self._hold_released)

    def outcome(self) -> Outcome:
        """Return when jobs started, stood and ended. All leases must be over by then."""
        assert not self._leases, "every lease is closed, rated, and its hold given back"
        assert not self._holds, "every hold is given back"
        return Outcome(
            self.jobs,
            sum(self.nodes),
            self.started,
            self.ended,
            self.stood,
            self.within,
            self.tally,
        )

    # --- bids -------------------------------------------------------------------------------

    def _placed(self, bid: BidPlaced) -> None:
        self.counted["bids"] += 1
        job = job_of(bid.cost_centre)
        if job in self._asked:
            return
        self._asked.add(job)
        owner = self.owner[job]
        self._waits_since[job] = seconds(bid.earliest_start)
        if owner != FILLER:
            own = GPUS_PER_NODE * self.nodes[owner]
            self.within[job] = self._used[owner] + self.gpus[job] <= own

    def _expired(self, _: BidExpired) -> None:
        self.counted["expired"] += 1

    # --- leases -----------------------------------------------------------------------------

    def _scheduled(self, event: LeaseScheduled) -> None:
        self.counted["leases"] += 1
        gpus = sum(len(share.gpu_uuids) for share in event.shares)
        job = job_of(event.cost_centre)
        assert gpus == self.gpus[job]
        starts = seconds(event.window.starts_at)
        self._leases[event.lease_id] = Lease(event, job, gpus, starts)
        self._by_hold[event.hold_id] = event.lease_id
        if not event.price.nanos_per_gpu_hour:
            self.counted["own leases"] += 1

    def _starting(self, event: LeaseStarting) -> None:
        lease = self._leases[event.lease_id]
        lease.begun = True
        job, starts = lease.job, lease.starts
        self.stood[job] += starts - self._waits_since.pop(job)
        self.started[job] = min(self.started[job], starts)
        before = self._stopped.pop(job, None)
        if before is not None:
            self.tally.resumed_after.setdefault(before[1], []).append(starts - before[0])
        if self.owner[job] != FILLER:
            self._used[self.owner[job]] += lease.gpus

    def _activated(self, event: LeaseActivated) -> None:
        self._leases[event.lease_id].works = seconds(event.at)

    def _saved(self, event: WorkSaved) -> None:
        self._leases[event.lease_id].safe[str(event.host_id)] = seconds(event.safe_at)

    def _closed(self, event: LeaseClosed) -> None:
        assert event.reason in REASONS
        self.reasons[event.reason] += 1
        lease = self._leases[event.lease_id]
        lease.ended = max(lease.starts, seconds(event.ended_at or event.at))
        job, ended = lease.job, lease.ended
        for share in lease.scheduled.shares:
            for uuid in share.gpu_uuids:
                if ended > lease.starts:
                    assert self._held_until[uuid] <= lease.starts, f"{uuid} is leased twice"
                    self._held_until[uuid] = ended
        if not lease.begun:
            return
        held = self.tally.overlap(lease.starts, ended) * lease.gpus
        worked = 0.0
        if lease.works is not None:
            until = ended if event.reason == WORK_DONE else min(lease.safe.values(), default=0.0)
            worked = self.tally.overlap(lease.works, min(until, ended)) * lease.gpus
        self.tally.lost += held - worked
        if self.owner[job] == FILLER:
            self.tally.held_filler += held
        else:
            self.tally.held_owners += held
            self._used[self.owner[job]] -= lease.gpus
        if event.reason == WORK_DONE:
            self.ended[job] = ended
        else:
            self._waits_since[job] = ended
            self._stopped[job] = (ended, WHY.get(event.reason, REASONS[event.reason]))

    # --- money ------------------------------------------------------------------------------

    def _rated(self, event: UsageWindowClosed) -> None:
        granted = sum(gpu.granted_ms for gpu in event.gpus)
        self._leases[event.lease_id].granted_ms += granted

    def _captured(self, event: UsageCaptured) -> None:
        assert sum(posting.nanos for posting in event.postings) == 0
        self._leases[event.lease_id].charged += event.charged.nanos
        self.charged_nanos += event.charged.nanos

    def _hold_placed(self, event: HoldPlaced) -> None:
        self._holds.add(event.hold_id)

    def _hold_released(self, event: HoldReleased) -> None:
        self._holds.remove(event.hold_id)
        lease_id = self._by_hold.pop(event.hold_id, None)
        if lease_id is None:
            return  # of a bid that became no lease
        lease = self._leases.pop(lease_id)
        assert lease.ended is not None, "a hold is given back when its lease is over"
        granted = round(1000 * (lease.ended - lease.starts)) * lease.gpus if lease.begun else 0
        assert lease.granted_ms == granted, "what is granted is rated once"
        assert lease.charged == lease.scheduled.price.charge(granted).nanos

    @property
    def charged(self) -> float:
        """Return what consumers paid in all, in units of money."""
        return self.charged_nanos / NANOS_PER_UNIT


def job_of(cost_centre: str) -> int:
    """Return the number of the job whose bid names it."""
    return int(cost_centre.removeprefix("job-"))
