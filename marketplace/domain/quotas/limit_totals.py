"""What users, business units and tenants have, added up: GPUs and memory at once, use in periods.

Kept per scope of limits, from the first time that a limit of it asks, and then use by use: so a
limit is asked without going through all that is used. A fork adds to sums of its own.
"""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple
from uuid import UUID

from ledger.domain.money import MILLIS_PER_HOUR
from marketplace.domain.facts.policy_events import LimitScope
from marketplace.domain.facts.values import Counts
from marketplace.domain.quotas.step_function import NOTHING, Steps
from marketplace.domain.quotas.use import Use, subject_of

Spent = ChainMap[tuple[UUID, str], int]
"""By subject and currency, in nano-units; units × milliseconds under the currency ``""``."""
Uses = Callable[[], Iterable[Use]]


class Held(NamedTuple):
    """What one has at once, over time: GPUs, in units, and MiB of their memory."""

    gpus: Steps = NOTHING
    memory: Steps = NOTHING

    def plus(self, use: Use, sign: int, counts: Counts) -> Held:
        """Return it with one use more, or less."""
        return Held(
            self.gpus.plus(use.starts, use.ends, sign * use.size(counts)),
            self.memory.plus(use.starts, use.ends, sign * use.memory_mib),
        )


class Tallies:
    """All sums that were asked for. Whoever changes the uses says so here."""

    def __init__(self, counts: Counts) -> None:
        self._counts: Counts = counts
        self._held: dict[LimitScope, ChainMap[UUID, Held]] = {}
        self._spent: dict[tuple[LimitScope, int, int], Spent] = {}

    def fork(self) -> Tallies:
        """Return the same sums, to add to them."""
        twin = Tallies(self._counts)
        twin._held = {scope: held.new_child() for scope, held in self._held.items()}
        twin._spent = {key: spent.new_child() for key, spent in self._spent.items()}
        return twin

    def add(self, use: Use, *, held: bool, sign: int = 1) -> None:
        """Count a use, or stop counting it. held: at its time, beside in the periods it is in."""
        if held:
            for scope, by_subject in self._held.items():
                subject = subject_of(scope, use)
                if subject is not None:
                    before = by_subject.get(subject) or Held()
                    by_subject[subject] = before.plus(use, sign, self._counts)
        for (scope, starts, ends), spent in self._spent.items():
            _spend(spent, scope, use, (starts, ends), sign, self._counts)

    def forget_before(self, millis: int) -> None:
        """Drop what is over, to bound memory."""
        for scope, by_subject in self._held.items():
            pruned = {
                subject: Held(held.gpus.since(millis), held.memory.since(millis))
                for subject, held in by_subject.items()
            }
            self._held[scope] = ChainMap(
                {who: held for who, held in pruned.items() if len(held.gpus.times) > 1}
            )
        self._spent = {key: spent for key, spent in self._spent.items() if key[2] > millis}

    def held(self, scope: LimitScope, subject: UUID, uses: Uses) -> Held:
        """Return what one has at once. uses: returns all that are held."""
        by_subject, counts = self._held.get(scope), self._counts
        if by_subject is None:
            spans: dict[UUID, list[Use]] = defaultdict(list)
            for use in uses():
                whose = subject_of(scope, use)
                if whose is not None:
                    spans[whose].append(use)
            by_subject = self._held[scope] = ChainMap(
                {
                    whose: Held(
                        Steps.of((use.starts, use.ends, use.size(counts)) for use in mine),
                        Steps.of((use.starts, use.ends, use.memory_mib) for use in mine),
                    )
                    for whose, mine in spans.items()
                }
            )
        return by_subject.get(subject) or Held()

    def spent(
        self, scope: LimitScope, subject: UUID, span: tuple[int, int], uses: Uses
    ) -> Callable[[str], int]:
        """Return by currency what one spent in a period; units × ms for the currency ``""``.

        uses: returns all that are held, and all that are over.
        """
        known = self._spent.get((scope, *span))
        if known is None:
            known = self._spent[scope, *span] = ChainMap({})
            for use in uses():
                _spend(known, scope, use, span, 1, self._counts)
        return lambda currency: known.get((subject, currency), 0)


def _spend(
    spent: Spent, scope: LimitScope, use: Use, span: tuple[int, int], sign: int, counts: Counts
) -> None:
    lasts, subject = use.during(*span), subject_of(scope, use)
    if not lasts or subject is None:
        return
    paid = use.count * lasts * use.price // MILLIS_PER_HOUR
    for currency, amount in (("", use.size(counts) * lasts), (use.terms.limit.currency, paid)):
        key = (subject, currency)
        spent[key] = spent.get(key, 0) + sign * amount
