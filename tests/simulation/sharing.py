"""openb's pods in time: owners alone on their hosts, or all of them in the market.

The same rules as for whole GPUs, for parts of them: own hosts first, then others'; an owner below
its quota takes back what others hold on its hosts, with notice; what may pause does so past its
firm hour on another's host, for a pod that finds no room. Services are never paused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from tests.simulation.measures import LATE
from tests.simulation.openb import WHOLE, Kind, Pods
from tests.simulation.parts import Bools, Held, Mix, Parts
from tests.simulation.placing import MIN_RUN_OWNERS
from tests.simulation.rules import Rules
from tests.simulation.traces import DAY, HOUR, Floats

ENDS, ARRIVES, SAMPLES = range(3)
SAMPLE_EVERY = 6 * HOUR
RECLAIMED, PAUSED = "reclaimed", "paused"


class Eviction(NamedTuple):
    """Whom to send away, and what that frees. Less is better."""

    gone: int
    held: Held
    going: tuple[int, ...]


@dataclass(slots=True)
class Shared:
    """What came of a replay. held, stranded and free: GPU-seconds, and GPUs at each sample."""

    pods: Pods
    gpus: int
    started: Floats
    ended: Floats
    stood: Floats
    within_quota: Bools
    held: float = 0.0
    lost: float = 0.0
    stranded: list[float] = field(default_factory=list)
    resumed_after: dict[str, list[float]] = field(default_factory=dict)


class Sharing:
    """One replay. Call `run` once."""

    def __init__(
        self,
        pods: Pods,
        hosts: Sequence[tuple[Kind, int]],
        price: Mapping[str, float],
        horizon: float,
        *,
        market: bool,
        rules: Rules | None = None,
        mix: Mix | None = None,
        late_max: float = float("inf"),
    ) -> None:
        """late_max: give up once more pods than that start late: it is not good enough anyway."""
        self.rules = rules or Rules()
        self.pods, self.market, self.mix = pods, market, mix
        self.late, self.late_max = 0, late_max
        self.since, self.until = DAY, horizon - DAY
        self.parts = Parts(hosts, pods, price)
        owners = max((owner for _, owner in hosts), default=0) + 1
        owners = max(owners, int(pods.owner.max()) + 1)
        self.owner_of = self.parts.owner_of_gpu.tolist()
        self.quota = np.bincount(self.parts.owner_of_gpu, minlength=owners).astype(np.int64) * WHOLE
        self.used = [0] * owners
        self.gpus, self.milli = pods.gpus.tolist(), pods.milli.tolist()
        self.spec, self.owner = pods.spec.tolist(), pods.owner.tolist()
        self.size, self.can_pause = pods.size.tolist(), pods.can_pause.tolist()
        self.remaining = pods.duration.tolist()
        count = len(pods)
        self.out = Shared(
            pods,
            len(self.parts.free),
            np.full(count, np.inf),
            np.full(count, np.inf),
            np.zeros(count),
            np.zeros(count, dtype=np.bool_),
        )
        self.places: dict[int, Held] = {}
        self.lent = [0] * owners
        """How many parts of an owner's GPUs others hold."""
        self.pausable: dict[int, None] = {}
        """What runs and may pause."""
        self.on: list[dict[int, int]] = [{} for _ in self.parts.free]
        self.cleared_at = [0.0] * len(self.parts.free)
        self.held_since: dict[int, float] = {}
        self.works_since: dict[int, float] = {}
        self.waits_since: dict[int, float] = {}
        self.interrupted: dict[int, tuple[float, str]] = {}
        self.saved_at: dict[int, float] = {}
        """When a pod that was told to go has saved its work: it cannot go on before."""
        self.waiting: list[tuple[float, int]] = []
        self.turn = [0] * count
        self.events = [(at, ARRIVES, pod, 0) for pod, at in enumerate(pods.arrival.tolist())]
        if mix is not None:
            samples = np.arange(self.since, self.until, SAMPLE_EVERY).tolist()
            self.events += [(at, SAMPLES, 0, 0) for at in samples]
        heapify(self.events)

    def run(self) -> Shared:
        """Go through all events, to the end of the last pod, unless it gives up before."""
        while self.events and self.late <= self.late_max:
            now, what, pod, turn = heappop(self.events)
            if what == ARRIVES:
                self.out.within_quota[pod] = self._below_quota(pod)
                self.waits_since[pod] = now
                if not self._start(pod, now):
                    heappush(self.waiting, (now, pod))
            elif what == SAMPLES:
                assert self.mix is not None
                self.out.stranded.append(self.mix.stranded(self.parts))
            elif self.turn[pod] == turn:
                self.out.ended[pod] = now
                self._release(pod, now)
                self._serve(now)
        return self.out

    # --- starting ---------------------------------------------------------------------------

    def _start(self, pod: int, now: float) -> bool:
        wanted = self.gpus[pod], self.milli[pod], self.spec[pod]
        held = self.parts.place(*wanted, owner=self.owner[pod])
        if held is None and self.market:
            held = self.parts.place(*wanted)
        if held is not None:
            self._hold(pod, held, now)
            return True
        if not self.market:
            return False
        eviction, why = self._reclaim(pod), RECLAIMED
        if eviction is None and not self._is_old(pod, now):
            eviction, why = self._pause_others(pod, now), PAUSED
        if eviction is None:
            return False
        for other in eviction.going:
            self._interrupt(other, now, why)
        self._hold(pod, eviction.held, now)
        for other in eviction.going:
            heappush(self.waiting, (now, other))
        self._serve(now, only=set(eviction.going))
        return True

    def _hold(self, pod: int, held: Held, now: float) -> None:
        self.parts.hold(held)
        begins = max(now, self.saved_at.pop(pod, now))
        for gpu, milli in held:
            self.on[gpu][pod] = milli
            self.lent[self.owner_of[gpu]] += self.owner_of[gpu] != self.owner[pod]
            begins = max(begins, self.cleared_at[gpu])
        again = self.interrupted.pop(pod, None)
        resume = self.rules.resume if again else 0.0
        self.places[pod], self.held_since[pod] = held, now
        self.works_since[pod] = begins + resume
        self.used[self.owner[pod]] += self.size[pod]
        self.out.stood[pod] += begins - self.waits_since.pop(pod)
        if np.isinf(self.out.started[pod]):
            self.out.started[pod] = begins
            self.late += begins - self.pods.arrival[pod] > LATE
        if again:
            self.out.resumed_after.setdefault(again[1], []).append(begins - again[0])
        self.turn[pod] += 1
        if self.can_pause[pod]:
            self.pausable[pod] = None
        ends = begins + resume + self.remaining[pod]
        heappush(self.events, (ends, ENDS, pod, self.turn[pod]))

    def _release(self, pod: int, now: float) -> None:
        for gpu, milli in self.places.pop(pod):
            self.parts.change(gpu, milli)
            del self.on[gpu][pod]
            self.lent[self.owner_of[gpu]] -= self.owner_of[gpu] != self.owner[pod]
        self.pausable.pop(pod, None)
        since, works = self.held_since.pop(pod), self.works_since.pop(pod)
        share = self.size[pod] / WHOLE
        self.out.held += share * self._measured(since, now)
        self.out.lost += share * self._measured(since, min(works, now))
        self.used[self.owner[pod]] -= self.size[pod]
        self.remaining[pod] = max(1.0, self.remaining[pod] - max(0.0, now - works))
        self.turn[pod] += 1

    def _measured(self, since: float, until: float) -> float:
        return max(0.0, min(until, self.until) - max(since, self.since))

    def _serve(self, now: float, *, only: set[int] | None = None) -> None:
        """Start what waits, in order of arrival; whoever does not fit is passed over.

        only: nobody else, and nobody is sent away for them.
        """
        failed: set[tuple[int, int, int, int]] = set()
        kept = []
        waiting, self.waiting = self.waiting, []
        for since, pod in sorted(waiting):
            wish = (self.gpus[pod], self.milli[pod], self.spec[pod], self.owner[pod])
            if only is not None:
                held = self.parts.place(*wish[:3]) if pod in only else None
                if held is not None:
                    self._hold(pod, held, now)
                    continue
            elif wish not in failed:
                if self._start(pod, now):
                    continue
                failed.add(wish)
            kept.append((since, pod))
        self.waiting += kept

    # --- interrupting -----------------------------------------------------------------------

    def _below_quota(self, pod: int) -> bool:
        owner = self.owner[pod]
        return bool(self.used[owner] + self.size[pod] <= self.quota[owner])

    def _reclaim(self, pod: int) -> Eviction | None:
        """Take back from others what they hold on own hosts, where that stops the least."""
        owner = self.owner[pod]
        if not self.lent[owner] or not self._below_quota(pod):
            return None
        going = {
            gpu: [other for other in self.on[gpu] if self.owner[other] != owner]
            for gpu in np.flatnonzero(self.parts.owner_of_gpu == owner).tolist()
        }
        return self._least(pod, going)

    def _pause_others(self, pod: int, now: float) -> Eviction | None:
        """Let pods that may pause do so, past their firm hour on others' hosts."""
        hosts = {
            int(self.parts.host[gpu])
            for other in self.pausable
            for gpu, _ in self.places[other]
            if self._may_pause(other, gpu, now)
        }
        going = {
            gpu: [other for other in self.on[gpu] if self._may_pause(other, gpu, now)]
            for host in sorted(hosts)
            for gpu in np.flatnonzero(self.parts.host == host).tolist()
        }
        return self._least(pod, going)

    def _may_pause(self, pod: int, gpu: int, now: float) -> bool:
        return (
            self.owner[pod] != self.owner_of[gpu]
            and self._is_old(pod, now)
            and now - self.works_since[pod] >= MIN_RUN_OWNERS
        )

    def _is_old(self, pod: int, now: float) -> bool:
        """Tell if a pod that may pause has had its firm hour."""
        firm_for = self.rules.firm_for
        if firm_for is None or not self.can_pause[pod]:
            return False
        worked = float(self.pods.duration[pod]) - float(self.remaining[pod])
        since = self.works_since.get(pod)
        return worked + (0.0 if since is None else max(0.0, now - since)) >= firm_for

    def _least(self, pod: int, going: Mapping[int, Sequence[int]]) -> Eviction | None:
        """Return the way to make room that sends away least; going: who may be, by GPU."""
        gpus, milli, spec = self.gpus[pod], self.milli[pod], self.spec[pod]
        by_host: dict[int, list[Eviction]] = {}
        for gpu, others in going.items():
            if not self.parts.fits_gpu[spec][gpu]:
                continue
            found = self._fewest(gpu, milli, others)
            if found is not None:
                by_host.setdefault(int(self.parts.host[gpu]), []).append(found)
        best: Eviction | None = None
        for ways in by_host.values():
            if len(ways) < gpus:
                continue
            chosen = sorted(ways)[:gpus]
            gone = dict.fromkeys(other for way in chosen for other in way.going)
            held = [each for way in chosen for each in way.held]
            option = Eviction(sum(self.size[other] for other in gone), held, tuple(gone))
            best = option if best is None else min(best, option)
        return best

    def _fewest(self, gpu: int, milli: int, others: Sequence[int]) -> Eviction | None:
        short = milli - int(self.parts.free[gpu])
        going = []
        for other in sorted(
            others, key=lambda each: (not self.can_pause[each], self.on[gpu][each], each)
        ):
            if short <= 0:
                break
            going.append(other)
            short -= self.on[gpu][other]
        if short > 0:
            return None
        return Eviction(sum(self.size[other] for other in going), [(gpu, milli)], tuple(going))

    def _interrupt(self, pod: int, now: float, why: str) -> None:
        self.saved_at[pod] = now + self.rules.notice
        for gpu, _ in self.places[pod]:
            self.cleared_at[gpu] = max(self.cleared_at[gpu], self.saved_at[pod])
        self._release(pod, now)
        self.interrupted[pod] = (now, why)
        self.waits_since[pod] = now
