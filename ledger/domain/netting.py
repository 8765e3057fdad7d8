"""Who owes whom, once what two parties owe each other is set off."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Owed:
    """What one party came to owe another, in nano-units of a currency."""

    debtor_id: UUID
    creditor_id: UUID
    nanos: int
    currency: str


@dataclass(frozen=True, slots=True)
class Net:
    """What is left of it. gross_nanos: before `against_nanos`, owed the other way, was set off."""

    debtor_id: UUID
    creditor_id: UUID
    currency: str
    gross_nanos: int
    against_nanos: int

    @property
    def nanos(self) -> int:
        """Return what is left to be paid: never below zero."""
        return self.gross_nanos - self.against_nanos


def netted(debts: Iterable[Owed]) -> list[Net]:
    """Set off debts by pair and currency, the most left first; what cancels out is left out.

    A party owes itself nothing. A debt below zero, by a correction, is owed the other way.
    """
    gross: dict[tuple[UUID, UUID, str], int] = defaultdict(int)
    for each in debts:
        key = (each.debtor_id, each.creditor_id, each.currency)
        if each.nanos < 0:
            key = (each.creditor_id, each.debtor_id, each.currency)
        if each.debtor_id != each.creditor_id:
            gross[key] += abs(each.nanos)
    left = [
        Net(
            debtor_id,
            creditor_id,
            currency,
            nanos,
            gross.get((creditor_id, debtor_id, currency), 0),
        )
        for (debtor_id, creditor_id, currency), nanos in gross.items()
    ]
    return sorted(
        (each for each in left if each.nanos > 0),
        key=lambda each: (-each.nanos, str(each.debtor_id), str(each.creditor_id), each.currency),
    )
