"""Who had how much lately, and who goes first for it: use that is forgotten by half, over a weight.

A use of r GPUs from a to b has left, at t, `r × H / ln 2 × (2^-((t-b)/H) - 2^-((t-a)/H))` GPU-time.
The sum of such terms can be carried forward from any moment to any later one without looking back,
so it is kept as one number, and equals the closed form to one part in a thousand million however
often it was carried. It is never rounded: the smallest use counts.

Two units are compared where their ways from the outside part: there, whoever had less over its
weight, alone or all in it together, goes first. So how many units an organisation has does not
matter, and a weight counts among those beside it only. What stands in no cohort stands beside the
outermost ones. In a pass, what is granted counts at once: see `Standings.turns`.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import TypeVar

from marketplace.domain.quotas.cohort_tree import around

LN2 = math.log(2.0)

ShareKey = tuple[bool, float, str]


def remembered(gpus: float, starts: int, ends: int, *, at: int, half_life: int) -> float:
    """Return what is left at `at` of a use, in GPU-milliseconds: the closed form.

    Times and half-life in milliseconds; what lies after `at` has not been used yet.
    """
    ends = min(ends, at)
    if ends <= starts or gpus <= 0:
        return 0.0
    # expm1: the difference of two numbers that are nearly equal keeps its digits.
    length = -math.expm1(-LN2 * (ends - starts) / half_life)
    return gpus * (half_life / LN2) * length * math.exp2(-(at - ends) / half_life)


@dataclass(frozen=True, slots=True)
class Decayed:
    """Use remembered at a moment. gpu_millis: what is left of it."""

    half_life: int
    gpu_millis: float = 0.0
    at: int = 0

    def __post_init__(self) -> None:
        assert self.half_life > 0

    def carried(self, at: int) -> Decayed:
        """Return what is left of it later."""
        if at <= self.at:
            return self
        left = self.gpu_millis * math.exp2(-(at - self.at) / self.half_life)
        return Decayed(self.half_life, left, at)

    def plus(self, gpus: float, starts: int, ends: int, *, at: int) -> Decayed:
        """Return it at `at` with one more use, which may lie before what was added last."""
        at = max(at, self.at)
        more = remembered(gpus, starts, ends, at=at, half_life=self.half_life)
        return Decayed(self.half_life, self.carried(at).gpu_millis + more, at)


@dataclass(frozen=True, slots=True)
class FairShare:
    """The arithmetic by which a unit or cohort comes before one beside it, shown as it is.

    dominant: the class of which it had most, by `fraction` = remembered / (capacity × H / ln 2):
    1 is all GPUs of the class, always. weight_ppm: 1,000,000 counts once.
    """

    node: str
    dominant: str
    gpu_millis: float
    fraction: float
    weight_ppm: int

    @property
    def share(self) -> float:
        """Return fraction / weight: who has less goes first. Infinite where the weight is 0."""
        return math.inf if self.weight_ppm <= 0 else self.fraction * 1_000_000 / self.weight_ppm

    @property
    def key(self) -> ShareKey:
        """Return what to sort by: least share first, the weight 0 after all others."""
        return (
            self.weight_ppm <= 0,
            self.fraction if self.weight_ppm <= 0 else self.share,
            self.node,
        )

    def in_words(self) -> str:
        """Return the arithmetic as a sentence."""
        hours = self.gpu_millis / 3_600_000
        use = f"{hours:.6g} GPU-hours of {self.dominant} remembered, {self.fraction:.6g} of all"
        if self.weight_ppm <= 0:
            return f"{use}; weight 0: goes last"
        return f"{use}, over weight {self.weight_ppm / 1_000_000:g}: share {self.share:.6g}"


def fair_share(
    node: str,
    left: Mapping[str, float],
    capacity: Mapping[str, float],
    *,
    half_life: int,
    weight_ppm: int,
) -> FairShare:
    """Return the share, of the class that it had most of, of a unit or of all in a cohort.

    Args:
        left: what is remembered, by class of GPU, in GPU-milliseconds. capacity: GPUs there are of
            each class; a class without any counts nothing. half_life: in milliseconds.
    """
    best, most = "", 0.0
    for gpu_class in sorted(left):
        if capacity.get(gpu_class, 0) > 0:
            fraction = left[gpu_class] / (capacity[gpu_class] * half_life / LN2)
            if not best or fraction > most:
                best, most = gpu_class, fraction
    return FairShare(node, best, left[best] if best else 0.0, most, weight_ppm)


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
