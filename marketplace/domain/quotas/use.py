"""What one grant takes of a quota, from when until when, and whether it may."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from marketplace.domain.facts.events import BidPlaced
from marketplace.domain.facts.instants import Millis
from marketplace.domain.facts.policy_events import LimitScope
from marketplace.domain.facts.values import Counts
from marketplace.domain.quotas.card_units import size_in, size_of
from marketplace.domain.quotas.cohort_tree import Outcome

FOREVER = Millis(1 << 60)


class Gpus(NamedTuple):
    """Some GPUs of one model. memory_mib: of all of them."""

    model: str
    gpus: int
    memory_mib: int


def gpus_of(gpus: Iterable[tuple[str, int]]) -> tuple[Gpus, ...]:
    """Count GPUs, told by model and memory, by model."""
    sizes: dict[str, list[int]] = defaultdict(list)
    for model, memory_mib in gpus:
        sizes[model].append(memory_mib)
    return tuple(Gpus(model, len(all_of), sum(all_of)) for model, all_of in sorted(sizes.items()))


@dataclass(frozen=True, slots=True)
class Use:
    """What one grant takes, from when until when. price: nano-units per GPU-hour."""

    terms: BidPlaced
    gpus: tuple[Gpus, ...]
    starts: int
    ends: int
    price: int

    @property
    def count(self) -> int:
        return sum(each.gpus for each in self.gpus)

    @property
    def memory_mib(self) -> int:
        return sum(each.memory_mib for each in self.gpus)

    def size(self, counts: Counts) -> int:
        """Return what they count as, in units."""
        return sum(each.gpus * size_of(each.model, counts) for each in self.gpus)

    def of_class(self, gpu_class: str, counts: Counts) -> int:
        """Return what those of a class count as, in units."""
        return sum(each.gpus * size_in(gpu_class, each.model, counts) for each in self.gpus)

    def during(self, starts: int, ends: int) -> int:
        """Return for how many milliseconds between two moments it lasts."""
        return max(0, min(self.ends, ends) - max(self.starts, starts))

    def within(self, starts: int, ends: int) -> int:
        """Return the milliseconds of GPUs, as they are paid, that lie between two moments."""
        return self.count * self.during(starts, ends)


def subject_of(scope: LimitScope, terms: BidPlaced) -> UUID | None:
    """Return whom the limits of a scope ask about a bid."""
    match scope:
        case "bid":
            return terms.bid_id
        case "user":
            return terms.user_id
        case "subscriber":
            return terms.subscriber_id
        case "tenant":
            return terms.tenant_id


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a use fits. outcome None: no quota speaks of it.

    reason, figures: of a refusal. again: the first moment later than the one at
    which it is refused at which it is not, for the same reason; FOREVER: never.
    """

    outcome: Outcome | None
    reason: str = ""
    figures: str = ""
    again: int = FOREVER

    @property
    def fits(self) -> bool:
        return self.outcome != "refused"


FREE = Answer(None)
