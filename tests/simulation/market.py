"""A shared fleet replayed event by event: borrowing, reclaim, gang reservations, filler, bursting.

This is a model of the product's rules, written for speed; the product itself is not run here.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heapify, heappop, heappush

import numpy as np

from tests.simulation import departures
from tests.simulation.fleet import Fleet, Tally
from tests.simulation.placing import (
    PAUSED,
    Plan,
    by_displacing,
    by_moving,
    by_reclaim,
    may_pause,
    on_free,
    over_filler,
)
from tests.simulation.rules import Outcome, Rules
from tests.simulation.traces import DAY, FILLER, GPUS_PER_NODE, Jobs

RESTORE_EVERY = 60.0
ARRIVES, ENDS, BURSTS, CHECKPOINTS, LEAVES, RETURNS, LOOKS = range(7)


class Market:
    """One replay. Call `run` once."""

    def __init__(
        self, jobs: Jobs, nodes: tuple[int, ...], horizon: float, rules: Rules | None = None
    ) -> None:
        self.rules = rules or Rules()
        self.jobs = jobs
        self.tally = Tally(DAY, horizon - DAY)
        self.fleet = Fleet(jobs, nodes, self.tally)
        count = len(jobs)
        self.started = [float("inf")] * count
        self.ended = [float("inf")] * count
        self.stood = [0.0] * count
        self.within_quota = [False] * count
        self.turn = [0] * count
        self.waits_since: dict[int, float] = {}
        self.interrupted: dict[int, tuple[float, str]] = {}
        self.saved_at: dict[int, float] = {}
        """When work that was told to go is saved: it cannot go on before, anywhere."""
        self.waiting: dict[tuple[int, int], list[tuple[float, int]]] = defaultdict(list)
        self.gangs: dict[int, float] = {}
        """Gangs that wait, with when they came, or count as having come."""
        self.restored_at = -DAY
        self.looked_after: set[int] = set()
        self.tried: dict[int, float] = {}
        self.in_cloud: dict[int, float] = {}
        self.events: list[tuple[float, int, int, int]] = [
            (at, ARRIVES, job, 0) for job, at in enumerate(jobs.arrival.tolist())
        ]
        self.headroom = int(self.rules.headroom_share * sum(nodes) * GPUS_PER_NODE)
        self.away: set[int] = set()
        self.random = np.random.default_rng(self.rules.seed)
        rate = self.rules.departures_per_node_day
        shares = self.rules.announced_share, self.rules.temporary_share
        for at, node, kind in departures.plan(self.random, rate, shares, sum(nodes), horizon):
            self.events.append((at, LEAVES, node, kind))
        heapify(self.events)

    def run(self) -> Outcome:
        """Go through all events, to the end of the last job."""
        while self.events:
            now, what, subject, turn = heappop(self.events)
            if what == ARRIVES:
                self._note_quota(subject)
                self.waits_since[subject] = now
                if not self._start(subject, now):
                    self._wait(subject, now)
            elif what == ENDS:
                if self.turn[subject] == turn:
                    self._end(subject, now)
            elif what == BURSTS:
                if self.turn[subject] == turn and subject in self.waits_since:
                    self._burst(subject, now)
            elif what == CHECKPOINTS:
                if self.turn[subject] == turn and subject in self.in_cloud:
                    self._come_home(subject, now)
            elif what == LEAVES:
                self._node_leaves(subject, now, turn)
            elif what == RETURNS:
                self._node_returns(subject, now)
            else:
                self.looked_after.discard(subject)
                if subject in self.gangs:
                    self._serve(now)
                    if subject in self.gangs:
                        self._look_again(subject, now)
        return Outcome(
            self.jobs,
            len(self.fleet.on),
            np.array(self.started),
            np.array(self.ended),
            np.array(self.stood),
            np.array(self.within_quota),
            self.tally,
        )

    def _note_quota(self, job: int) -> None:
        owner = self.fleet.owner[job]
        within = owner != FILLER and self.fleet.below_quota(owner, self.fleet.gpus[job])
        self.within_quota[job] = within

    # --- starting ---------------------------------------------------------------------------

    def _start(self, job: int, now: float, *, gently: bool = False) -> bool:
        """Start a job where the rules allow; gently: nobody is sent away for it."""
        fleet = self.fleet
        if fleet.owner[job] == FILLER or self._is_old(job, now):
            if fleet.free.total - fleet.gpus[job] < self.headroom:
                return False
            if fleet.owner[job] != FILLER and not self._leaves_what_is_kept(job, now):
                return False
            plan = on_free(fleet, job)
        else:
            plan = self._plan(job, now, gently)
        if plan is None:
            return False
        self._carry_out(job, plan, now)
        return True

    def _plan(self, job: int, now: float, gently: bool) -> Plan | None:
        fleet = self.fleet
        plan = None
        if self._leaves_what_is_kept(job, now):
            plan = on_free(fleet, job)
            if plan is None and fleet.filler:
                plan = over_filler(fleet, job, now)
        if plan is None and not gently and self._leaves_what_is_kept(job, now, own=True):
            plan = by_reclaim(fleet, job)
        if plan is None and not gently and self._may_move_for(job, now):
            plan = by_moving(fleet, job, now)
        if plan is None and not gently and self.rules.firm_for is not None:
            plan = by_displacing(fleet, job, now, self.rules.firm_for)
            if plan is not None and not self._leaves_what_is_kept(
                job, now, freed=self._freed_by(plan)
            ):
                plan = None
        return plan

    def _is_old(self, job: int, now: float) -> bool:
        """Tell if a job has had its firm hours; a long pause is made up for like a fresh start."""
        firm_for = self.rules.firm_for
        if firm_for is None or self.fleet.progress(job, now) < firm_for:
            return False
        since, why = self.interrupted.get(job, (now, ""))
        return why != PAUSED or now - since < self.rules.pause_max

    def _freed_by(self, plan: Plan) -> int:
        fleet = self.fleet
        return sum(fleet.gpus[job] for job in plan.sent_away if fleet.owner[job] != FILLER)

    def _leaves_what_is_kept(
        self, job: int, now: float, *, freed: int = 0, own: bool = False
    ) -> bool:
        """Tell if what is kept for gangs that came earlier is left alone.

        freed: what the job would send away. own: look only at gangs of the same owner, which
        must not starve behind its small work; those of others have no claim on its own nodes.
        """
        kept = 0
        if self.gangs:
            came, owner = self.fleet.arrival[job], self.fleet.owner[job]
            for gang, since in list(self.gangs.items())[: self.rules.gangs_reserved_max]:
                if own and self.fleet.owner[gang] != owner:
                    continue
                if now - since >= self.rules.gang_patience and since < came:
                    kept += self.fleet.gpus[gang]
        if own and not kept:
            return True
        return self.fleet.firm.total + freed - self.fleet.gpus[job] >= kept

    def _may_move_for(self, job: int, now: float) -> bool:
        if not self.rules.moving or self.fleet.gpus[job] == 1:
            return False
        if not self._leaves_what_is_kept(job, now):
            return False
        if now - self.tried.get(job, -DAY) < self.rules.retry:
            return False
        self.tried[job] = now
        return True

    def _carry_out(self, job: int, plan: Plan, now: float) -> None:
        going = plan.sent_away
        for other in going:
            self._interrupt(other, now, "filler" if self.fleet.owner[other] == FILLER else plan.why)
        for other, _ in plan.moved:
            self._interrupt(other, now, "moved")
        self._hold(job, plan.places, now)
        for other, places in plan.moved:
            self._hold(other, places, now)
        for other in going:
            if not self._start(other, now, gently=True):
                self._wait(other, now)
        if self.headroom and self.fleet.owner[job] != FILLER:
            self._restore_headroom(now)

    def _hold(self, job: int, places: list[tuple[int, int]], now: float) -> None:
        again = self.interrupted.pop(job, None)
        resume = self.rules.resume if again else 0.0
        saved_at = self.saved_at.pop(job, now)
        begins = self.fleet.hold(job, places, now, resume=resume, saved_at=saved_at)
        self.stood[job] += begins - self.waits_since.pop(job, now)
        self.started[job] = min(self.started[job], begins)
        if again:
            since, why = again
            self._resumed(why, begins - since)
        self.turn[job] += 1
        self.gangs.pop(job, None)
        ends = self.fleet.works_since[job] + self.fleet.remaining[job]
        heappush(self.events, (ends, ENDS, job, self.turn[job]))

    def _resumed(self, why: str, after: float) -> None:
        self.tally.resumed_after.setdefault(why, []).append(after)

    def _end(self, job: int, now: float) -> None:
        self.ended[job] = now
        self.turn[job] += 1
        if job in self.in_cloud:
            self._count_cloud(job, now)
            return
        self.fleet.release(job, now)
        self._serve(now)

    # --- interrupting and waiting -------------------------------------------------------------

    def _interrupt(self, job: int, now: float, why: str, *, sudden: bool = False) -> None:
        """Stop a job: with notice it keeps its progress, suddenly what its last checkpoint has."""
        if not sudden:
            self.saved_at[job] = now + self.rules.notice
            self.fleet.clear(job, self.saved_at[job])
        worked = self.fleet.release(job, now)
        kept = worked - worked % self.rules.checkpoint if sudden else worked
        if self.tally.since <= now < self.tally.until:
            self.tally.lost += (worked - kept) * self.fleet.gpus[job]
        self.fleet.remaining[job] = max(1.0, self.fleet.remaining[job] - kept)
        self.turn[job] += 1
        self.interrupted[job] = (now, why)
        self.waits_since[job] = now

    def _wait(self, job: int, now: float) -> None:
        owner, gpus = self.fleet.owner[job], self.fleet.gpus[job]
        since = self.fleet.arrival[job]
        if self.interrupted.get(job, (0.0, ""))[1] == PAUSED:
            since = now + self.rules.pause_max
        heappush(self.waiting[owner, gpus], (since, job))
        if owner == FILLER:
            return
        if gpus >= GPUS_PER_NODE and not self._is_old(job, now):
            self.gangs[job] = since
            self._look_again(job, now)
        if self.rules.burst_wait is not None:
            heappush(self.events, (now + self.rules.burst_wait, BURSTS, job, self.turn[job]))

    def _look_again(self, job: int, now: float) -> None:
        """Come back to a gang when its patience is over: it may have something kept for it."""
        if job not in self.looked_after:
            self.looked_after.add(job)
            heappush(self.events, (now + self.rules.gang_patience, LOOKS, job, 0))

    def _serve(self, now: float) -> None:
        """Start what waits: owners' jobs in order of arrival, then filler into the holes."""
        failed: set[int] = set()
        heads = sorted(
            (queue[0], key) for key, queue in self.waiting.items() if queue and key[0] != FILLER
        )
        while heads:
            _, key = heads.pop(0)
            owner, gpus = key
            queue = self.waiting[key]
            if gpus in failed and not self.fleet.below_quota(owner, gpus):
                continue
            head = heappop(queue)  # before it starts: whom it sends away may queue here too
            went_to_cloud = head[1] not in self.waits_since
            if not went_to_cloud and not self._start(head[1], now):
                heappush(queue, head)
                failed.add(gpus)
                continue
            if queue:
                heads.append((queue[0], key))
                heads.sort()
        if self.fleet.free.total > self.headroom:
            self._fill(now)

    def _fill(self, now: float) -> None:
        for gpus in (8, 4, 2, 1):
            queue = self.waiting.get((FILLER, gpus))
            while queue and self._start(queue[0][1], now):
                heappop(queue)

    def _restore_headroom(self, now: float) -> None:
        """Send away filler, then what may pause, so that what comes next finds room at once."""
        fleet = self.fleet
        if fleet.free.total >= self.headroom // 2:
            return
        while fleet.free.total < self.headroom and fleet.filler:
            job = next(iter(fleet.filler))
            self._interrupt(job, now, "filler")
            self._wait(job, now)
        if fleet.free.total >= self.headroom // 2 or now < self.restored_at + RESTORE_EVERY:
            return
        self.restored_at = now
        if self.rules.firm_for is None:
            return
        for job in may_pause(fleet, now, self.rules.firm_for):
            if fleet.free.total >= self.headroom:
                break
            self._interrupt(job, now, PAUSED)
            self._wait(job, now)

    # --- bursting -----------------------------------------------------------------------------

    def _burst(self, job: int, now: float) -> None:
        self.saved_at.pop(job, None)
        self.stood[job] += now - self.waits_since.pop(job)
        self.gangs.pop(job, None)
        self.started[job] = min(self.started[job], now)
        again = self.interrupted.pop(job, None)
        if again:
            self._resumed(again[1], now - again[0])
        self.in_cloud[job] = now
        self.turn[job] += 1
        heappush(self.events, (now + self.fleet.remaining[job], ENDS, job, self.turn[job]))
        heappush(self.events, (now + self.rules.checkpoint, CHECKPOINTS, job, self.turn[job]))

    def _count_cloud(self, job: int, now: float) -> None:
        since = self.in_cloud.pop(job)
        self.tally.cloud += self.tally.overlap(since, now) * self.fleet.gpus[job]

    def _come_home(self, job: int, now: float) -> None:
        """Bring work back from the cloud at a checkpoint, where there is room for it."""
        fleet = self.fleet
        plan = on_free(fleet, job) if self._leaves_what_is_kept(job, now) else None
        if plan is None:
            heappush(self.events, (now + self.rules.checkpoint, CHECKPOINTS, job, self.turn[job]))
            return
        fleet.remaining[job] = max(1.0, fleet.remaining[job] - (now - self.in_cloud[job]))
        self._count_cloud(job, now)
        self.waits_since[job] = now
        self.interrupted[job] = (now, "repatriated")
        self._carry_out(job, plan, now)

    # --- departures ---------------------------------------------------------------------------

    def _node_leaves(self, node: int, now: float, kind: int) -> None:
        if node in self.away:
            return
        self.away.add(node)
        told = list(self.fleet.on[node])
        for job in told:
            self._interrupt(job, now, departures.KINDS[kind], sudden=kind != departures.ANNOUNCED)
        self.fleet.free.change(node, -GPUS_PER_NODE)
        self.fleet.firm.change(node, -GPUS_PER_NODE)
        for job in told:
            if not self._start(job, now):
                self._wait(job, now)
        short = kind == departures.TEMPORARY
        mean = self.rules.absence_mean if short else self.rules.outage_mean
        back = now + float(self.random.exponential(mean))
        self.tally.down += self.tally.overlap(now, back) * GPUS_PER_NODE
        heappush(self.events, (back, RETURNS, node, 0))

    def _node_returns(self, node: int, now: float) -> None:
        self.away.discard(node)
        self.fleet.free.change(node, GPUS_PER_NODE)
        self.fleet.firm.change(node, GPUS_PER_NODE)
        self._serve(now)
