"""Who goes first, at every level: cohorts beside each other, then who stands in them, to the units.

Two units are compared where their ways from the outside part: there, whoever had less over its
weight, alone or all in it together, goes first. So how many units an organisation has does not
matter, and a weight counts among those beside it only. What stands in no cohort stands beside the
outermost ones. In a pass, what is granted counts at once: see `Standings.turns`.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from typing import TypeVar

from marketplace.domain.quotas.cohort_tree import around
from marketplace.domain.quotas.decayed_usage import FairShare, ShareKey, fair_share, remembered

T = TypeVar("T")


class Standings:
    """What units, and all in each cohort together, are remembered for at one moment.

    Args:
        parents: the cohort of each unit and cohort, or None. used: of every unit, what is
            remembered by class of GPU, in GPU-milliseconds. capacity: GPUs of each class.
        weight_of: the weight of a node in ppm. half_life: in milliseconds.
    """

    def __init__(
        self,
        parents: Mapping[str, str | None],
        used: Mapping[str, Mapping[str, float]],
        capacity: Mapping[str, float],
        weight_of: Callable[[str], int],
        *,
        half_life: int,
    ) -> None:
        self.parents, self.units = parents, tuple(sorted(used))
        self._capacity, self._weight_of, self._half_life = capacity, weight_of, half_life
        self._shares: dict[str, FairShare] = {}
        terms: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for unit, of_unit in used.items():
            for node in around(parents, unit):
                for model, left in of_unit.items():
                    terms[node][model].append(left)
        # fsum: the sum of a cohort is the same in whatever order its members come.
        self._left: dict[str, dict[str, float]] = {
            node: {model: math.fsum(each) for model, each in by_model.items()}
            for node, by_model in terms.items()
        }

    def share(self, node: str) -> FairShare:
        """Return the arithmetic of a unit, or of a cohort: of all in it, over its own weight."""
        found = self._shares.get(node)
        if found is None:
            found = self._shares[node] = fair_share(
                node,
                self._left.get(node, {}),
                self._capacity,
                half_life=self._half_life,
                weight_ppm=self._weight_of(node),
            )
        return found

    def path(self, unit: str) -> tuple[FairShare, ...]:
        """Return the shares on the way to a unit: of its outermost cohort first, its own last."""
        return tuple(self.share(node) for node in reversed([*around(self.parents, unit)]))

    def key(self, unit: str) -> tuple[ShareKey, ...]:
        """Return what to sort units by: they are compared at the first level where they part."""
        return tuple(share.key for share in self.path(unit))

    def ordered(self) -> list[str]:
        """Return the units, who goes first first. Those of a cohort are together."""
        return sorted(self.units, key=self.key)

    def add(self, unit: str, gpus: Mapping[str, float], millis: int) -> None:
        """Count what was just granted as it will be remembered when it ends.

        gpus: by model, how many. millis: for how long. In whole GPU-milliseconds: so it adds up
        alike at every level.
        """
        each_gpu = round(remembered(1, 0, millis, at=millis, half_life=self._half_life))
        for node in around(self.parents, unit):
            left = self._left.setdefault(node, {})
            for model, count in gpus.items():
                left[model] = left.get(model, 0.0) + round(count * each_gpu)
            self._shares.pop(node, None)

    def turns(self, waiting: Mapping[str, Iterable[T]]) -> Iterator[T]:
        """Yield what waits for units: at every level first of whoever has least by then.

        What is added meanwhile counts before the next one is yielded. Of one unit they come in
        the order given.
        """
        queues = {unit: deque(each) for unit, each in waiting.items()}
        heaps: dict[str | None, list[tuple[ShareKey, str]]] = defaultdict(list)
        waits = [unit for unit, each in queues.items() if each]
        nodes = {node for unit in waits for node in around(self.parents, unit)}
        for node in nodes:
            heaps[self.parents[node]].append((self.share(node).key, node))
        for heap in heaps.values():
            heapify(heap)
        while heaps[None]:
            path: list[str] = []
            while not path or path[-1] not in queues:
                path.append(heaps[path[-1] if path else None][0][1])
            queue = queues[path[-1]]
            yield queue.popleft()
            for node in reversed(path):
                heap = heaps[self.parents[node]]
                if queue if node in queues else heaps[node]:
                    heapreplace(heap, (self.share(node).key, node))
                else:
                    heappop(heap)


def parting(
    one: tuple[FairShare, ...], other: tuple[FairShare, ...]
) -> tuple[int, FairShare, FairShare]:
    """Return at which level, 0 outermost, two units' ways part, and the shares compared there."""
    for level, (left, right) in enumerate(zip(one, other, strict=False)):
        if left.node != right.node:
            return level, left, right
    raise AssertionError("a unit was compared with itself")
