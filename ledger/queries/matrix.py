"""Who owes whom: what each unit came to owe each organisation by its entries, both ways."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection

from ledger.access import Actor
from ledger.domain.accounts import PAYING_KINDS
from ledger.domain.costs import COST_KINDS
from ledger.domain.netting import Net, Owed, netted
from ledger.domain.periods import Period

_CELLS = """
SELECT payer.tenant_id,
       CASE WHEN %(all)s OR payer.tenant_id = %(mine)s THEN payer.subscriber_id END,
       other.tenant_id, entry.currency,
       sum(greatest(line.nanos, 0)), sum(greatest(-line.nanos, 0))
  FROM ledger_journalentryrow entry
  JOIN ledger_accountrow payer
    ON payer.account_id = entry.account_id AND payer.kind = ANY(%(paying)s)
 CROSS JOIN LATERAL unnest(entry.account_ids, entry.nanos) AS line(account_id, nanos)
  JOIN ledger_accountrow other ON other.account_id = line.account_id
 WHERE entry.period BETWEEN %(first)s AND %(last)s
   AND entry.kind = ANY(%(kinds)s)
   AND line.account_id <> entry.account_id
   AND (%(all)s OR payer.tenant_id = %(mine)s OR other.tenant_id = %(mine)s)
 GROUP BY 1, 2, 3, 4
 ORDER BY 1, 2, 3, 4
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What a unit came to owe an organisation.

    unit_id: None: of the organisation itself, or a unit of another one, which is its own affair.
    other_id: None: accounts that nobody opened yet. gross_nanos: charged; against_nanos: what the
    other came to owe the unit, by compensation and credits.
    """

    tenant_id: UUID
    unit_id: UUID | None
    other_id: UUID | None
    currency: str
    gross_nanos: int
    against_nanos: int

    @property
    def nanos(self) -> int:
        """Return what is left once both are set off; below zero it is owed the other way."""
        return self.gross_nanos - self.against_nanos

    @property
    def is_own(self) -> bool:
        """Tell if the unit used GPUs of its own organisation."""
        return self.tenant_id == self.other_id


def owed(actor: Actor, first: Period, last: Period) -> list[Cell]:
    """Return who came to owe whom in the months from `first` to `last`, both among them.

    A tenant sees what its units owe and what it is owed. All cells of a unit add up to what its
    accounts were charged.
    """
    asked: dict[str, Any] = {
        "all": actor.sees_all,
        "mine": actor.tenant_id,
        "paying": sorted(PAYING_KINDS),
        "kinds": list(COST_KINDS),
        "first": str(first),
        "last": str(last),
    }
    with connection.cursor() as cursor:
        cursor.execute(_CELLS, asked)
        return [
            Cell(
                tenant_id=tenant_id,
                unit_id=unit_id,
                other_id=other_id,
                currency=currency,
                gross_nanos=int(gross),
                against_nanos=int(against),
            )
            for tenant_id, unit_id, other_id, currency, gross, against in cursor
        ]


def between_organisations(cells: Iterable[Cell]) -> list[Net]:
    """Return what is left to be paid between two organisations, all their units together."""
    debts = []
    for each in cells:
        if each.other_id is not None:
            there = Owed(each.tenant_id, each.other_id, each.gross_nanos, each.currency)
            back = Owed(each.other_id, each.tenant_id, each.against_nanos, each.currency)
            debts += [there, back]
    return netted(debts)
