"""What goes into an export is counted while it is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ledger.access import Actor
from ledger.domain.periods import Period
from ledger.eventstore.port import Position
from ledger.exports.charges import Charge
from ledger.exports.entries import Books, Entry


@dataclass(slots=True)
class Tally:
    """What went into an export: rows, and by currency what they add up to."""

    rows: int = 0
    sums: dict[str, int] = field(default_factory=dict)

    def count_charges(self, rows: Iterator[Charge]) -> Iterator[Charge]:
        """Pass charges on and add up what they cost; what was paid in is no cost."""
        sums = self.sums
        for charge in rows:
            currency = charge.payer.currency
            self.rows += 1
            sums[currency] = sums.get(currency, 0) + charge.cost_nanos
            yield charge

    def count_entries(self, rows: Iterator[Entry]) -> Iterator[Entry]:
        """Pass entries on and add up what they moved."""
        for entry in rows:
            moved = sum(nanos for _, nanos in entry.lines if nanos > 0)
            self.rows += 1
            self.sums[entry.currency] = self.sums.get(entry.currency, 0) + moved
            yield entry


class CountedBooks(Books):
    """Books whose entries are counted as they are read."""

    def __init__(self, actor: Actor, *, period: Period, position: Position, tally: Tally) -> None:
        super().__init__(actor, period=period, position=position)
        self._tally = tally

    def entries(self) -> Iterator[Entry]:
        """Yield the entries of the period in the order of the store."""
        return self._tally.count_entries(super().entries())
