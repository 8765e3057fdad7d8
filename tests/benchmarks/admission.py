"""Admission under quota at the shape of Kueue's own baseline, through the real rules.

Its generator (`test/performance/scheduler/configs/baseline` of kubernetes-sigs/kueue): 5 cohorts of
6 queues, each with a nominal quota of 20 and a borrowing limit of 100; 350 small, 100 medium and 50
large workloads a queue come one after the other; what is borrowed is reclaimed by any, and within a
queue the lower priority gives way. There it takes about 351 s, 43 admissions a second.

Here the clock is simulated: a workload runs for its time on it, and only deciding is measured.
Kueue's figure holds its API server's writes too, so this compares deciding with admitting; what a
grant costs here end to end is measured by the benchmark of bids.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple
from uuid import UUID

from ledger.domain.ids import LeaseId
from marketplace.domain.quotas.cohort_tree import Quota, Tree, Usage
from marketplace.domain.quotas.reclaim_candidates import Planner, Running
from tests.benchmarks.figures import Figure

COHORTS, QUEUES = 5, 6
KUEUE_PER_SECOND = 43.0


class Sort(NamedTuple):
    """A class of workloads. Times in milliseconds."""

    name: str
    amount: int
    every: int
    runs: int
    priority: int
    gpus: int


SORTS = (
    Sort("small", 350, 100, 200, 50, 1),
    Sort("medium", 100, 500, 500, 100, 5),
    Sort("large", 50, 1_200, 1_000, 200, 20),
)


@dataclass(slots=True)
class Work:
    """One workload. attempt: how often it was admitted before."""

    number: int
    queue: str
    sort: Sort
    came: int
    attempt: int = 0

    @property
    def lease_id(self) -> LeaseId:
        """Return the id of this attempt."""
        return LeaseId(UUID(int=self.number << 16 | self.attempt))


@dataclass(slots=True)
class Cluster:
    """Everything of one cohort: queues that wait, leases that run, and what happened."""

    planner: Planner
    waiting: dict[str, list[tuple[int, int, int, Work]]]
    running: dict[LeaseId, Work] = field(default_factory=dict)
    ends: list[tuple[int, int, LeaseId]] = field(default_factory=list)
    admitted: int = 0
    finished: int = 0
    preempted: int = 0
    waits: dict[str, list[int]] = field(default_factory=dict)
    most: int = 0


def run() -> Iterator[Figure]:
    """Let all cohorts live, check what Kueue checks at the end, and say how fast it went."""
    clusters, spent = [], 0.0
    for cohort in range(COHORTS):
        cluster, coming = build(cohort)
        started = time.perf_counter()
        live(cluster, coming)
        spent += time.perf_counter() - started
        check(cluster)
        clusters.append(cluster)
    workloads = sum(cluster.finished for cluster in clusters)
    rate = workloads / spent
    yield Figure("workloads admitted and finished", workloads, "")
    yield Figure("  of them interrupted on the way", sum(c.preempted for c in clusters), "")
    yield Figure("admissions", rate, "/s", KUEUE_PER_SECOND, "Kueue's baseline", "≥ 20×")
    for sort in SORTS:
        waits = [wait for cluster in clusters for wait in cluster.waits[sort.name]]
        yield Figure(f"  simulated wait, mean, {sort.name}", sum(waits) / len(waits) / 1_000, "s")


def build(cohort: int, *, share: int = 1) -> tuple[Cluster, list[Work]]:
    """Return an idle cohort and its workloads in the order they come; share: one in so many."""
    root = f"cohort {cohort}"
    queues = [f"{root} queue {number}" for number in range(QUEUES)]
    tree = Tree({root: None} | dict.fromkeys(queues, root), dict.fromkeys(queues, Quota(20, 100)))
    numbers = count(1)
    coming = [
        Work(next(numbers), queue, sort, (index + 1) * sort.every)
        for queue in queues
        for sort in SORTS
        for index in range(sort.amount // share)
    ]
    coming.sort(key=lambda work: (work.came, work.number))
    return Cluster(Planner(Usage(tree), ()), {queue: [] for queue in queues}), coming


def live(cluster: Cluster, coming: list[Work]) -> None:
    """Go from event to event until everything has finished."""
    at, now = 0, 0
    while at < len(coming) or cluster.ends:
        arrives = coming[at].came if at < len(coming) else None
        ends = cluster.ends[0][0] if cluster.ends else None
        now = min(moment for moment in (arrives, ends) if moment is not None)
        while cluster.ends and cluster.ends[0][0] == now:
            _, _, lease_id = heappop(cluster.ends)
            if cluster.running.pop(lease_id, None) is not None:
                cluster.planner.ended(lease_id)
                cluster.finished += 1
        while at < len(coming) and coming[at].came == now:
            queue_up(cluster, coming[at])
            at += 1
        admit(cluster, now)


def queue_up(cluster: Cluster, work: Work) -> None:
    """Let a workload wait: the highest priority first, then who came first."""
    heappush(cluster.waiting[work.queue], (-work.sort.priority, work.came, work.number, work))


def admit(cluster: Cluster, now: int) -> None:
    """Look at the head of every queue, again and again, until none can be admitted."""
    blocked: set[str] = set()
    while True:
        heads = [
            (waiting[0], queue)
            for queue, waiting in cluster.waiting.items()
            if waiting and queue not in blocked
        ]
        if not heads:
            return
        # Kueue: what fits without borrowing first, then priority, then age.
        usage = cluster.planner.usage
        (_, _, _, work), queue = min(
            heads,
            key=lambda head: (
                usage.fits(head[1], head[0][3].sort.gpus).borrowed > 0,
                head[0][:3],
            ),
        )
        if not admit_one(cluster, work, now):
            blocked.add(queue)


def admit_one(cluster: Cluster, work: Work, now: int) -> bool:
    """Admit a workload, by interrupting others if need be; tell if that was possible."""
    plan = cluster.planner.plan(
        work.lease_id, work.queue, work.sort.gpus, priority=work.sort.priority, now=now
    )
    if plan is None:
        return False
    for victim in plan.victims:
        gone = cluster.running.pop(victim.lease_id)
        cluster.preempted += 1
        gone.attempt += 1
        queue_up(cluster, gone)
    heappop(cluster.waiting[work.queue]) if not plan.victims else remove(cluster, work)
    cluster.running[work.lease_id] = work
    cluster.planner.started(
        Running(
            work.lease_id, work.queue, work.sort.gpus, work.sort.priority, firm=False, since=now
        )
    )
    heappush(cluster.ends, (now + work.sort.runs, work.number, work.lease_id))
    if work.attempt == 0:
        cluster.waits.setdefault(work.sort.name, []).append(now - work.came)
    cluster.admitted += 1
    usage = cluster.planner.usage
    root = usage.tree.root(work.queue)
    cluster.most = max(cluster.most, usage.used(root))
    return True


def remove(cluster: Cluster, work: Work) -> None:
    """Take a workload out of its queue, wherever its victims came to stand."""
    waiting = cluster.waiting[work.queue]
    entry = (-work.sort.priority, work.came, work.number, work)
    if waiting[0][2] == work.number:
        heappop(waiting)
    else:
        waiting.remove(entry)
        waiting.sort(key=lambda each: each[:3])


def check(cluster: Cluster) -> None:
    """Hold the end to Kueue's invariants: all finished, nothing used, quota never exceeded."""
    usage = cluster.planner.usage
    assert not any(cluster.waiting.values()) and not cluster.running
    assert cluster.admitted == cluster.finished + cluster.preempted
    assert all(usage.used(node) == 0 for node in usage.tree.parents)
    root = usage.tree.root(next(iter(cluster.waiting)))
    assert 0 < cluster.most <= usage.tree.subtree[root] == 20 * QUEUES
