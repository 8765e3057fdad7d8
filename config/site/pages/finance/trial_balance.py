"""The trial balance as accountants read it: debits, credits, and that both come to the same."""

from __future__ import annotations

from dataclasses import dataclass

from config.site.parts.figures import places_of
from ledger.models import AccountRow
from ledger.queries.money import TrialBalance


@dataclass(frozen=True, slots=True)
class TrialLine:
    """One account: what its postings come to, on the side where it stands. None: all of others."""

    account: AccountRow | None
    debit_nanos: int
    credit_nanos: int


@dataclass(frozen=True, slots=True)
class Trial:
    """The accounts of one currency. places: decimals that write every amount exactly."""

    currency: str
    lines: list[TrialLine]
    debit_nanos: int
    credit_nanos: int
    places: int

    @property
    def off_nanos(self) -> int:
        """Return by how much the two sides differ: nothing, if the books are right."""
        return self.credit_nanos - self.debit_nanos


def trial_of(balance: TrialBalance) -> list[Trial]:
    """Return a trial balance for each currency, in order.

    What is below zero stands on the debit side: money that came in, or that was paid to a cloud.
    """
    totals: dict[str, list[tuple[AccountRow | None, int]]] = {}
    for row, nanos in balance.totals:
        totals.setdefault(row.currency, []).append((row, nanos))
    for currency, nanos in balance.others_nanos.items():
        totals.setdefault(currency, []).append((None, nanos))
    return [_trial(currency, totals[currency]) for currency in sorted(totals)]


def _trial(currency: str, totals: list[tuple[AccountRow | None, int]]) -> Trial:
    lines = [TrialLine(row, max(0, -nanos), max(0, nanos)) for row, nanos in totals]
    return Trial(
        currency=currency,
        lines=lines,
        debit_nanos=sum(line.debit_nanos for line in lines),
        credit_nanos=sum(line.credit_nanos for line in lines),
        places=places_of((nanos for _, nanos in totals), currency),
    )
