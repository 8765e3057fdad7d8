"""The baseline: a pool that only its own jobs use, first come first served with backfill."""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from heapq import heapify, heappop, heappush

import numpy as np

from tests.simulation.nodes import Room, each, nodes_needed
from tests.simulation.traces import GPUS_PER_NODE, Floats, Jobs, Trace

BACKFILL_DEPTH = 4
"""How many waiting jobs that don't fit are looked past, whenever room appears."""
P95_MINUTES, LATE_SHARE = 22.0, 0.059
"""What service an owner alone is sized for: p95 of waits, and the share over 15 minutes."""
ARRIVES, ENDS = 0, 1
NEVER = float("inf")


def first_come(jobs: Jobs, nodes: int, *, depth: int = BACKFILL_DEPTH) -> Floats:
    """Return when each job starts on `nodes` of its own; NEVER where it is too big for them.

    Kind to the baseline: a job that comes is tried at once, even past those that wait.
    """
    room, everywhere = Room(nodes), (1 << nodes) - 1
    starts = np.full(len(jobs), NEVER)
    gpus, duration = jobs.gpus.tolist(), jobs.duration.tolist()
    events = [(at, ARRIVES, job) for job, at in enumerate(jobs.arrival.tolist())]
    heapify(events)
    placed: dict[int, list[tuple[int, int]]] = {}
    waiting: OrderedDict[int, None] = OrderedDict()

    def start(job: int, now: float) -> bool:
        places = _places(room, gpus[job], everywhere)
        if places is None:
            return False
        for node, taken in places:
            room.change(node, -taken)
        placed[job], starts[job] = places, now
        heappush(events, (now + duration[job], ENDS, job))
        return True

    while events:
        now, what, job = heappop(events)
        if what == ARRIVES:
            if nodes_needed(gpus[job]) <= nodes and not start(job, now):
                waiting[job] = None
            continue
        for node, taken in placed.pop(job):
            room.change(node, taken)
        missed = 0
        for other in list(waiting):
            if start(other, now):
                del waiting[other]
            else:
                missed += 1
                if missed >= depth:
                    break
    return starts


def _places(room: Room, gpus: int, among: int) -> list[tuple[int, int]] | None:
    if gpus <= GPUS_PER_NODE:
        node = room.tightest(gpus, among)
        return None if node is None else [(node, gpus)]
    whole = room.whole(among)
    need = nodes_needed(gpus)
    if whole.bit_count() < need:
        return None
    found, left = [], gpus
    for node in each(whole):
        found.append((node, min(GPUS_PER_NODE, left)))
        left -= GPUS_PER_NODE
        if left <= 0:
            break
    return found


def every_owner_alone(trace: Trace, nodes: tuple[int, ...]) -> Floats:
    """Return when each job starts if every owner has only its own nodes."""
    starts = np.full(len(trace.jobs), NEVER)
    for owner, count in enumerate(nodes):
        mine = trace.jobs.owner == owner
        starts[mine] = first_come(trace.jobs.of(mine), count)
    return starts


def pooled(trace: Trace, nodes: int) -> Floats:
    """Return when each job starts if all nodes are one pool, without any market."""
    return first_come(trace.jobs, nodes)


def served_well(waits: Floats) -> bool:
    """Tell if waits, in seconds, are what an owner's fleet is sized for."""
    return bool(np.percentile(waits, 95) <= P95_MINUTES * 60 and (waits > 900).mean() <= LATE_SHARE)


@lru_cache(maxsize=8)
def right_sized(trace: Trace, *, depth: int = BACKFILL_DEPTH) -> tuple[int, ...]:
    """Return the fewest nodes with which each owner alone serves its own well enough.

    Well enough: `served_well`, and the biggest gang fits. Found by bisection; a node less may by
    luck be good enough too, so a few below are tried. depth: how many are looked past.
    """
    sizes = []
    for owner in range(len(trace.nodes)):
        mine = trace.jobs.of(trace.jobs.owner == owner)
        if not len(mine):
            sizes.append(0)
            continue

        def good(count: int, mine: Jobs = mine) -> bool:
            return served_well(first_come(mine, count, depth=depth) - mine.arrival)

        low = nodes_needed(int(mine.gpus.max()))
        high = max(low, 2 * trace.nodes[owner])
        while low < high:
            middle = (low + high) // 2
            if good(middle):
                high = middle
            else:
                low = middle + 1
        least = nodes_needed(int(mine.gpus.max()))
        below = [count for count in range(max(least, low - 3), low) if good(count)]
        sizes.append(min([low, *below]))
    return tuple(sizes)
