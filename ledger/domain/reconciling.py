"""What two records of one thing come to, and why they differ where they do.

A leg compares two records. For each subject it says what either comes to, and names the differences
that it knows a reason for. What is left over has none, and the reconciliation fails by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ledger.domain.periods import Period

Reason = Literal[
    "late",
    "in-flight",
    "correction",
    "aged",
    "fee",
    "rounding",
    "dispute",
    "refund",
    "unexplained",
]
"""late: it counts in another month, or came too late to count. in-flight: the other side follows.
correction: recorded to put right what was before. aged: one side is kept for so long only. fee:
what who carries the money keeps. rounding: to whole cents. dispute: money that is contested.
refund: given back. unexplained: none of these."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What the two records of a leg say of a subject: an account, a lease, an invoice.

    unit: of both figures, such as `USD nanos` or `GPU ms`.
    """

    subject: str
    unit: str
    one: int
    other: int


@dataclass(frozen=True, slots=True)
class Difference:
    """A part of what the other record has more than the one (less: below zero), and its reason."""

    subject: str
    unit: str
    amount: int
    reason: Reason
    words: str


@dataclass(frozen=True, slots=True)
class Leg:
    """What was found of two records of a month. differences: those that have a reason."""

    name: str
    title: str
    pairs: Sequence[Pair]
    differences: Sequence[Difference]


Comparing = Callable[[Period, datetime], Leg]
"""Compares two records of a month, at a moment."""


def with_the_rest(leg: Leg) -> Leg:
    """Return the leg with one difference more for each subject that its reasons leave one of."""
    left: Counter[tuple[str, str]] = Counter()
    for pair in leg.pairs:
        left[pair.subject, pair.unit] += pair.other - pair.one
    for known in leg.differences:
        if known.reason != "unexplained":
            left[known.subject, known.unit] -= known.amount
    rest = [
        Difference(subject, unit, amount, "unexplained", f"{leg.title}: {amount:+,} {unit}")
        for (subject, unit), amount in sorted(left.items())
        if amount
    ]
    return Leg(leg.name, leg.title, leg.pairs, [*leg.differences, *rest])


def unexplained(legs: Sequence[Leg]) -> list[Difference]:
    """Return the differences without a reason."""
    return [each for leg in legs for each in leg.differences if each.reason == "unexplained"]
