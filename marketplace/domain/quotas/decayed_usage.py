"""Who had how much lately: use that is forgotten by half in every half-life, over a weight.

A use of r GPUs from a to b has left, at t, `r × H / ln 2 × (2^-((t-b)/H) - 2^-((t-a)/H))` GPU-time.
The sum of such terms can be carried forward from any moment to any later one without looking back,
so it is kept as one number, and equals the closed form to one part in a thousand million however
often it was carried. It is never rounded: the smallest use counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

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
