"""The one source of rows for exports of the journal: entries with their lines.

Who may not see every account gets the entries of their own, with all lines of others together
as one, so that an entry balances for them as well and tells nothing about anybody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from django.db.models import Sum

from ledger.access import Actor, visible
from ledger.domain.periods import Period
from ledger.eventstore.port import Position
from ledger.models import AccountRow, JournalEntryRow, PostingRow

CHUNK = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BookAccount:
    """An account as books name it; `account_id` is None for all accounts of others together."""

    account_id: UUID | None
    kind: str
    title: str
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A journal entry: its lines sum to zero, what an account gains is above zero."""

    position: int
    entry_id: UUID
    day: date
    kind: str
    reference: str
    cost_centre: str
    lease_id: UUID | None
    currency: str
    lines: tuple[tuple[BookAccount, int], ...]


class Books:
    """The journal of a period as one actor may see it, as it stood at a position."""

    def __init__(self, actor: Actor, *, period: Period, position: Position) -> None:
        self.period, self.position = period, position
        self._sees_all = actor.sees_all
        self._accounts = {
            row.pk: BookAccount(
                account_id=row.pk, kind=row.kind, title=row.title, currency=row.currency
            )
            for row in visible(actor, AccountRow).order_by("account_id")
        }

    def opening(self) -> dict[BookAccount, int]:
        """Return every account's total before the period, in order of id; zeros left out."""
        return self._totals(before=True)

    def closing(self) -> dict[BookAccount, int]:
        """Return every account's total at the end of the period, in order of id."""
        return self._totals(before=False)

    def entries(self) -> Iterator[Entry]:
        """Yield the entries of the period in the order of the store."""
        rows = JournalEntryRow.objects.filter(period=str(self.period), position__lte=self.position)
        if not self._sees_all:
            rows = rows.filter(account_ids__overlap=list(self._accounts))
        for row in rows.order_by("position").iterator(CHUNK):
            summed: dict[BookAccount, int] = {}
            for account_id, nanos in zip(row.account_ids, row.nanos, strict=True):
                account = self._account(account_id, row.currency)
                summed[account] = summed.get(account, 0) + nanos
            yield Entry(
                position=row.position,
                entry_id=row.entry_id,
                day=row.day,
                kind=row.kind,
                reference=row.reference,
                # Of who paid for the use: not for who was paid.
                cost_centre=row.cost_centre if self._is_payers(row.account_id) else "",
                lease_id=row.lease_id,
                currency=row.currency,
                lines=tuple((account, nanos) for account, nanos in summed.items() if nanos),
            )

    def _is_payers(self, account_id: UUID) -> bool:
        return self._sees_all or account_id in self._accounts

    def _account(self, account_id: UUID, currency: str) -> BookAccount:
        others = BookAccount(account_id=None, kind="others", title="Others", currency=currency)
        return self._accounts.get(account_id, others)

    def _totals(self, *, before: bool) -> dict[BookAccount, int]:
        until = "period__lt" if before else "period__lte"
        rows = PostingRow.objects.filter(
            position__lte=self.position,
            account_id__in=list(self._accounts),
            **{until: str(self.period)},
        )
        summed = rows.values("account_id", "currency").annotate(sum=Sum("nanos"))
        totals: dict[BookAccount, int] = {}
        others: dict[str, int] = {}
        for each in summed.order_by("account_id"):
            nanos = int(each["sum"])
            totals[self._accounts[each["account_id"]]] = nanos
            others[each["currency"]] = others.get(each["currency"], 0) - nanos
        for currency, nanos in sorted(others.items()):
            if nanos:
                key = BookAccount(account_id=None, kind="others", title="Others", currency=currency)
                totals[key] = nanos
        return {account: nanos for account, nanos in totals.items() if nanos}
