"""Which work waits for money, and what of it can go on now. Rows that lag cost a look too many."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import QuerySet

from ledger.access import Actor, visible
from ledger.domain.ids import AccountId, BidId
from ledger.domain.money import Money
from ledger.queries.depletion import left_on
from ledger.queries.money import account_titles
from ledger.turns import behind
from marketplace.models.money_waits import MoneyWaitRow

WaitKey = tuple[datetime, BidId]


@dataclass(frozen=True, slots=True)
class MoneyWait:
    """Work that waits. missing: what has to come in before it goes on; nothing: it does soon.

    account: the title of the one that has to cover it.
    """

    row: MoneyWaitRow
    missing: Money
    account: str

    @property
    def needs(self) -> Money:
        """Return what is set aside for its next step."""
        return Money(self.row.needs_nanos, self.row.currency)


def waits(actor: Actor) -> QuerySet[MoneyWaitRow]:
    """Return what of the actor's organisation waits for money, the first to wait first."""
    return visible(actor, MoneyWaitRow).order_by("since", "bid_id")


def told(rows: QuerySet[MoneyWaitRow], *, limit: int) -> list[MoneyWait]:
    """Return work that waits, each with what is missing on its account for it alone."""
    found = list(rows[:limit])
    left = left_on({AccountId(row.account_id) for row in found})
    named = account_titles({row.account_id for row in found})
    return [
        MoneyWait(row, Money(_missing(row, left), row.currency), named.get(row.account_id, ""))
        for row in found
    ]


def wait_of(actor: Actor, *, chain_id: UUID) -> MoneyWait | None:
    """Return for what a chain of bids waits; None: it does not wait for money."""
    return next(iter(told(waits(actor).filter(chain_id=chain_id), limit=1)), None)


def waits_to_look_at(after: WaitKey | None, limit: int) -> list[WaitKey]:
    """Return bids behind which something waits, the first to wait first."""
    rows = MoneyWaitRow.objects.filter(behind(after, "since", "bid_id")).order_by("since", "bid_id")
    keys = rows.values_list("since", "bid_id")[:limit]
    return [(since, BidId(bid_id)) for since, bid_id in keys]


def may_go_on(bid_ids: list[BidId], *, now: datetime) -> list[BidId]:
    """Return those of these that their account covers now, or whose time is over, in order."""
    rows = {row.bid_id: row for row in MoneyWaitRow.objects.filter(bid_id__in=bid_ids)}
    left = left_on({AccountId(row.account_id) for row in rows.values()})
    found = []
    for bid_id in bid_ids:
        row = rows.get(bid_id)
        if row is not None and (now > row.until or not _missing(row, left)):
            found.append(bid_id)
    return found


def _missing(row: MoneyWaitRow, left: dict[AccountId, int | None]) -> int:
    found = left.get(AccountId(row.account_id), 0)
    return 0 if found is None else max(0, row.needs_nanos - found)
